"""Small learners and random rollouts, shared so that each is compiled once."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from wng.behavior import find_embedding
from wng.policy_gradient.batch import Rollout
from wng.policy_gradient.config import Config
from wng.policy_gradient.learner import Learner, TrainState
from wng.policy_gradient.methods import preset

OBSERVATION_SIZE, ACTION_SIZE = 3, 2
SMALL: dict[str, Any] = {
    "num_envs": 2,
    "rollout": 32,
    "hidden": (8,),
    "epochs": 4,
    "minibatch": 16,
    "value_epochs": 4,
    "value_minibatch": 16,
    "num_basis": 8,
    "metric_samples": 16,
    "horizon": 4,
    "dual_features": 20,
    "dual_steps": 5,
    "dual_samples": 16,
    "backtracks": 5,
}


@cache
def make_learner(config: Config, discrete: bool = False) -> Learner:
    return Learner(
        config,
        find_embedding(config.embedding),
        observation_size=OBSERVATION_SIZE,
        action_size=ACTION_SIZE,
        discrete=discrete,
    )


def small_learner(discrete: bool = False, **settings: Any) -> Learner:
    return make_learner(Config(**(SMALL | settings)), discrete)


def small_method(name: str, **settings: Any) -> Learner:
    return make_learner(preset(name, **(SMALL | settings)))


def random_rollout(learner: Learner, state: TrainState, seed: int = 0) -> Rollout:
    """Random states, actions of the policy in them, reward for the first action's direction."""
    config = learner.config
    shape = (config.rollout // config.num_envs, config.num_envs)
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(*shape, OBSERVATION_SIZE)).astype(np.float32)
    following = rng.normal(size=observations.shape).astype(np.float32)
    noise = learner.noise(jax.random.key(seed))
    actions = learner.actor(state)(observations, noise)
    liked = actions.astype(float) if learner.problem.discrete else actions[..., 0]
    ends = rng.random(size=(2, *shape)) < 0.1
    return Rollout(
        jnp.asarray(observations), actions, liked, ends[0], ends[1], jnp.asarray(following)
    )


def one_update(
    learner: Learner, seed: int = 0, **replaced: float
) -> tuple[TrainState, TrainState, dict[str, jax.Array]]:
    """The state before, after, and the metrics; `replaced` are fields of the state or its step."""
    # Of a definite type: a second kind of state would be compiled for again.
    definite = {name: jnp.asarray(value, jnp.float32) for name, value in replaced.items()}
    before = learner.init(jax.random.key(seed))
    own = {name: definite.pop(name) for name in set(definite) & set(before._fields)}
    before = before._replace(**own, step=before.step._replace(**definite))
    rollout = random_rollout(learner, before, seed)
    after, metrics = learner.update(before, rollout, jax.random.key(seed + 1))
    return before, after, metrics


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0])
