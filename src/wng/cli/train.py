"""`wng train`: one run, or several seeds at once."""

import math
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from wng.agents.agent import Agent
from wng.agents.registry import GRADIENT, METHODS, Family, family_of
from wng.agents.run import Job, Status, run_job, run_name
from wng.cli.console import command_line, console, exit_stopped, note
from wng.cli.flags import given_settings, with_settings
from wng.execution.ray import ExecutorName, make_executor
from wng.policy_gradient.methods import nearest_method
from wng.runs.directory import RunDirectory
from wng.runs.executor import Executor
from wng.runs.settings import Settings, find_method
from wng.runs.training import check_evaluation


@dataclass(frozen=True)
class Train:
    """Train an agent: `wng train wnpg --env Hopper-v5`. `wng methods` lists the methods.

    The folder OUT/<env>/<method>/seed<k> keeps the run: its configuration, metrics.csv, TensorBoard
    events and checkpoints. Ctrl-C saves and stops; the same command with --resume continues.

    The method comes first. Policy gradients are pg, ppo, ppokl, npg, trpo, bgpg, wnpg, bgwnpg and
    wtrpo. Evolution strategies are es, esclip, nsres, bges, wnes, bgwnes, nsrwnes, snes and wsnes;
    for their flags, see `wng train wnes --help`. To combine parts yourself, leave out the method,
    as in this command: `wng train --proximity clip --geometry wasserstein --env Hopper-v5`.
    """

    env: str
    """Environment: a Gymnasium id such as Hopper-v5 or wng/PointWall-v0, module:id, or an
    environment written in JAX: gymnax/NAME, brax/NAME, playground/NAME, or module:name."""
    steps: float = 300_000
    """Number of environment steps in all."""
    eval_every: float = 0
    """Number of environment steps between evaluations, which fill the column return_deterministic
    of metrics.csv and keep the best checkpoint; 0 for none. There is also one at the end."""
    eval_episodes: int = 10
    """Number of whole episodes in an evaluation, with the most likely actions (policy gradients) or
    the mean policy (evolution). They start in the same states for every method and seed."""
    seed: int = 0
    """Random seed."""
    seeds: str = ""
    """Several random seeds, such as 0-4 or 0,3,7, in place of --seed. They run in parallel on all
    cores; in a JAX environment, they train side by side in one program."""
    settings: Settings = "tuned"
    """Preset of all settings below: tuned (the best in our measurements), paper (the paper's text)
    or released (the paper's code)."""
    out: Path = Path("runs")
    """Folder in which runs are kept."""
    resume: bool = False
    """Continue the run in this folder from its last checkpoint, or start it if there is none."""
    quiet: bool = False
    """Show no progress bar, and do not evaluate the policy after training."""
    executor: ExecutorName = "local"
    """Where the work is done: on this machine (local) or on a Ray cluster (ray), which runs
    several seeds or the members of an evolution strategy. The result is the same."""
    ray_address: str = ""
    """Address of the Ray cluster, such as auto or 10.0.0.1:6379. If it is empty, wng starts a
    cluster on this machine."""

    method: ClassVar[str] = ""

    @classmethod
    def for_method(cls, method: str, helps: bool) -> type:
        """The command with the flags of the method's family, and their presets if it `helps`."""
        if method:
            find_method(method, METHODS)
        return with_settings(cls, family_of(method), method, helps)

    @property
    def family(self) -> Family:
        """Policy gradients or evolution strategies."""
        return family_of(self.method)

    @cached_property
    def config(self) -> Any:
        """The preset, and on top what was typed."""
        given = given_settings(self, self.family)
        axes = {name: given.get(name, "") for name in ("proximity", "geometry", "step")}
        base = self.method or nearest_method(**axes)
        return self.family.preset(base, self.settings, self.env, **given)

    def job(self, seed: int) -> Job:
        """The run of one seed."""
        return Job(
            self.env,
            run_name(self.family, self.method, self.config),
            seed,
            int(self.steps),
            self.config,
            self.out,
            self.resume,
            command_line(),
            int(self.eval_every),
            self.eval_episodes,
        )

    def run(self) -> None:
        """Train."""
        if not (math.isfinite(self.steps) and self.steps >= 1):
            raise ValueError(f"--steps must be at least 1, got {self.steps:g}.")
        check_evaluation(self.eval_every, self.eval_episodes)
        job = self.job(self.seed)
        if self.executor == "ray" and not self.seeds and not self.family.distributes:
            raise ValueError(
                f"--executor ray cannot distribute a single run of {job.method}: add --seeds 0-4, "
                "for example, or leave out --executor."
            )
        executor = make_executor(self.executor, self.ray_address)
        try:
            if self.seeds:
                from wng.cli.seeds import run_seeds

                run_seeds(self, executor)
            else:
                self.run_one(job, executor)
        finally:
            executor.close()

    def run_one(self, job: Job, executor: Executor) -> None:
        """Train one seed in this process."""
        outcome = run_job(
            job,
            executor=executor,
            progress=not self.quiet,
            say=note,
            conclude=None if self.quiet else lambda agent, run: conclude(job, agent, run),
        )
        if outcome.status is Status.STOPPED:
            exit_stopped(outcome.message, "--resume")


def conclude(job: Job, agent: Agent, run: RunDirectory) -> None:
    """Print what was learned, where it is, and what to do next."""
    from wng.experiments.drawing import draw_curves

    with console.status("Evaluating the policy before and after training, 10 episodes each"):
        before = agent.evaluate(10, untrained=True)
        after = agent.evaluate(10)
        pictures = f"  curve       {draw_curves([run.path], run.path / 'curve.png')}\n"
        looks = ["video"]
        if (run.path / "maps").exists():
            from wng.experiments.es.maps import draw_map

            pictures += f"  map         {draw_map(run, run.path / 'map.png')}\n"
            looks.append("map")
    console.print(
        f"\n[bold]{agent.title} on {agent.env}[/]: return {before.mean():.1f} ± {before.std():.1f} "
        f"before, [bold]{after.mean():.1f} ± {after.std():.1f}[/] after {agent.steps:,} steps "
        "(10 episodes, most likely action).",
        highlight=False,
        soft_wrap=True,
    )
    elsewhere = "" if job.out == Path("runs") else f" --out {shlex.quote(str(job.out))}"
    usual, ours = ("ppo", "wtrpo") if job.family is GRADIENT else ("es", "wnes")
    other = usual if job.method != usual else ours
    best = f"  best        {run.best}\n" if run.best.exists() else ""
    note(
        f"{pictures}  checkpoint  {run.checkpoints}\n{best}"
        "Next:\n"
        + "".join(f"  wng {look} {shlex.quote(str(run.path))}\n" for look in looks)
        + f"  wng train {other} --env {job.env}{elsewhere}\n"
        f"  wng plot {shlex.quote(str(run.path.parent.parent))}/*/seed*"
    )
