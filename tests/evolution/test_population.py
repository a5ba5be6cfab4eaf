"""Members by number, in blocks: the same episodes wherever they run."""

import hashlib
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evolution.small_envs import mean_state
from evolution.tiny import ENV, TINY, without_times
from wng import envs
from wng.agents.registry import EVOLUTION
from wng.behavior.embedding import as_embedding
from wng.evolution.episodes import Setup
from wng.evolution.members import map_rows
from wng.evolution.methods import preset
from wng.evolution.policies import Policy
from wng.evolution.population import Assignment, Population
from wng.evolution.trainer import EvolutionTrainer
from wng.execution.ray import RayExecutor
from wng.runs.executor import Executor, LocalExecutor

QUADRUPED = "wng/QuadrupedWall-v0"
LINE = "evolution.small_envs:Line-v0"
MORTAL = "evolution.mortal_env:Mortal-v0"


# As users compile; tests/conftest.py has tests compile quickly, and such programs round alike.
OPTIMIZED = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


class Pieces(LocalExecutor):
    """As many places as one likes, all of them here; notes what would travel."""

    remote = True

    def __init__(self, number: int):
        self.number, self.sent, self.returned = number, 0, 0

    def cores(self) -> int:
        return self.number

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        self.sent += len(pickle.dumps(arguments))
        found = super().call(objects, method, *arguments)
        # The path of the center, of which there is one, is as long as its episode.
        self.returned += sum(len(pickle.dumps(result._replace(path=()))) for result in found)
        return found


def trained(
    env: str, executor: Executor | None, iterations: int = 3, **settings: Any
) -> tuple[EvolutionTrainer, list]:
    config = preset("wnes", **{**TINY, "horizon": 10, **settings})
    resolved = EVOLUTION.resolve(env, config)
    trainer = EvolutionTrainer(resolved, config, 3, mean_state, executor)
    rows = [without_times(trainer.iterate()) for _ in range(iterations)]
    trainer.close()
    return trainer, rows


def digest(trainer: EvolutionTrainer) -> str:
    return hashlib.sha256(np.asarray(trainer.state.strategy.center).tobytes()).hexdigest()


def test_moments_of_observations_travel_along() -> None:
    settings = {"backend": "gymnasium", "normalize_observations": True}
    whole, rows = trained(LINE, None, **settings)
    pieces, same = trained(LINE, Pieces(3), **settings)
    np.testing.assert_equal(same, rows)
    assert digest(pieces) == digest(whole) != digest(trained(LINE, None, backend="gymnasium")[0])
    moments = (trainer.state.observation_moments for trainer in (whole, pieces))
    jax.tree.map(np.testing.assert_array_equal, *moments)


@pytest.mark.parametrize(
    ("env", "backend", "numbers"),
    [
        (LINE, "jax", (50,)),
        pytest.param(QUADRUPED, "mujoco", (3,), marks=pytest.mark.slow),
        (LINE, "gymnasium", (3,)),
        (LINE, "workers", (2,)),
    ],
)
def test_the_number_of_places_changes_nothing(env: str, backend: str, numbers: tuple) -> None:
    whole, rows = trained(env, None, backend=backend)
    for number in numbers:
        pieces, same = trained(env, Pieces(number), backend=backend)
        assert len(pieces.population.blocks) == {2: 2, 3: 3, 50: 5}[number]
        np.testing.assert_equal(same, rows)
        assert digest(pieces) == digest(whole)
        assert whole.episodes is not None
        assert pieces.episodes is not None
        for name, here in whole.episodes._asdict().items():
            np.testing.assert_array_equal(getattr(pieces.episodes, name), here, name)


def test_a_sigma_that_learns_travels_along() -> None:
    settings = {"backend": "gymnasium", "search": "wasserstein", "learning_rate": 1.0}
    fixed, some = Pieces(3), Pieces(3)
    trained(LINE, fixed, **(settings | {"search": "fixed"}))
    whole, rows = trained(LINE, None, **settings)
    pieces, same = trained(LINE, some, **settings)
    np.testing.assert_equal(same, rows)
    np.testing.assert_array_equal(pieces.state.strategy.sigma, whole.state.strategy.sigma)
    assert len({row["sigma"] for row in rows}) == 3
    size = 4 * whole.state.strategy.center.size  # bytes, once in each of three generations
    assert some.sent - fixed.sent == pytest.approx(3 * size, abs=3 * 200)


def test_rows_round_alike_in_batches_of_every_size() -> None:
    """With `jax.vmap` in place of `map_rows` these differ, on some processors."""

    def path(number: jax.Array) -> jax.Array:
        weights, start = jnp.array([[0.3, 0.7], [0.9, -1.1]]), jnp.array([0.1, 0.3])

        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return jnp.tanh(weights @ x + 0.01 * number), x

        return jax.lax.scan(step, start, None, length=10)[1]

    paths = jax.jit(map_rows(path), compiler_options=OPTIMIZED)
    whole = paths(jnp.arange(64))
    for number in (1, 2, 3, 5, 17):
        np.testing.assert_array_equal(paths(jnp.arange(number)), whole[:number])


def test_what_is_evaluated_is_what_was_asked_for() -> None:
    """Blocks make their members themselves: those of `ask`, and the center after them."""
    trainer, _ = trained(LINE, Pieces(4), backend="jax")
    members, state = trainer.strategy.ask(trainer.state.strategy)
    center = np.asarray(state.center)
    made = [block.make(center, 0.05, block._key, 3) for block in trainer.population.blocks]
    rows = [block._rows for block in trainer.population.blocks]
    assert [r.first for r in rows] == [0, 3, 6]
    assert {r.number for r in rows} == {3}
    for leaf, asked, still in zip(
        zip(*(jax.tree.leaves(m) for m in made), strict=True),
        jax.tree.leaves(members),
        jax.tree.leaves(trainer.strategy.params(state)),
        strict=True,
    ):
        np.testing.assert_array_equal(np.concatenate(leaf)[:8], asked)
        np.testing.assert_array_equal(np.concatenate(leaf)[8], still)


def test_what_travels_back_does_not_depend_on_the_parameters() -> None:
    small, large = Pieces(3), Pieces(3)
    few, _ = trained(LINE, small, 1, backend="gymnasium")
    many, _ = trained(LINE, large, 1, backend="gymnasium", hidden=(64, 64), policy="dense")
    sizes = few.state.strategy.center.size, many.state.strategy.center.size
    assert sizes[1] > 100 * sizes[0]
    assert small.returned == large.returned
    assert large.sent - small.sent == pytest.approx(4 * (sizes[1] - sizes[0]), abs=32)  # once


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (1, [(0, 11)]),
        (2, [(0, 6), (5, 6)]),  # 5 twice
        (4, [(0, 3), (3, 3), (6, 3), (8, 3)]),
        (50, [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2), (9, 2)]),
    ],
)
def test_blocks_have_one_size_and_at_least_two_members(places: int, expected: list) -> None:
    config = preset("es", population=10, hidden=(4,))
    policy = Policy(2, 1, "dense", (4,), low=(-1.0,), high=(1.0,))
    setup = Setup(policy, as_embedding(mean_state), 10, 0.1)
    assignment = Assignment(envs.resolve(LINE, "gymnasium"), config, setup, 0, "auto")
    population = Population(assignment, Pieces(places))
    assert [(b._rows.first, b._rows.number) for b in population.blocks] == expected
    assert {b._rows.center for b in population.blocks} == {10}
    population.close()


def test_ray_comes_to_the_same_parameters_though_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of an episode; the members that it had are run again."""
    mark = tmp_path / "killed"
    mark.touch()  # nobody is killed here
    monkeypatch.setenv("WNG_MORTAL", str(mark))
    settings = {"backend": "gymnasium", "horizon": 10}
    serial, rows = trained(MORTAL, None, **settings)
    mark.unlink()
    executor = RayExecutor(cores=2)
    try:
        spread, same = trained(MORTAL, executor, **settings)
    finally:
        executor.close()
    assert mark.exists()  # somebody was
    assert len(spread.population.blocks) == 2
    assert digest(spread) == digest(serial)
    np.testing.assert_equal(same, rows)


@pytest.mark.slow
def test_ray_comes_to_the_same_parameters_on_the_wall_tasks() -> None:
    executor = RayExecutor(cores=2)
    try:
        for env, horizon in ((ENV, 50), (QUADRUPED, 100)):
            serial, rows = trained(env, None, 5, population=40, horizon=horizon)
            spread, same = trained(env, executor, 5, population=40, horizon=horizon)
            assert digest(spread) == digest(serial)
            np.testing.assert_equal(same, rows)
    finally:
        executor.close()
