"""Training by evolution, one generation at a time: ask, run the episodes, tell."""

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wng import envs
from wng.behavior.embedding import Embedding, as_embedding, find_embedding
from wng.envs.moments import Moments
from wng.evolution.config import EvolutionConfig
from wng.evolution.episodes import Episodes, Setup, behavior_size
from wng.evolution.evaluators import find_backend
from wng.evolution.maps import keep_map
from wng.evolution.policies import Policy
from wng.evolution.population import Assignment, Population, strategy_key
from wng.evolution.state import State
from wng.evolution.strategy import Strategy
from wng.runs.checkpoint import check_info
from wng.runs.executor import Executor, LocalExecutor
from wng.runs.record import Row
from wng.runs.settings import check_memory
from wng.runs.training import NonFiniteError, other_block
from wng.runs.trees import restore_tree, save_tree

COUNTERS = ("iteration", "steps", "fruitless")  # in a checkpoint
FRUITLESS = 3  # generations in a row without a step before training stops


class TrainState(NamedTuple):
    """Everything that learning remembers."""

    strategy: State
    observation_moments: Moments | None  # None if observations are not normalized


class EvolutionTrainer:
    """Strategy and population of one run. A generation depends only on the state before it."""

    newest: Path | None = None  # newest checkpoint that it wrote or was restored from

    def __init__(
        self,
        resolved: envs.ResolvedEnv,
        config: EvolutionConfig,
        seed: int,
        embedding: Any = None,
        executor: Executor | None = None,
    ):
        self.config, self.seed = config, seed
        self.block = [seed]  # seeds in the same compiled program
        chosen = _find_embedding(config, embedding)
        self.resolved = resolved
        self.spec = spec = resolved.spec
        horizon = config.horizon or spec.max_episode_steps
        if not horizon:
            raise ValueError(
                f"'{spec.id}' has no time limit: set the length of episodes with --horizon."
            )
        self.horizon = min(horizon, spec.max_episode_steps or horizon)
        bounds = spec.discrete, spec.action_low, spec.action_high
        self.policy = Policy(
            spec.observation_size,
            spec.action_size,
            config.policy,
            config.hidden,
            *bounds,
            config.start,
        )
        check_memory(f"a policy with hidden={config.hidden}", self.policy.least_memory)
        check_memory(
            f"an episode of horizon={self.horizon} steps", self.horizon * spec.observation_size
        )
        self.strategy = Strategy(self.policy.init(jax.random.key(0)), config)
        self.map = self.resolved.map
        noise, normalize = config.action_noise, config.normalize_observations
        self._setup = setup = Setup(self.policy, chosen, self.horizon, noise, normalize)
        self._behavior_size = behavior_size(setup)
        sizes = self.strategy.proximity.memory_size(config, self._behavior_size)
        for setting, size in sizes.items():
            check_memory(setting, size)
        self.state = self.initial_state()
        self.iteration = self.steps = self.fruitless = 0
        self.episodes: Episodes | None = None  # of the last generation
        config = dataclasses.replace(config, sigma=self.strategy.config.sigma)  # as it is used
        self._backend = find_backend(resolved, config.backend)
        assignment = Assignment(resolved, config, setup, seed, self._backend)
        self.population = Population(assignment, executor or LocalExecutor())

    @property
    def params(self) -> Any:
        """Parameters of the policy, the center of the population."""
        return self.strategy.params(self.state.strategy)

    def initial_state(self) -> TrainState:
        """Return the state before the first generation; it depends only on the seed."""
        params = self.policy.init(jax.random.fold_in(jax.random.key(self.seed), 2))
        state = self.strategy.init(strategy_key(self.seed), self._behavior_size, params)
        normalize = self.config.normalize_observations
        moments = Moments.empty(self.spec.observation_size) if normalize else None
        return TrainState(state, moments)

    def check_memory(self) -> None:
        """Raise a ValueError if the members and the episodes run here do not fit in memory."""
        episode = 0 if self.population.remote else self.horizon * self.spec.observation_size
        population, each = self.config.population, len(self.state.strategy.center) + episode
        check_memory(f"a population of {population}", population * each)

    def actions(self, state: TrainState, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        """Return actions of the policy at the center, with action noise if there is a key."""
        noise: np.ndarray = np.zeros((len(rows), self.spec.action_size), np.float32)
        if key is not None:
            noise = self.config.action_noise * np.asarray(jax.random.normal(key, noise.shape))
        params, moments = self.strategy.params(state.strategy), state.observation_moments
        return np.asarray(_act(self._setup.shape, params, moments, rows, noise))

    def shown(self, row: Row) -> Row:
        """Select what the progress bar shows."""
        fields = {"return": row["return"], "population": row["population_mean"]}
        if "past_wall" in row:
            fields["past wall"] = row["population_past_wall"]
        if row["dropped"]:
            fields["dropped"] = row["dropped"]
        return fields

    def keep(self, folder: Path) -> None:
        """Write the map of the last generation, if the task has one."""
        if self.map is not None and self.episodes is not None:
            keep_map(folder, self.iteration, self.episodes)

    def iterate(self) -> Row:
        """Run one generation and return its row of metrics."""
        start = time.perf_counter()
        state, moments = self.state
        episodes = self.population(state.center, state.sigma, moments, self.iteration)
        evaluated = time.perf_counter()
        state, metrics = self.strategy.tell(
            state, None, episodes.returns[:-1], episodes.behaviors[:-1]
        )
        metrics = jax.device_get(metrics)
        seconds = {"seconds": time.perf_counter() - start, "seconds_episodes": evaluated - start}
        return self.accept(episodes, state, metrics) | seconds

    def accept(self, episodes: Episodes, state: State, metrics: dict[str, np.ndarray]) -> Row:
        """Move on to the state after a generation; returns its row of metrics, without times."""
        moments = self.state.observation_moments
        if moments is not None:
            moments = _merge(moments, episodes)
        numbers = {name: float(value) for name, value in metrics.items()}
        skipped = int(state.skipped)
        fruitless = self.fruitless + 1 if skipped > int(self.state.strategy.skipped) else 0
        steps = self.steps + int(episodes.lengths[:-1].sum())
        if fruitless == FRUITLESS:
            raise NonFiniteError(
                f"no member of {FRUITLESS} generations on {self.spec.id}, up to step {steps}, led "
                "to a finite step: fix the environment, or lower sigma or the learning rate, and "
                "resume from the last checkpoint."
            )
        # One statement without a call assigns all, so that an interrupt cannot split it.
        done = TrainState(state, moments), self.iteration + 1, steps, fruitless, episodes
        self.state, self.iteration, self.steps, self.fruitless, self.episodes = done
        center = float(episodes.returns[-1])
        row = {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": self.iteration * self.config.population,
            "return": center,
            "return_recent": center,
            **numbers,
            "skipped": skipped,
        }
        if self.map is not None:
            past = [self.map.past_wall(*x[:2]) for x in episodes.final_observations.tolist()]
            row["past_wall"] = float(past[-1])
            row["population_past_wall"] = float(np.mean(past[:-1]))
        return row

    @property
    def _simulator(self) -> str:
        """The backend; worker processes do what Gymnasium does in this one."""
        return "gymnasium" if self._backend in ("local", "workers") else self._backend

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything needed to resume after the last whole generation."""
        info = {name: getattr(self, name) for name in (*COUNTERS, "seed", "block")}
        arrays = save_tree(_without_key(self.state))
        info |= {"config": dataclasses.asdict(self.config), "env": self.spec.id}
        return arrays, info | {"simulator": self._simulator}

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; returns a sentence if the run cannot continue exactly."""
        check_info(info, **dict.fromkeys(COUNTERS, int), block=list, simulator=str)
        state = restore_tree(_without_key(self.state), arrays)
        key = self.state.strategy.key  # which follows from the seed
        self.state = state._replace(strategy=state.strategy._replace(key=key))
        self.iteration, self.steps, self.fruitless = (info[name] for name in COUNTERS)
        if info["simulator"] != self._simulator:
            return (
                f"earlier episodes ran on backend '{info['simulator']}', but the next ones run on "
                f"'{self._simulator}', whose initial states and rounding differ: to keep the "
                "earlier backend, name it with --backend."
            )
        return None if info["block"] == self.block else other_block(self.seed)

    def close(self) -> None:
        """Stop the environments."""
        self.population.close()


def _without_key(state: TrainState) -> Any:
    return state._replace(strategy=state.strategy._replace(key=()))  # type: ignore[arg-type]


def _merge(moments: Moments, episodes: Episodes) -> Moments:
    """Add the observations of all members whose episodes are finite."""
    columns = episodes.means, episodes.variances
    good = np.isfinite(episodes.returns) & np.isfinite(columns).all(axis=(0, 2))
    means, variances = (x[good].astype(np.float64) for x in columns)
    steps = episodes.lengths[good].astype(np.float64)
    share = steps / max(steps.sum(), 1)
    mean = share @ means
    variance = share @ (variances + (means - mean) ** 2)
    # Summed in float64, but kept in float32 whatever the backend.
    return moments.merge(*(jnp.asarray(x, jnp.float32) for x in (mean, variance, steps.sum())))


def _find_embedding(config: EvolutionConfig, function: Any) -> Embedding:
    found = find_embedding(config.embedding) if function is None else as_embedding(function)
    if not found.whole or found.resamples or found.uses_value:
        raise ValueError(
            f"embedding '{config.embedding}' looks at single steps, not at whole episodes: "
            "evolution strategies need final-state, reward-to-go, trajectory-actions, or a "
            "function of your own."
        )
    return found


@partial(jax.jit, static_argnums=0)
def _act(setup: Setup, params: Any, moments: Moments | None, rows: Any, noise: Any) -> Any:
    return jax.vmap(partial(setup.act, setup.policy.layers(params), moments))(rows, noise)
