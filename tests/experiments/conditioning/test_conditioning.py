import dataclasses
from pathlib import Path

import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import wng
from wng.experiments.conditioning.spectrum import (
    Spectrum,
    describe,
    diagnose,
    draw_spectrum,
    ratios,
)

TINY = {
    "hidden": (8, 8),
    "num_envs": 4,
    "rollout": 128,
    "minibatch": 64,
    "value_minibatch": 64,
    "epochs": 1,
    "value_epochs": 1,
    "backend": "gymnasium",
}


def of(*eigenvalues: float, env: str = "A-v0", noise: float = 0.3) -> Spectrum:
    return Spectrum(env, "WNPG", 0, 1000, 512, 5000, np.array(eigenvalues), noise)


def made(env: str, method: str = "pg") -> wng.Agent:
    return wng.Agent(env, method, 1, **TINY)


@pytest.mark.parametrize(
    ("env", "method"), [("InvertedDoublePendulum-v5", "ppo"), ("CartPole-v1", "pg")]
)
def test_eigenvalues_are_those_of_the_dense_hessian_on_the_same_batch(env, method) -> None:
    agent = made(env, method)
    found = diagnose(agent, rollouts=3, number=12)
    batch = agent.trainer.sample_batch(3)  # the same: the environments go back
    flat, unravel = ravel_pytree(agent.trainer.state.networks.policy)

    @jax.jit
    def hessian(advantages):
        def objective(theta):
            log_prob = unravel(theta)(batch.observations).log_prob(batch.actions)
            return (jnp.exp(log_prob - batch.log_probs) * advantages).mean()

        return jax.hessian(objective)(flat)

    for advantages, given in (
        (batch.advantages, found.eigenvalues),
        (np.roll(batch.advantages, 192), np.array([found.noise])),
    ):
        exact = np.linalg.eigvalsh(np.asarray(hessian(advantages), np.float64))
        exact = exact[np.argsort(-np.abs(exact))][: len(given)]
        exact = exact if len(given) > 1 else np.abs(exact)
        np.testing.assert_allclose(given, exact, rtol=2e-3, atol=1e-4 * abs(exact[0]))
    assert found[:6] == (env, agent.title, 1, 0, 3 * 128, flat.size)
    agent.close()


def test_the_same_agent_has_the_same_spectrum(tmp_path: Path) -> None:
    agent = made("Pendulum-v1")
    agent.save(tmp_path / "agent.safetensors")
    first = diagnose(agent, 2, 5)
    again = wng.load(tmp_path / "agent.safetensors")
    np.testing.assert_equal(diagnose(again, 2, 5)._asdict(), first._asdict())
    agent.close()
    again.close()


def test_the_objective_is_the_same_for_every_method() -> None:
    one = made("Pendulum-v1")
    config = dataclasses.replace(one.config, proximity="kl", penalty=100.0)
    other = wng.Agent("Pendulum-v1", "ppokl", 1, config=config)
    other.trainer.restore(*one.trainer.checkpoint())
    spectra = [diagnose(agent, 2, 5).eigenvalues for agent in (one, other)]
    np.testing.assert_array_equal(*spectra)
    one.close()
    other.close()


def test_an_evolution_strategy_is_refused() -> None:
    agent = wng.Agent("wng/PointWall-v0", "wnes", 0, population=4, num_basis=4)
    with pytest.raises(ValueError, match="needs a policy-gradient run"):
        diagnose(agent)
    agent.close()


def test_ratios() -> None:
    np.testing.assert_array_equal(ratios(np.array([-4.0, 2.0, -1.0, 0.0])), [1, 2, 4, np.inf])
    assert np.isinf(ratios(np.zeros(3))).all()


def test_description() -> None:
    text = describe(of(-8.0, *[2.0] * 9, *[0.25] * 10))
    assert "4 at i = 10 and 32 at i = 20" in text
    assert "1 of the 20 eigenvalues are negative" in text
    assert "10 of them exceed 0.3 in magnitude" in text
    assert "heuristic" in text
    assert "2 at i = 3" in describe(of(4.0, 3.0, 2.0))
    assert "more rollouts" not in describe(of(4.0, 3.0, 2.0))
    assert describe(of(0.0, 0.0)).endswith("so there is no ratio.")


def test_picture(tmp_path: Path) -> None:
    several = [of(4.0, 2.0, 1.0), of(9.0, 3.0), of(-5.0, 1.0, 0.0, env="B-v0"), of(0.0, 0.0)]
    written = draw_spectrum(several[:3], tmp_path / "deep" / "spectrum.png")
    assert imageio.imread(written).std() > 1
    draw_spectrum(several[3:], tmp_path / "flat.png")
