"""Generations, one at a time: ask, run the episodes, tell."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from wng import envs
from wng.behavior.embedding import as_embedding, find_embedding
from wng.envs.resolve import find
from wng.estimator.checks import check_memory
from wng.evolution.config import EvolutionConfig
from wng.evolution.evaluators import Episodes, behavior_size, map_of
from wng.evolution.policies import Policy
from wng.evolution.population import Population, Task, shared_strategy, strategy_key
from wng.evolution.strategy import State
from wng.runs.checkpoint import check_info
from wng.runs.executor import Executor, LocalExecutor
from wng.runs.training import NonFiniteError
from wng.runs.trees import restore_tree, save_tree

FRUITLESS = 3  # generations in a row without a step before training stops


class EvolutionTrainer:
    """Strategy and population of one run. A generation depends on the state before it alone."""

    def __init__(
        self,
        env: str,
        config: EvolutionConfig,
        seed: int,
        embedding: Any = None,
        executor: Executor | None = None,
    ):
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:  # what JAX keys hold
            raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
        config = dataclasses.replace(config, hidden=tuple(config.hidden))
        self.config, self.seed = config, int(seed)
        chosen = find_embedding(config.embedding) if embedding is None else as_embedding(embedding)
        if not chosen.whole or chosen.resamples or chosen.uses_value:
            raise ValueError(
                f"embedding '{config.embedding}' looks at single steps, not at whole episodes: "
                "evolution strategies need final-state, reward-to-go, trajectory-actions, or a "
                "function of your own."
            )
        self.spec = envs.check_env(env, "gymnasium")
        horizon = config.horizon or self.spec.max_episode_steps
        if not horizon:
            raise ValueError(f"'{env}' has no time limit: say how long an episode is, --horizon.")
        if self.spec.max_episode_steps:
            horizon = min(horizon, self.spec.max_episode_steps)
        self.horizon = horizon
        self.policy = Policy(
            self.spec.observation_size,
            self.spec.action_size,
            config.policy,
            config.hidden,
            self.spec.discrete,
            self.spec.action_low,
            self.spec.action_high,
        )
        check_memory(f"a policy with hidden={config.hidden}", self.policy.least_memory)
        check_memory(f"an episode of horizon={horizon} steps", horizon * self.spec.observation_size)
        self.strategy = shared_strategy(config, self.policy)
        gym_env, _ = find(env)
        self.map = map_of(gym_env)
        gym_env.close()
        self._behavior_size = behavior_size(self.policy, chosen, horizon)
        past = {"novelty": config.archive, "wasserstein": config.memory * config.population}
        check_memory(
            "the past that a population is compared with (archive, memory × population)",
            past.get(config.proximity, 0) * self._behavior_size,
        )
        self.state = self.initial_state()
        self.iteration = self.steps = self.fruitless = 0
        self.episodes: Episodes | None = None  # of the last generation
        task = Task(env, config, self.policy, chosen, horizon, self.seed)
        self.population = Population(task, executor or LocalExecutor())

    def initial_state(self) -> State:
        """The state before the first generation; it depends on the seed alone."""
        state = self.strategy.init(strategy_key(self.seed), self._behavior_size)
        params = self.policy.init(jax.random.fold_in(jax.random.key(self.seed), 2))
        return state._replace(center=ravel_pytree(params)[0])

    def check_memory(self) -> None:
        """Raise if a generation cannot fit: members, and what they see if they are run here."""
        config = self.config
        each = len(self.state.center)
        if not self.population.remote:
            each += self.horizon * self.spec.observation_size
        check_memory(f"a population of {config.population}", config.population * each)
        if config.proximity == "wasserstein":
            features = config.dual_features * max(config.population, self._behavior_size)
            check_memory(f"dual_features={config.dual_features}", features)

    def iterate(self) -> dict[str, float]:
        """One generation. Returns its row of metrics."""
        start = time.perf_counter()
        members, state = self.strategy.ask(self.state)
        episodes = self.population(state, self.iteration)
        evaluated = time.perf_counter()
        state, metrics = self.strategy.tell(
            state, members, episodes.returns[:-1], episodes.behaviors[:-1]
        )
        numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
        skipped = int(state.skipped)
        fruitless = self.fruitless + 1 if skipped > int(self.state.skipped) else 0
        steps = self.steps + int(episodes.lengths[:-1].sum())
        if fruitless == FRUITLESS:
            raise NonFiniteError(
                f"no member of {FRUITLESS} generations on {self.spec.id}, up to step {steps}, led "
                "to a finite step: mend the environment, or lower sigma or the learning rate, and "
                "resume from the last checkpoint."
            )
        # One statement without a call: an interrupt cannot come between its parts.
        self.state, self.iteration, self.steps, self.fruitless, self.episodes = (
            state,
            self.iteration + 1,
            steps,
            fruitless,
            episodes,
        )
        done = float(episodes.returns[-1])
        row = {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": self.iteration * self.config.population,
            "return": done,
            "return_recent": done,
            **numbers,
            "skipped": skipped,
        }
        if self.map is not None:
            past = [self.map.past_wall(*x[:2]) for x in episodes.final_observations.tolist()]
            row["past_wall"] = float(past[-1])
            row["population_past_wall"] = float(np.mean(past[:-1]))
        return row | {
            "seconds": time.perf_counter() - start,
            "seconds_episodes": evaluated - start,
        }

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to go on from the last whole generation."""
        counters = ("iteration", "steps", "fruitless", "seed")
        info = {name: getattr(self, name) for name in counters}
        arrays = {f"strategy/{name}": x for name, x in save_tree(_without_key(self.state)).items()}
        return arrays, info | {"config": dataclasses.asdict(self.config), "env": self.spec.id}

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint. Episodes are never under way there: it is always exact."""
        check_info(info, iteration=int, steps=int, fruitless=int)
        saved = {name.removeprefix("strategy/"): x for name, x in arrays.items()}
        state = restore_tree(_without_key(self.state), saved)
        self.state = state._replace(key=self.state.key)  # which follows from the seed
        self.iteration, self.steps = info["iteration"], info["steps"]
        self.fruitless = info["fruitless"]
        return None

    def close(self) -> None:
        """Stop the environments."""
        self.population.close()


def _without_key(state: State) -> Any:
    return state._replace(key=())  # type: ignore[arg-type]
