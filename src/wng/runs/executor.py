"""Where work is done: objects are placed with an executor and called as if they were here.

`LocalExecutor` is this process; `wng.execution.ray.RayExecutor` is a Ray cluster.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

RETRIES = 3  # attempts at work whose process was lost


class LostError(RuntimeError):
    """The process or machine of a placed object has died, or there is no core for it."""


class Executor(Protocol):
    """Where objects are placed."""

    remote: bool  # placed objects have a process, and a core, of their own

    def cores(self) -> int:
        """Number of cores to use."""

    def place(self, make: Callable[..., Any], arguments: Sequence[tuple]) -> list[Any]:
        """Make `make(*a)` there for each `a`; methods of the results are called as if here.

        Raises a LostError if there are not enough cores.
        """

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """Call `method` of all objects at once with the same arguments; results in their order.

        If an object's process has died, its result is a LostError. Arguments are sent to each
        machine once.
        """

    def release(self, objects: Sequence[Any]) -> None:
        """Stop the objects, even while they are busy."""

    def close(self) -> None:
        """Stop everything."""


class LocalExecutor:
    """This process, in which an object may use all cores."""

    remote = False

    def cores(self) -> int:
        """Number of cores that this process may use."""
        from wng.envs.workers import available_cores

        return available_cores()

    def place(self, make: Callable[..., Any], arguments: Sequence[tuple]) -> list[Any]:
        """See `Executor`."""
        return [make(*each) for each in arguments]

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        return [getattr(placed, method)(*arguments) for placed in objects]

    def release(self, objects: Sequence[Any]) -> None:
        """Close the objects."""
        for placed in objects:
            placed.close()

    def close(self) -> None:
        """Do nothing."""
