import atexit
import contextlib
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

with contextlib.suppress(ValueError):  # in the main thread only
    # Started in the background, a shell has us ignore Ctrl-C, and so would all children of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests compile the same programs again: all test processes and what they start share them.
if "PYTEST_XDIST_WORKER" in os.environ:
    compiled = os.environ["JAX_COMPILATION_CACHE_DIR"]  # of the process that started this one
else:
    compiled = tempfile.mkdtemp(prefix="wng-tests-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", compiled)
jax.config.update("jax_traceback_in_locations_limit", 0)  # lowered sooner
gc.set_threshold(200_000, 50, 1000)  # JAX makes many objects that stay
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

# Compiled in a sixth of the time: the programs of tests are too small to profit from more.
QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly, unless XLA_FLAGS says otherwise or slow tests are run."""
    if "not slow" in config.option.markexpr:
        os.environ.setdefault("XLA_FLAGS", QUICK)


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Free compiled programs: each maps memory, and Linux allows a process some 65,000 maps."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield
