"""The registry of families and methods: the one table that commands, studies and agents read."""

import importlib
from collections import ChainMap
from collections.abc import Callable, Sequence
from operator import attrgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple

from wng.evolution import config as evolution_config
from wng.evolution import methods as evolution_methods
from wng.policy_gradient import config as gradient_config
from wng.policy_gradient import methods as gradient_methods
from wng.policy_gradient.axes import GEOMETRIES
from wng.runs.settings import Method, plain

if TYPE_CHECKING:
    from wng.envs import ResolvedEnv


class Family(NamedTuple):
    """A family of methods."""

    kind: str  # name in files
    title: str
    config: type  # its settings
    groups: dict[str, str]  # groups of its settings in --help, by the first of each
    methods: dict[str, Method]
    preset: Callable[..., Any]  # (method, settings, env, **overrides) -> config
    steps: int  # environment steps of a run unless the user says otherwise
    distributes: bool  # whether one run can use an executor
    env_backend: Callable[[Any], Any]  # (config) -> backend that the environment is resolved with
    trainer: str  # module:class, imported when a run starts
    block: str  # module:class of trainers side by side
    # (config, environment) -> numbers in memory for a seed in a block; 0 if there can be no block
    seed_size: Callable[[Any, "ResolvedEnv"], int]

    def resolve(self, env: str, config: Any) -> "ResolvedEnv":
        """The environment of a run; ValueError if there is none, or it cannot be used."""
        from wng import envs

        return envs.resolve(env, self.env_backend(config))

    def make_trainer(self, *arguments: Any, **settings: Any) -> Any:
        """A trainer of this family."""
        return _find(self.trainer)(*arguments, **settings)

    def make_block(self, trainers: Sequence[Any]) -> Any:
        """Several trainers side by side, in one compiled program."""
        return _find(self.block)(trainers)


def _find(path: str) -> Any:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


COPIES = 20  # of the numbers in a rollout that its update makes, roughly


def _step_size(env: "ResolvedEnv") -> int:
    return env.spec.observation_size + env.spec.action_size


def _weights(config: Any, env: "ResolvedEnv") -> int:
    widths = [env.spec.observation_size, *config.hidden, env.spec.action_size]
    return sum(map(mul, widths, widths[1:]))


def _state_size(env: "ResolvedEnv") -> int:
    import jax

    assert env.jax_env is not None
    state, _ = jax.eval_shape(env.jax_env.reset, jax.random.key(0))
    return sum(part.size for part in jax.tree.leaves(state))


def _gradient_size(config: Any, env: "ResolvedEnv") -> int:
    """Numbers in memory: those that updates make from a rollout, J, and the environments."""
    if env.spec.backend != "jax":
        return 0
    weights = _weights(config, env)
    estimated = GEOMETRIES.find(config.geometry).needs_behaviors
    jacobian = 2 * config.num_basis * weights * estimated
    states = 2 * config.num_envs * _state_size(env)  # before and after a step
    return COPIES * (config.rollout * _step_size(env) + weights) + jacobian + states


def _evolution_size(config: Any, env: "ResolvedEnv") -> int:
    horizon = config.horizon or env.spec.max_episode_steps or 0
    if env.jax_env is None or config.backend not in ("auto", "jax") or not horizon:
        return 0
    rollout = horizon * _step_size(env) + _weights(config, env)
    return config.population * (COPIES * rollout + 2 * _state_size(env))


GRADIENT = Family(
    "policy_gradient",
    "policy gradients",
    gradient_config.Config,
    gradient_config.GROUPS,
    gradient_methods.METHODS,
    gradient_methods.preset,
    300_000,
    False,
    attrgetter("backend"),
    "wng.policy_gradient.trainer:Trainer",
    "wng.policy_gradient.block:TrainerBlock",
    _gradient_size,
)
EVOLUTION = Family(
    "evolution",
    "evolution strategies",
    evolution_config.EvolutionConfig,
    evolution_config.GROUPS,
    evolution_methods.METHODS,
    evolution_methods.preset,
    1_000_000,
    True,
    lambda config: "gymnasium",  # what is asked of it; the backend concerns whole populations
    "wng.evolution.trainer:EvolutionTrainer",
    "wng.evolution.block:EvolutionBlock",
    _evolution_size,
)
FAMILIES = (GRADIENT, EVOLUTION)
METHODS = ChainMap(GRADIENT.methods, EVOLUTION.methods)  # also shows rows that are added later


def family_of(method: str) -> Family:
    """The family of a method; policy gradients for a combination without a name."""
    return EVOLUTION if plain(method) in EVOLUTION.methods else GRADIENT


def title_of(name: str) -> str:
    """A method's name as people write it."""
    return METHODS[name].title if name in METHODS else name
