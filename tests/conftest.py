import atexit
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import jax
import pytest

with contextlib.suppress(ValueError):  # in the main thread only
    # Started in the background, a shell has us ignore Ctrl-C, and so would all children of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests compile the same programs again: each test process remembers its own.
compiled = tempfile.mkdtemp(prefix="wng-tests-")
atexit.register(shutil.rmtree, compiled, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", compiled)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
# And so do the processes that they start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield
