"""Two runs under random faults, for an hour: what they lose, and what they leave behind.

    python benchmarks/soak.py --minutes 60 --out results/faults

A policy gradient with its environments in worker processes, and an evolution strategy on a local
Ray cluster, each the `wng train … --resume` of a user. At random moments one of them is killed,
interrupted, suspended, loses a worker process, has a bit of its newest checkpoint flipped, or half
a line at the end of its metrics; whatever ended is started again. Measured: iterations that are
missing or double, resident memory and open files over the life of a process, processes that
outlive their run. Writes soak.jsonl while it goes, then soak.md and soak.png.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from rich.progress import Progress

from wng.experiments.output import markdown_table
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics

WARM_UP = 3  # iterations of a process's life until everything is compiled
GRACE = 120.0  # seconds that processes have to end after their run
WORKERS = {"pg": "envs/worker.py", "es": "ray::_Holder"}  # in the command lines of workers
COMMANDS = {
    "pg": "wnpg --env Pendulum-v1 --backend workers --num-envs 4 --rollout 1024 --minibatch 256",
    "es": "bgwnes --env Pendulum-v1 --population 40 --num-basis 10 --executor ray",
}
FAULTS = (
    "kill",
    "interrupt",
    "terminate",
    "lose a worker",
    "suspend",
    "flip a bit",
    "tear metrics",
)


@dataclass
class Soaked:
    """A run, and the process that has it at the moment."""

    kind: str
    root: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: Any = None
    started: float = 0.0
    lives: int = 0
    next_fault: float = 0.0

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self.root / "Pendulum-v1" / COMMANDS[self.kind].split()[0] / "seed0"

    def start(self) -> None:
        """Start it, or go on with it."""
        words = [*COMMANDS[self.kind].split(), "--steps", "1e12", "--out", str(self.root)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wng.cli", "train", *words, "--resume"],
            env={**os.environ, "WNG_SOAK": self.token},
            stdout=subprocess.DEVNULL,
            stderr=(self.root / f"{self.kind}.err").open("ab"),
        )
        self.started, self.lives = time.monotonic(), self.lives + 1

    def processes(self) -> dict[int, str]:
        """Command lines of all processes that were started by this run."""
        mark, found = f"WNG_SOAK={self.token}".encode(), {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it has ended, or is not ours
                continue
        return found

    def workers(self) -> list[int]:
        """Its worker processes."""
        return [pid for pid, words in self.processes().items() if WORKERS[self.kind] in words]

    def rows(self) -> int:
        """Lines of metrics."""
        path = self.folder / "metrics.csv"
        return path.read_bytes().count(b"\n") if path.exists() else 0


def inflict(run: Soaked, fault: str, chance: random.Random) -> bool:
    """Do it; whether the process is to end of it."""
    if fault in ("interrupt", "terminate"):
        run.process.send_signal(signal.SIGINT if fault == "interrupt" else signal.SIGTERM)
        return True
    if fault == "lose a worker":
        os.kill(chance.choice(run.workers()), signal.SIGKILL)
        return run.kind == "pg"  # Ray's are replaced
    if fault == "suspend":
        pid = chance.choice([run.process.pid, *run.workers()])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(pid, signal.SIGCONT)
        return False
    run.process.kill()
    run.process.wait()
    if fault == "flip a bit":
        newest = checkpoint.saved(run.folder / "checkpoints")[0]
        raw = bytearray(newest.read_bytes())
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        newest.write_bytes(raw)
    elif fault == "tear metrics":
        with (run.folder / "metrics.csv").open("ab") as file:
            file.write(b"123456,7.0,8.")
    return True


def measure(run: Soaked) -> dict[str, float]:
    """Resident memory and open files of the process itself."""
    folder = Path(f"/proc/{run.process.pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return {
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "files": len(list((folder / "fd").iterdir())),
        "age": time.monotonic() - run.started,
        "life": run.lives,
        "iterations": run.rows() - 1,
    }


def ended(run: Soaked, fault: str, note: Any) -> None:
    """Wait for the end, see that it is one of those expected and that nobody is left behind."""
    code = run.process.wait(timeout=120)
    expected = {"interrupt": 130, "terminate": 130, "lose a worker": 2}.get(fault, -signal.SIGKILL)
    begin = time.monotonic()
    while (left := run.processes()) and time.monotonic() < begin + GRACE:
        time.sleep(0.2)
    note(
        event="end",
        code=code,
        as_expected=code == expected,
        left_behind=[words.split()[0] for words in left.values()],
        seconds_to_vanish=round(time.monotonic() - begin, 1),
    )
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def soak(runs: list[Soaked], minutes: float, every: float, seed: int, log: Path) -> None:
    """Start, disturb, start again."""
    chance, begin = random.Random(seed), time.monotonic()
    next_look = 0.0
    with log.open("w") as file, Progress() as progress:
        bar = progress.add_task("soak", total=60 * minutes)

        def note(run: Soaked, **what: Any) -> None:
            line = {"time": round(time.monotonic() - begin, 1), "run": run.kind, **what}
            file.write(json.dumps(line) + "\n")
            file.flush()

        for run in runs:
            run.start()
            run.next_fault = chance.expovariate(1 / every)
        while (now := time.monotonic() - begin) < 60 * minutes:
            progress.update(bar, completed=now)
            time.sleep(0.5)
            for run in runs:
                if run.process.poll() is not None:
                    note(run, event="end", code=run.process.returncode, as_expected=False)
                    run.start()
                elif now > next_look:
                    note(run, event="look", **measure(run))
                if now > run.next_fault and _under_way(run):
                    fault = chance.choice(FAULTS)
                    fatal = inflict(run, fault, chance)
                    note(run, event="fault", fault=fault, iterations=run.rows() - 1)
                    if fatal:
                        ended(run, fault, lambda run=run, **what: note(run, **what))
                        run.start()
                    run.next_fault = now + chance.expovariate(1 / every)
            next_look = now + 5 if now > next_look else next_look
        for run in runs:
            while not _under_way(run):
                time.sleep(1)
            run.process.send_signal(signal.SIGINT)
            ended(run, "interrupt", lambda run=run, **what: note(run, **what))


def _under_way(run: Soaked) -> bool:
    """It has written something in this life, and has two checkpoints: one may be damaged."""
    path = run.folder / "metrics.csv"
    if not path.exists() or len(checkpoint.saved(run.folder / "checkpoints")) < 2:
        return False
    return path.stat().st_mtime > time.time() - (time.monotonic() - run.started) + 1


def slope(looks: list[dict[str, Any]], what: str) -> tuple[float, float]:
    """Growth an hour within lives, after the warm-up, and its standard error."""
    t, y = [], []
    for life in {look["life"] for look in looks}:
        rows = [k for k in looks if k["life"] == life]
        rows = [k for k in rows if k["iterations"] >= rows[0]["iterations"] + WARM_UP]
        if len(rows) > 3:
            t.append(np.array([k["age"] / 3600 for k in rows]))
            y.append(np.array([k[what] for k in rows]))
    if not t:
        return np.nan, np.nan
    x, z = (np.concatenate([part - part.mean() for part in parts]) for parts in (t, y))
    b = float(x @ z / (x @ x))
    left = len(x) - len(t) - 1
    error = float(np.sqrt(((z - b * x) ** 2).sum() / max(left, 1) / (x @ x)))
    return b, error


def report(runs: list[Soaked], log: Path, out: Path, command: str) -> None:
    """The table and the picture."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    table, faults = [], []
    figure, axes = plt.subplots(len(runs), 1, figsize=(9, 5), sharex=True, layout="constrained")
    for run, axis in zip(runs, axes, strict=True):
        ours = [line for line in lines if line["run"] == run.kind]
        looks = [line for line in ours if line["event"] == "look"]
        struck = [line for line in ours if line["event"] == "fault"]
        ends = [line for line in ours if line["event"] == "end"]
        numbers = read_metrics(run.folder)["iteration"]
        _, info, _ = checkpoint.read_latest(run.folder / "checkpoints")
        whole = np.array_equal(numbers, np.arange(1, info["iteration"] + 1))
        memory, memory_error = slope(looks, "megabytes")
        files, _ = slope(looks, "files")
        table.append(
            [
                f"`wng train {COMMANDS[run.kind]}`",
                f"{int(info['iteration']):,}",
                "each exactly once" if whole else "**not each once**",
                f"{len(struck)}",
                f"{sum(e['as_expected'] for e in ends)} of {len(ends)}",
                f"{sum(len(e.get('left_behind', [])) for e in ends)} (the slowest ended after "
                f"{max(e.get('seconds_to_vanish', 0) for e in ends):.0f} s)",
                f"{memory:+.1f} ± {memory_error:.1f}",
                f"{files:+.2f}",
            ]
        )
        for fault in FAULTS:
            count = sum(line["fault"] == fault for line in struck)
            faults.append([run.kind, fault, f"{count}"])
        for life in sorted({k["life"] for k in looks}):
            part = [k for k in looks if k["life"] == life]
            axis.plot(
                [k["time"] / 60 for k in part], [k["megabytes"] for k in part], color="tab:blue"
            )
        for line in struck:
            axis.axvline(line["time"] / 60, color="tab:red", alpha=0.4, linewidth=0.8)
        axis.set_ylim(bottom=0)
        axis.set_ylabel("resident memory [MB]")
        axis.set_title(f"wng train {COMMANDS[run.kind].split()[0]}: red lines are faults")
    axes[-1].set_xlabel("minutes")
    figure.savefig(out / "soak.png", dpi=120)
    minutes = max(line["time"] for line in lines) / 60
    head = ["run", "iterations", "in metrics.csv", "faults", "ends as expected",
            "processes left behind", "memory [MB an hour]", "open files [an hour]"]  # fmt: skip
    text = [
        f"# A soak of {minutes:.0f} minutes",
        f"`{command}`",
        markdown_table(head, table),
        f"Growth of memory and of open files is within the life of a process, after its first "
        f"{WARM_UP} iterations, by least squares over all lives (± standard error).",
        "![resident memory](soak.png)",
        markdown_table(["run", "fault", "times"], faults),
    ]
    (out / "soak.md").write_text("\n\n".join(text) + "\n")


def main() -> None:
    """Soak and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=120, help="mean seconds between faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/soak"))
    parser.add_argument("--out", type=Path, default=Path("results/faults"))
    parser.add_argument("--report-only", metavar="COMMAND", help="of a soak by this command")
    args = parser.parse_args()
    for folder in (args.out, args.runs):
        folder.mkdir(parents=True, exist_ok=True)
    runs = [Soaked(kind, args.runs) for kind in COMMANDS]
    if args.report_only:
        report(runs, args.out / "soak.jsonl", args.out, args.report_only)
        return
    if list(args.runs.iterdir()):
        raise SystemExit(f"soak: {args.runs} is not empty: delete it, or choose another --runs.")
    soak(runs, args.minutes, args.every, args.seed, args.out / "soak.jsonl")
    report(runs, args.out / "soak.jsonl", args.out, " ".join(["python", *sys.argv]))
    print((args.out / "soak.md").read_text())


if __name__ == "__main__":
    main()
