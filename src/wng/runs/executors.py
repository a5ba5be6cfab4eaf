"""Where work is done: in this process, or on a Ray cluster, behind one interface.

Objects are placed with an executor, at most one a core, and called as if they were here. Placed
objects that follow from their arguments alone survive the loss of a machine.
"""

import contextlib
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from wng.envs.workers import available_cores

ExecutorName = Literal["local", "ray"]
RETRIES = 3  # of a call whose process was lost


class LostError(RuntimeError):
    """The process of a placed object has died, or its machine."""


class Executor(Protocol):
    """Where objects are placed."""

    remote: bool  # placed objects have a process, and a core, of their own

    def cores(self) -> int:
        """How many there are to use."""

    def place(self, make: Callable[..., Any], *arguments: Any, lasting: bool) -> Any:
        """`make(*arguments)`, made there. Its methods raise a LostError if its process dies.

        Args:
          make: a class of a module, or a function.
          arguments: of `make`.
          lasting: it follows from its arguments alone: made again if lost, and the call repeated.
        """

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """`method` of all of them at once, with the same arguments; results in their order.

        Arguments are sent to each machine once, however many of the objects are there.
        """

    def release(self, objects: Sequence[Any]) -> None:
        """End them, whatever they are at."""

    def close(self) -> None:
        """End all there is."""


class LocalExecutor:
    """In this process, where whoever is placed may use all cores."""

    remote = False

    def cores(self) -> int:
        """Those of this machine that this process may use."""
        return available_cores()

    def place(self, make: Callable[..., Any], *arguments: Any, lasting: bool) -> Any:
        """See `Executor`."""
        return make(*arguments)

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        return [getattr(placed, method)(*arguments) for placed in objects]

    def release(self, objects: Sequence[Any]) -> None:
        """Close them."""
        for placed in objects:
            placed.close()

    def close(self) -> None:
        """Nothing to end."""


class RayExecutor:
    """On a Ray cluster, each object an actor with one core.

    Args:
      address: of a cluster, such as "auto" or "10.0.0.1:6379"; by default one is started here, for
        this process alone, that listens on the loopback interface only.
      cores: of the cluster that is started here; by default all.
    """

    remote = True

    def __init__(self, address: str = "", cores: int | None = None):
        self._ray = ray = _import_ray(local=not address)
        self._where = f"the Ray cluster at {address}" if address else "the Ray cluster"
        how: dict[str, Any] = {"address": address}
        if not address:
            how = {"address": "local", "num_cpus": cores or available_cores()}
            how |= {"include_dashboard": False}
        try:
            _check_reachable(address)
            with warnings.catch_warnings():  # JAX warns of forks, which here only start programs
                warnings.simplefilter("ignore", RuntimeWarning)
                ray.init(**how, log_to_driver=False, logging_level="FATAL")
        except Exception as error:  # of many kinds, with advice over many lines
            reason = next((line for line in str(error).splitlines() if line), "")
            raise ValueError(
                f"no Ray cluster can be reached{f' at {address}' if address else ''} "
                f"({type(error).__name__}: {reason.rstrip('.')}): start one with `ray start --head`"
                " and give its address, or leave out --ray-address."
            ) from error
        self._actor = ray.remote(num_cpus=1)(_Holder)

    def cores(self) -> int:
        """The cores that are free."""
        free = int(self._ray.available_resources().get("CPU", 0))
        if not free:
            raise ValueError(f"{self._where} has no free core: wait, or add machines to it.")
        return free

    def place(self, make: Callable[..., Any], *arguments: Any, lasting: bool) -> Any:
        """See `Executor`."""
        often = {"max_restarts": -1, "max_task_retries": RETRIES} if lasting else {}
        # Pickled here: it is unpickled where the modules that it needs can be found.
        content = self._ray.cloudpickle.dumps((make, arguments))
        return _Remote(self, self._actor.options(**often).remote(content, [os.getcwd(), *sys.path]))

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        sent = self._ray.put(arguments)
        waiting = [placed.actor.call.remote(method, sent) for placed in objects]
        return [self.result(reference) for reference in waiting]

    def result(self, reference: Any) -> Any:
        """What a call gave, or the error that it ended in."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.RayActorError, errors.RaySystemError, errors.ObjectLostError) as error:
            raise LostError(
                f"a worker on {self._where} was lost, again and again: memory may have run out, "
                "the simulator may crash, or its machine is gone."
            ) from error

    def release(self, objects: Sequence[Any]) -> None:
        """End their processes, which frees all they hold: one that hangs could not be asked to."""
        for placed in objects:
            with contextlib.suppress(self._ray.exceptions.RayError):  # it, or the cluster, is gone
                self._ray.kill(placed.actor)

    def close(self) -> None:
        """End all objects, and the cluster if it was started here."""
        self._ray.shutdown()


class _Remote:
    """A placed object, as its caller sees it."""

    def __init__(self, executor: RayExecutor, actor: Any):
        self._executor, self.actor = executor, actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: self._executor.call([self], method, *arguments)[0]


class _Holder:
    """A placed object, where it is. Made when it is called: its caller then sees what fails."""

    def __init__(self, content: bytes, search: list[str]):
        os.environ["WNG_THREADS"] = "1"
        sys.path += [path for path in search if path not in sys.path]
        self._content, self._held = content, None

    def call(self, method: str, arguments: tuple) -> Any:
        if self._held is None:
            make, given = pickle.loads(self._content)
            self._held = make(*given)
        return getattr(self._held, method)(*arguments)


def _import_ray(local: bool) -> Any:
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    if local:
        # Ray then has all its processes listen on the loopback interface, here as on a Mac.
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        settings["RAY_worker_niceness"] = "0"  # they do the work that this process would do
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ValueError(
            "--executor ray needs Ray, which is not installed: pip install 'wng[ray]'."
        ) from None
    return ray


def _check_reachable(address: str) -> None:
    """Raise if nobody answers there: Ray would go on asking for ever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=10).close()


def make_executor(name: ExecutorName, address: str = "") -> Executor:
    """The executor of this name."""
    if name == "ray":
        return RayExecutor(address)
    if address:
        raise ValueError("--ray-address is of use with --executor ray only: add that.")
    return LocalExecutor()
