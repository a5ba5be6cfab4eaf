"""How long commands take to start: seconds of wall-clock and CPU time, the least of some rounds.

    python benchmarks/startup.py
    PYTHONPATH=OTHER/src python benchmarks/startup.py            # another version

A command of `wng train` runs twice in each round: first with an empty cache of compiled programs,
then with what the first left there. CPU time says more on a machine that has other work.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

QUICK = (
    "import wng",
    "wng --help",
    "wng train wnes --help",
    "wng methods",
    "wng train ppo --env CartPole-v1 --gamma 2",
    "wng train ppo --env CartPol-v1",
)
TRAIN = (
    "wng train ppo --env CartPole-v1 --steps 6000",
    "wng train trpo --env Pendulum-v1 --steps 6000",
    "wng train wnpg --env Pendulum-v1 --steps 6000",
    "wng train wnes --env wng/PointWall-v0 --steps 20000",
)
Seconds = tuple[float, float]  # wall-clock and CPU


def measure(command: str, folder: Path, cache: str) -> Seconds:
    """One run of a command in a new folder."""
    words = ["-c", command]
    if command.startswith("wng "):
        words = ["-m", "wng.cli", *shlex.split(command)[1:]]
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "WNG_CACHE": cache},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def one_round() -> dict[str, Seconds]:
    """Every command, once or twice."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for command in QUICK:
            with tempfile.TemporaryDirectory() as folder:
                found[command] = measure(command, Path(folder), cache)
        for command in TRAIN:
            for times in ("first", "second"):
                with tempfile.TemporaryDirectory() as folder:
                    found[f"{command} ({times})"] = measure(command, Path(folder), cache)
    return found


def table(rounds: list[Mapping[str, Seconds]]) -> str:
    """The least of all rounds, in Markdown."""
    lines = ["| command | wall s | CPU s |", "|---|---:|---:|"]
    for command in rounds[0]:
        wall, cpu = (min(found[command][k] for found in rounds) for k in (0, 1))
        lines.append(f"| `{command}` | {wall:.2f} | {cpu:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print a table after each round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds: list[Mapping[str, Seconds]] = []
    for _ in range(parser.parse_args().rounds):
        rounds.append(one_round())
        print(table(rounds), flush=True)


if __name__ == "__main__":
    main()
