"""`wng train`: one run, or several seeds at once."""

import contextlib
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from wng.cli.console import console
from wng.envs.workers import available_cores
from wng.names import nearest
from wng.policy_gradient.config import CHOICES, Config
from wng.policy_gradient.methods import METHODS, Settings, find_method, nearest_method, preset
from wng.runs.directory import RunDirectory, safe_name
from wng.runs.metrics import read_metrics
from wng.runs.progress import TrainingProgress


@dataclass(frozen=True)
class Train:
    """Train an agent: `wng train wnpg --env Hopper-v5`. `wng methods` lists the methods.

    The run is kept in OUT/<env>/<method>/seed<k>: the configuration, metrics.csv, TensorBoard
    events, checkpoints. Ctrl-C saves and stops; the same command with --resume goes on.
    """

    method: Annotated[str, tyro.conf.Positional] = ""
    """pg, ppo, ppokl, npg, trpo, bgpg, wnpg, bgwnpg or wtrpo. Leave it out to combine your own:
    --proximity clip --geometry wasserstein --step optimizer."""
    env: str = ""
    """A Gymnasium id, such as Hopper-v5, or module:id."""
    steps: float = 300_000
    """Environment steps in all."""
    seed: int = 0
    """Of everything random."""
    seeds: str = ""
    """Several seeds on all cores, such as 0-4 or 0,3,7, in place of --seed."""
    settings: Settings = "tuned"
    """Defaults of all that follows: tuned, what works best here; paper, the paper's text;
    released, the paper's code."""
    out: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Go on with the run that is there (start it if there is none)."""
    config: Config = field(default_factory=Config)

    @classmethod
    def before(cls, flags: list[str]) -> "Train":
        """The defaults, which the method and --settings choose; so --help shows the real ones."""
        given = dict(_pairs(flags))
        for name in ("settings", *CHOICES):
            options = ("tuned", "paper", "released") if name == "settings" else CHOICES[name]
            if name in given and given[name] not in options:
                raise ValueError(
                    f"--{name} '{given[name]}' is unknown: did you mean "
                    f"'{nearest(given[name], options)}'?"
                )
        method = flags[0] if flags and not flags[0].startswith("-") else ""
        axes = [given.get(axis, "") for axis in ("proximity", "geometry", "step")]
        if method:
            find_method(method)
        base = method or nearest_method(*axes)
        settings: Any = given.get("settings", "tuned")
        return cls(method=method, settings=settings, config=preset(base, settings))

    @property
    def name(self) -> str:
        """What the run is called: the method, or the axes if they are no method's."""
        config = self.config
        axes = (config.proximity, config.geometry, config.step)
        if self.method:
            method = find_method(self.method)
            if axes == (method.proximity, method.geometry, method.step):
                return method.key
        named = [k for k, m in METHODS.items() if (m.proximity, m.geometry, m.step) == axes]
        return named[0] if named and not self.method else "_".join(axes)

    def run(self) -> None:
        """Train."""
        if not self.env:
            raise ValueError(
                "--env is missing: wng train wnpg --env InvertedDoublePendulum-v5, for example."
            )
        if not (np.isfinite(self.steps) and self.steps >= 1):
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        if self.seeds:
            run_seeds(self)
        else:
            run_one(self)

    def folder(self, seed: int) -> Path:
        """Where a run is kept."""
        return self.out / safe_name(self.env) / safe_name(self.name) / f"seed{seed}"


def run_one(train: Train) -> None:
    """One seed, in this process."""
    from wng.policy_gradient.agent import Agent

    record = {"steps": int(train.steps), **dataclasses.asdict(train.config)}
    folder = train.folder(train.seed)
    quiet = "WNG_QUIET" in os.environ  # one of several seeds, whose parent shows the progress
    with console.status("Preparing the environments") if not quiet else contextlib.nullcontext():
        agent = Agent(train.env, train.name, train.seed, config=train.config)
        if train.resume and (folder / "config.json").exists():
            run = RunDirectory.open(folder)
            run.check_config(record, allowed=("steps",))
        else:
            run = RunDirectory.create(train.out, train.env, train.name, train.seed, record)
        with run.lock():
            for problem in agent.restore(run):
                console.print(f"[yellow]Note:[/] {problem}", highlight=False)
    resumed = agent.steps
    try:
        agent.learn(max(0, int(train.steps) - resumed), run=run, progress=not quiet)
        if not quiet:
            conclude(train, agent, run, resumed)
    finally:
        agent.close()


def conclude(train: Train, agent: Any, run: RunDirectory, resumed: int) -> None:
    """What was learned, where it is, what to do next."""
    again = f"wng train {shlex.join(sys.argv[2:])}".replace(" --resume", "")
    if agent.steps < train.steps:
        console.print(
            f"\nStopped at {agent.steps:,} of {int(train.steps):,} steps; nothing is lost. "
            f"Go on with\n  {again} --resume",
            highlight=False,
        )
        return
    from wng.cli.look import draw_curves

    elsewhere = "" if train.out == Path("runs") else f" --out {train.out}"
    with console.status("Evaluating before and after, 10 episodes each"):
        before = agent.evaluate(10, untrained=True)
        after = agent.evaluate(10)
        picture = draw_curves([run.path], run.path / "curve.png")
    console.print(
        f"\n[bold]{agent.title} on {agent.env}[/]: return {before.mean():.1f} ± {before.std():.1f} "
        f"before, [bold]{after.mean():.1f} ± {after.std():.1f}[/] after {agent.steps:,} steps "
        "(10 episodes, most likely action).\n"
        f"  curve       {picture}\n  checkpoint  {run.checkpoints}\n"
        "Next:\n"
        f"  wng video {run.path}\n"
        f"  wng train ppo --env {train.env}{elsewhere}"
        f"\n  wng plot {run.path.parent.parent}/*/seed*",
        highlight=False,
        soft_wrap=True,
    )


def run_seeds(train: Train) -> None:
    """Several seeds, each a process of its own, as many at a time as there are cores.

    Processes are not tied to cores: on another number of cores XLA rounds otherwise, and a seed
    should come out the same alone and in company.
    """
    seeds = parse_seeds(train.seeds)
    words = _without(sys.argv[1:], "seeds")
    waiting, failed = list(seeds), []
    running: dict[int, subprocess.Popen[bytes]] = {}
    logs: dict[int, Path] = {}
    for seed in seeds:  # refuse before anything has started
        if (train.folder(seed) / "config.json").exists() and not train.resume:
            raise ValueError(
                f"{train.folder(seed)} already holds a run: add --resume to continue it, choose "
                "another folder with --out, or delete it."
            )
    with TrainingProgress() as progress:
        for seed in seeds:
            progress.add(f"{train.name} seed {seed}", int(train.steps))
        while waiting or running:
            while waiting and len(running) < available_cores():
                seed = waiting.pop(0)
                folder = train.folder(seed)
                folder.mkdir(parents=True, exist_ok=True)
                logs[seed] = folder / "log.txt"
                with logs[seed].open("w") as log:
                    running[seed] = subprocess.Popen(
                        [sys.executable, "-m", "wng.cli", *words, "--seed", str(seed)],
                        env={**os.environ, "WNG_QUIET": "1"},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
            try:
                time.sleep(0.5)
            except KeyboardInterrupt:  # the terminal has sent it to the children too
                waiting.clear()
            for seed, process in list(running.items()):
                _show(progress, train, seed)
                if process.poll() is not None:
                    del running[seed]
                    if process.returncode:
                        failed.append(seed)
    for seed in failed:
        said = logs[seed].read_text().strip().splitlines()
        console.print(f"seed {seed} failed: {said[-1] if said else logs[seed]}", highlight=False)
    parent = train.folder(seeds[0]).parent
    console.print(f"\nNext:\n  wng plot {parent.parent}/*/seed*", highlight=False)
    if failed:
        raise ValueError(f"{len(failed)} of {len(seeds)} seeds failed; their logs are in {parent}.")


def _show(progress: TrainingProgress, train: Train, seed: int) -> None:
    try:
        rows = read_metrics(train.folder(seed))
    except (ValueError, OSError):
        return
    if len(rows.get("steps", [])):
        fields = {"return": float(rows["return_recent"][-1]), "KL": float(rows["kl"][-1])}
        progress.update(f"{train.name} seed {seed}", int(rows["steps"][-1]), fields)


def parse_seeds(text: str) -> list[int]:
    """'0-4' or '0,3,7' as a list."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"--seeds must look like 0-4 or 0,3,7, got '{text}'.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(seeds))


def _pairs(flags: list[str]) -> list[tuple[str, str]]:
    """(name, value) of flags as typed: --name value, --name=value."""
    found = []
    for here, after in zip(flags, [*flags[1:], ""], strict=True):
        if here.startswith("--"):
            name, _, value = here[2:].partition("=")
            found.append((name.replace("-", "_"), value or after))
    return found


def _without(words: list[str], name: str) -> list[str]:
    """The command line without --name and its value."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == f"--{name}":
            skip = True
        elif not word.startswith(f"--{name}="):
            kept.append(word)
    return kept
