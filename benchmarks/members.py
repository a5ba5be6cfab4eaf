"""Memory and time of one `tell` that makes the members again, in a process for each strategy.

    python benchmarks/members.py                 # 10,000 members with 100,000 parameters

Peak memory is that of the whole process, JAX included.
"""

import argparse
import resource
import subprocess
import sys
import time

from wng.experiments.output import markdown_table


def measure(name: str, members: int, parameters: int) -> None:
    """Print the peak memory in GB and the seconds of one `tell`."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import wng

    es = getattr(wng, name)(jnp.zeros(parameters), population=members)
    state, rng = es.init(jax.random.key(0)), np.random.default_rng(0)
    returns, behaviors = rng.normal(size=members), rng.normal(size=(members, 2))
    start = time.perf_counter()
    jax.block_until_ready(es.tell(state, None, returns, behaviors))
    unit = 1e9 if sys.platform == "darwin" else 1e6
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, time.perf_counter() - start)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--parameters", type=int, default=100_000)
    parser.add_argument("--methods", nargs="+", default=["ES", "WNES", "WSNES"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = args.members, args.parameters
    if args.one:
        measure(args.one, *sizes)
        return
    rows = []
    for name in args.methods:
        flags = ["--members", str(sizes[0]), "--parameters", str(sizes[1]), "--one", name]
        found = subprocess.check_output([sys.executable, __file__, *flags], text=True).split()
        rows.append([name, f"{float(found[0]):.2f}", f"{float(found[1]):.0f}"])
    print(markdown_table(["strategy", "peak memory [GB]", "seconds"], rows))


if __name__ == "__main__":
    main()
