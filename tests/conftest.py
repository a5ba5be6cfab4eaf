import contextlib
import signal
from collections.abc import Iterator

import jax
import pytest

with contextlib.suppress(ValueError):  # in the main thread only
    # Started in the background, a shell has us ignore Ctrl-C, and so would all children of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield
