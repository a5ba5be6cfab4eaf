"""Where work is done: objects are placed with an executor and called as if they were here.

`LocalExecutor` is this process; `wng.execution.ray.RayExecutor` is a Ray cluster.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from wng.envs.workers import available_cores

RETRIES = 3  # attempts at work whose process was lost


class LostError(RuntimeError):
    """The process of a placed object has died, or its machine, or there is no core for it."""


class Executor(Protocol):
    """Where objects are placed."""

    remote: bool  # placed objects have a process, and a core, of their own

    def cores(self) -> int:
        """How many there are to use."""

    def place(self, make: Callable[..., Any], arguments: Sequence[tuple]) -> list[Any]:
        """`make(*a)` for each `a`, made there. Their methods are called as if they were here.

        Raises a LostError if there are not as many cores.
        """

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """`method` of all of them at once, with the same arguments; results in their order.

        The result of one whose process has died is a LostError. Arguments are sent to each machine
        once, however many of the objects are there.
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

    def place(self, make: Callable[..., Any], arguments: Sequence[tuple]) -> list[Any]:
        """See `Executor`."""
        return [make(*each) for each in arguments]

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        return [getattr(placed, method)(*arguments) for placed in objects]

    def release(self, objects: Sequence[Any]) -> None:
        """Close them."""
        for placed in objects:
            placed.close()

    def close(self) -> None:
        """Nothing to end."""
