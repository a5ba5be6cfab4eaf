"""Seeds side by side: a run for each, in one program."""

from pathlib import Path

import jax
import numpy as np
import pytest

import wng
from wng.agents.registry import EVOLUTION, GRADIENT
from wng.agents.run import Job, Outcome, Status, run_job
from wng.envs import resolve
from wng.evolution.methods import preset as evolution_preset
from wng.execution.blocks import in_blocks
from wng.policy_gradient.block import TrainerBlock
from wng.policy_gradient.methods import preset
from wng.runs.metrics import read_metrics

TINY = {
    "hidden": (8,),
    "num_envs": 4,
    "rollout": 64,
    "minibatch": 32,
    "value_minibatch": 32,
    "epochs": 1,
    "value_epochs": 1,
}


def job(out: Path, env: str = "wng/PointWall-v0", steps: int = 128, **more) -> Job:
    return Job(env, "ppo", 4, steps, preset("ppo", **TINY), out, block=(4, 6), **more)


def test_each_seed_has_a_run_that_resumes(tmp_path: Path) -> None:
    said: list[str] = []
    assert run_job(job(tmp_path), progress=False).status is Status.FINISHED
    more = job(tmp_path, steps=256, resume=True)
    assert run_job(more, progress=False, say=said.append).status is Status.FINISHED
    assert said == ["Resuming at step 128."] * 2
    for each in more.jobs:
        assert read_metrics(each.folder)["steps"].tolist() == [64, 128, 192, 256]
        agent = wng.load(each.folder)
        assert (agent.seed, agent.steps) == (each.seed, 256)
        with pytest.warns(UserWarning, match="will not match an uninterrupted run"):
            agent.learn(64, progress=False)
        agent.learn(64, progress=False).close()  # said once
    returns = [read_metrics(each.folder)["kl"] for each in more.jobs]
    assert not np.array_equal(*returns)
    with pytest.raises(ValueError, match="already holds a run"):
        run_job(job(tmp_path), progress=False)


def test_a_seed_that_fails_is_named(tmp_path: Path) -> None:
    outcome = run_job(job(tmp_path, "jax_tasks:broken"), progress=False)
    assert outcome.status is Status.FAILED
    assert "seed 4: environment 0 of jax_tasks:broken returned a reward" in outcome.message
    assert "seed 6: " in outcome.message
    assert outcome.failed == (4, 6)


def test_a_seed_that_cannot_be_resumed_does_not_stop_the_others(tmp_path: Path) -> None:
    assert run_job(job(tmp_path), progress=False).status is Status.FINISHED
    more = job(tmp_path, steps=256, resume=True)
    for checkpoint in (more.jobs[0].folder / "checkpoints").iterdir():
        checkpoint.write_bytes(b"damaged")
    said: list[str] = []
    outcome = run_job(more, progress=False, say=said.append)
    assert (outcome.status, outcome.failed) == (Status.FAILED, (4,))
    assert outcome.message.startswith("seed 4: ")
    assert any("will not match an uninterrupted run" in line for line in said)
    assert read_metrics(more.jobs[0].folder)["steps"].tolist() == [64, 128]
    assert read_metrics(more.jobs[1].folder)["steps"].tolist() == [64, 128, 192, 256]


def test_an_outcome_concerns_the_seeds_that_failed() -> None:
    some = Outcome(Status.FAILED, "seed 6: no", (6,))
    assert [some.concerns(seed) for seed in (4, 6)] == [False, True]
    assert Outcome(Status.DIED).concerns(4)


def test_seeds_whose_environments_are_not_equal_are_trained_in_turn(
    tmp_path: Path, monkeypatch
) -> None:
    def refuse(*_) -> None:
        raise ValueError("seeds can only be trained side by side in one JAX environment")

    monkeypatch.setattr(TrainerBlock, "__init__", refuse)
    assert run_job(job(tmp_path), progress=False) == Outcome(Status.FINISHED)
    for each in job(tmp_path).jobs:
        assert read_metrics(each.folder)["steps"].tolist() == [64, 128]
    failed = run_job(job(tmp_path, "jax_tasks:broken"), progress=False)
    assert (failed.status, failed.failed) == (Status.FAILED, (4, 6))


def test_blocks_fill_the_cores_and_fit_into_memory(tmp_path: Path) -> None:
    config = preset("ppo", **TINY)
    jobs = [Job("wng/PointWall-v0", "ppo", seed, 64, config, tmp_path) for seed in range(10)]
    two = in_blocks(jobs, cores=2, size=1)
    assert [unit.block for unit in two] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert [each.seed for unit in two for each in unit.jobs] == list(range(10))
    assert in_blocks(jobs[:1], cores=2, size=1) == jobs[:1]
    assert in_blocks(jobs, cores=2, size=0) == jobs  # no blocks in such an environment
    assert in_blocks(jobs, cores=20, size=1) == jobs
    assert len(in_blocks(jobs, cores=0, size=1)) == 1
    assert in_blocks(jobs, cores=1, size=10**12) == jobs  # one at a time
    assert Job.from_json(two[0].to_json()) == two[0]


def test_the_size_of_a_seed_counts_jacobian_and_environments() -> None:
    env = resolve("wng/PointWall-v0", "jax")

    def size(method: str, **settings) -> int:
        return GRADIENT.seed_size(preset(method, **TINY | settings), env)

    weights = env.spec.observation_size * 8 + 8 * env.spec.action_size
    kernel = {"geometry": "wasserstein"}
    more = size("wnpg", num_basis=700, **kernel) - size("wnpg", num_basis=600, **kernel)
    assert more == 2 * 100 * weights
    assert size("ppo", num_basis=700) == size("ppo", num_basis=600)
    assert env.jax_env is not None
    state, _ = env.jax_env.reset(jax.random.key(0))
    numbers = sum(x.size for x in jax.tree.leaves(state))
    assert numbers > 0
    assert size("ppo", num_envs=8) - size("ppo", num_envs=4) == 2 * 4 * numbers
    assert size("ppo", rollout=128) > 1.5 * size("ppo", rollout=64)
    population = [EVOLUTION.seed_size(evolution_preset("es", population=n), env) for n in (10, 20)]
    assert population[1] == 2 * population[0] > 0
