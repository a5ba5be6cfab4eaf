"""Run work on a Ray cluster, with the interface of `wng.runs.executor`."""

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from wng.runs.executor import Executor, LocalExecutor, LostError

ExecutorName = Literal["local", "ray"]
PATIENCE = 120.0  # seconds that a worker may take to start


class RayExecutor:
    """An executor on a Ray cluster: each placed object is an actor with one core.

    Args:
      address: address of a cluster, such as "auto" or "10.0.0.1:6379". If it is empty, wng starts a
        cluster for this process alone, which listens on the loopback interface only.
      cores: number of cores of the cluster that wng starts. The default is all cores.
    """

    remote = True

    def __init__(self, address: str = "", cores: int | None = None):
        self._ray = ray = _import_ray()
        self._where = f"the Ray cluster at {address}" if address else "the Ray cluster"
        if ray.is_initialized():
            raise ValueError(
                "this process is already connected to a Ray cluster: close that executor first, or "
                "call ray.shutdown()."
            )
        how: dict[str, Any] = {"address": address}
        if not address:
            how = {"address": "local", "num_cpus": cores or LocalExecutor().cores()}
            how |= {"include_dashboard": False}
        try:
            _check_reachable(address)
            with _as_we_like_it(ray, local=not address):
                ray.init(**how, log_to_driver=False, logging_level="FATAL")
        except Exception as error:  # of many kinds, with advice over many lines
            reason = next((line for line in str(error).splitlines() if line), "")
            what = f"({type(error).__name__}: {reason.rstrip('.')})"
            if not address:
                raise RuntimeError(f"Ray cannot be started on this machine {what}.") from error
            raise ValueError(
                f"no Ray cluster can be reached at {address} {what}: start one with `ray start "
                "--head` and give its address, or leave out --ray-address."
            ) from error
        if not address and not ray.util.get_node_ip_address().startswith("127."):
            ray.shutdown()
            raise RuntimeError(
                "Ray would accept connections from other machines: start a cluster yourself and "
                "pass --ray-address."
            )
        self._actor = ray.remote(num_cpus=1)(_Holder)
        self._placed: list[_Remote] = []

    def cores(self) -> int:
        """Number of free cores, which the cluster reports with a delay."""
        ours = len(self._placed)
        end = time.monotonic() + PATIENCE / 20
        while True:
            expected = int(self._ray.cluster_resources().get("CPU", 0)) - ours
            free = min(expected, int(self._ray.available_resources().get("CPU", 0)))
            if free == expected or time.monotonic() > end:
                return free
            time.sleep(0.1)

    def place(self, make: Callable[..., Any], arguments: Sequence[tuple]) -> list[Any]:
        """See `Executor`."""
        free = self.cores()
        if free < len(arguments):
            raise LostError(
                f"{self._where} has {free or 'no'} free core{'s' * (free > 1)} for "
                f"{len(arguments)} workers: wait, or add machines to it."
            )
        # Pickled here: it is unpickled where the modules that it needs can be found.
        contents = [self._ray.cloudpickle.dumps((make, each)) for each in arguments]
        actors = [self._actor.remote(content, [os.getcwd(), *sys.path]) for content in contents]
        objects = [_Remote(self, actor) for actor in actors]
        self._placed += objects
        there = [actor.is_there.remote() for actor in actors]
        late = self._ray.wait(there, num_returns=len(there), timeout=PATIENCE)[1]
        lost = [
            found
            for found in map(self._result, set(there) - set(late))
            if isinstance(found, LostError)
        ]
        if late or lost:
            self.release(objects)
            slow = LostError(
                f"{len(late)} of {len(there)} workers on {self._where} have not started within "
                f"{PATIENCE:.0f} seconds: look at `ray status`."
            )
            raise (*lost, slow)[0]
        return objects

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        sent = self._ray.put(arguments)
        waiting = [placed.actor.call.remote(method, sent) for placed in objects]
        return [self._result(reference) for reference in waiting]

    def _result(self, reference: Any) -> Any:
        """The result of a call, or a LostError; raises what the call raised."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            why = " ".join(str(error).split())[:200]
            return LostError(
                f"a worker on {self._where} was lost: memory may have run out, the simulator may "
                f"have crashed, its machine may be gone, or wng may not be installed there "
                f"({type(error).__name__}: {why})."
            )

    def release(self, objects: Sequence[Any]) -> None:
        """Kill their processes, which frees all they hold even if they hang."""
        self._placed = [placed for placed in self._placed if placed not in objects]
        for placed in objects if self._ray.is_initialized() else ():
            with contextlib.suppress(self._ray.exceptions.RayError):  # it, or the cluster, is gone
                self._ray.kill(placed.actor)

    def close(self) -> None:
        """Stop all objects, and the cluster if it was started here."""
        self._ray.shutdown()


class _Remote:
    """A placed object as its caller sees it."""

    def __init__(self, executor: RayExecutor, actor: Any):
        self._executor, self.actor = executor, actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            (found,) = self._executor.call([self], method, *arguments)
            if isinstance(found, LostError):
                raise found
            return found

        return call


class _Holder:
    """A placed object where it runs. Made at the first call, so that its caller sees errors."""

    def __init__(self, content: bytes, search: list[str]):
        os.environ["WNG_THREADS"] = "1"
        sys.path += [path for path in search if path not in sys.path]
        self._content, self._held = content, None

    def is_there(self) -> bool:
        return True

    def call(self, method: str, arguments: tuple) -> Any:
        try:
            if self._held is None:
                make, given = pickle.loads(self._content)
                self._held = make(*given)
            return getattr(self._held, method)(*arguments)
        except Exception as error:
            try:  # can it travel?
                pickle.loads(pickle.dumps(error))
            except Exception:
                raise RuntimeError(f"{type(error).__name__}: {error}") from None
            raise


def _import_ray() -> Any:
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_ENABLE_AUTO_CONNECT": "0",  # to a cluster of its own, after ours is closed
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ValueError(
            "--executor ray needs Ray, which is not installed: pip install 'wng[ray]'."
        ) from None
    return ray


@contextlib.contextmanager
def _as_we_like_it(ray: Any, local: bool) -> Iterator[None]:
    """Initialize Ray on loopback if it is for this machine, and restore all settings after."""
    constants, variable = ray._private.ray_constants, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    settings = {}
    before = constants.ENABLE_RAY_CLUSTER
    if local:
        # Ray then has all its processes listen on the loopback interface, here as on a Mac.
        settings[variable], constants.ENABLE_RAY_CLUSTER = "0", False
        settings["RAY_worker_niceness"] = "0"  # they do the work that this process would do
    kept = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():  # JAX warns of forks, which here only start programs
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        for name, value in kept.items():
            del os.environ[name]
            os.environ |= {} if value is None else {name: value}
        if main:  # Ray has one of its own
            signal.signal(signal.SIGTERM, handler)


def _check_reachable(address: str) -> None:
    """Raise an error if the address does not answer: Ray would keep trying forever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=10).close()


def make_executor(name: ExecutorName, address: str = "") -> Executor:
    """The executor of this name."""
    if name == "ray":
        return RayExecutor(address)
    if address:
        raise ValueError("--ray-address needs --executor ray: add it, or leave out --ray-address.")
    return LocalExecutor()
