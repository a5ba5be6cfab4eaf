"""One generation of a strategy as pure functions: its members, and what is learned from them."""

import dataclasses
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from wng.estimator.basis import Basis
from wng.evolution.bounds import Bounds
from wng.evolution.config import StrategyConfig
from wng.evolution.fitness import SHAPINGS, Sample, es_gradient, es_gradients
from wng.evolution.geometry import Geometry
from wng.evolution.members import BASIS, BLOCK, FIXED, FRESH, RESTART, Noise, key_for, members
from wng.evolution.proximity import Keys, Proximity
from wng.evolution.search import Search
from wng.evolution.state import Restarts, State
from wng.runs.settings import is_off, shape_of, with_numbers

Metrics = dict[str, Array]
MOST_PROGRAMS = 16  # kept for strategies that are made later


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a strategy makes members, and learns. Numbers in `config` may be traced."""

    config: StrategyConfig
    proximity: Proximity
    geometry: Geometry
    search: Search
    own_optimizer: optax.GradientTransformation | None
    basis: Basis | None
    bounds: Bounds | None
    unravel: Callable[[Array], Any]

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer of θ."""
        return self.own_optimizer or self.search.optimizer(self.config)

    def at(self, numbers: dict[str, Any]) -> "Rule":
        """Return the rule with other numbers among its settings."""
        return dataclasses.replace(self, config=with_numbers(self.config, numbers))

    def fresh(self, center: Float[Array, " p"]) -> dict[str, Any]:
        """Return the parts of the state that learn, as they are before the first generation."""
        sigma = self.search.start(self.config, center)
        optimizer = self.optimizer.init(self.unravel(center))
        return {"center": center, "sigma": sigma, "optimizer": optimizer}

    def _sigma(self, state: State) -> Any:
        return self.config.sigma if state.sigma is None else state.sigma

    def _members(self, state: State, first: int | Array, number: int) -> Float[Array, "n p"]:
        source = state.key, state.generation, state.center, self._sigma(state)
        made = members(self.config.antithetic, *source, first, number)
        return made if self.bounds is None else self.bounds.clip(made)

    def everyone(self, state: State) -> Any:
        """Make all members of the generation."""
        return jax.vmap(self.unravel)(self._members(state, 0, self.config.population))

    def member(self, state: State, number: int | Array) -> Any:
        """Make one member, the same as that of `everyone`."""
        pair = self._members(state, number // 2 * 2, 2)  # as in `everyone`, so that it rounds alike
        return self.unravel(pair[number % 2])

    def _row(self, state: State, candidates: Any, number: Array) -> Float[Array, " p"]:
        """Return one member, flat."""
        if candidates is None:
            return ravel_pytree(self.member(state, number))[0]
        return ravel_pytree(jax.tree.map(lambda x: x[number], candidates))[0]

    def _noise(self, state: State, candidates: Any, kept: Array) -> Noise:
        """Return θ̃_n − θ; members whose parameters are not finite are left out as well."""
        number = self.config.population
        if candidates is None:
            block = min(number, max(2, BLOCK // state.center.size // 2 * 2))
            made = partial(self._members, state, number=block)
            return Noise(lambda first: made(first) - state.center, kept, block)
        rows = jax.vmap(lambda tree: ravel_pytree(tree)[0])(candidates) - state.center
        kept &= jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(kept[:, None], rows, 0)
        return Noise(lambda first: rows, kept, number)

    def learn(
        self, state: State, candidates: Any, returns: Float[Array, " N"], X: Float[Array, "N d"]
    ) -> tuple[State, Metrics]:
        """Return the state after the generation, and metrics; X are behaviors."""
        config = self.config
        empty = jax.eval_shape(partial(self.proximity.empty, config, X.shape[1]))
        past, empty = (jax.tree.map(lambda x: x.shape, tree) for tree in (state.past, empty))
        if past != empty:
            raise ValueError(
                f"behaviors have length {X.shape[1]}, unlike those that tell() received "
                "before: use one embedding for all generations."
            )
        kept = jnp.isfinite(returns) & jnp.isfinite(X).all(axis=1)
        noise = self._noise(state, candidates, kept)
        kept = noise.kept
        sigma = self._sigma(state)
        sample = Sample(
            returns=SHAPINGS[config.shaping](returns, kept),
            noise=noise,
            behaviors=jnp.where(kept[:, None], X, X[jnp.argmax(kept)]),
            kept=kept,
            sigma=sigma,
        )
        new_key = partial(key_for, state.key, generation=state.generation)
        keys = Keys(fixed=key_for(state.key, FIXED, 0), fresh=new_key(FRESH))
        fitness, distance, past = self.proximity.fitness(config, state.past, keys, sample)
        spread = state.sigma
        if spread is None:
            gradient = of_sigma = es_gradient(sample, fitness)
        else:
            gradient, of_sigma = es_gradients(sample, fitness)
        direction, epsilon = self.geometry.direction(
            config, new_key(BASIS), gradient, sample, self.basis
        )
        if spread is not None:
            direction, spread = self.search.step(config, spread, direction, of_sigma)
        norm = jnp.linalg.norm(direction)
        alignment = gradient @ direction / (jnp.linalg.norm(gradient) * norm + 1e-30)
        if not is_off(config.max_norm):
            factor = config.max_norm / jnp.maximum(norm, 1e-30)
            direction = direction * (factor if config.fixed_norm else jnp.minimum(1, factor))

        params = self.unravel(state.center)
        step, optimizer = self.optimizer.update(self.unravel(-direction), state.optimizer, params)
        center = ravel_pytree(optax.apply_updates(params, step))[0]
        if self.bounds is not None:
            center = self.bounds.clip(center)
        good = jnp.isfinite(center).all() & jnp.isfinite(norm) & kept.any()
        if spread is not None:
            good &= jnp.isfinite(spread).all()
        center, spread, optimizer, past = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (center, spread, optimizer, past),
            (state.center, state.sigma, state.optimizer, state.past),
        )
        considered = jnp.where(kept, returns, -jnp.inf)
        first, highest = jnp.argmax(considered), considered.max()
        better = highest > state.best_return
        best = {
            "best": jnp.where(better, self._row(state, candidates, first), state.best),
            "best_return": jnp.where(better, returns[first], state.best_return),
        }
        left = jnp.where(kept, returns, jnp.nan)
        metrics = {
            "population_mean": jnp.nanmean(left),
            "population_best": jnp.nanmax(left),
            "population_std": jnp.nanstd(left),
            "dropped": (~kept).sum(),
            "gradient_norm": jnp.linalg.norm(gradient),
            "direction_norm": norm,
            "alignment": alignment,
            "epsilon": epsilon,
            "distance": distance,
            "sigma": jnp.sqrt(jnp.mean(jnp.square(sigma))),
            "restarts": jnp.zeros((), int),
        }
        counts = {"generation": state.generation + 1, "skipped": state.skipped + ~good}
        learned = {"center": center, "sigma": spread, "optimizer": optimizer, "past": past}
        state = state._replace(**learned, **counts, **best)
        if state.restarts is not None:
            restarts = state.restarts.after(highest)
            over = restarts.stalled >= self.config.restart_after
            state = self._restarted(state, restarts, over, new_key(RESTART))
            metrics["restarts"] = restarts.number + over
        return state, metrics

    def _restarted(self, state: State, restarts: Restarts, over: Array, key: PRNGKeyArray) -> State:
        """Start over if the search is `over`; what it has found is kept."""
        start = restarts.start if self.bounds is None else self.bounds.draw(key, restarts.start)
        again = Restarts.none_yet(restarts.start)._replace(number=restarts.number + 1)
        return jax.tree.map(
            lambda new, old: jnp.where(over, new, old),
            state._replace(**self.fresh(start), restarts=again),
            state._replace(restarts=restarts),
        )


class Programs:
    """The functions of a rule, compiled; their first argument is the numbers of the settings."""

    def __init__(self, rule: Rule):
        self.everyone = jax.jit(lambda numbers, *args: rule.at(numbers).everyone(*args))
        self.member = jax.jit(lambda numbers, *args: rule.at(numbers).member(*args))
        self.learn = jax.jit(lambda numbers, *args: rule.at(numbers).learn(*args))

        def learn_block(numbers: dict, states: State, returns: Array, X: Array) -> Any:
            learn = rule.at(numbers).learn
            return jax.vmap(lambda state, *told: learn(state, None, *told))(states, returns, X)

        self.learn_block = jax.jit(learn_block)


_programs: dict[Hashable, Programs] = {}  # the latest last


def shared_programs(rule: Rule, params: Any) -> Programs:
    """Return the programs of a rule, or of one that differs in numbers alone."""
    if (rule.own_optimizer, rule.basis, rule.bounds) != (None, None, None):
        return Programs(rule)
    leaves, tree = jax.tree.flatten(jax.eval_shape(lambda: params))
    axes = rule.proximity, rule.geometry, rule.search
    key = shape_of(rule.config), *axes, tree, *((leaf.shape, leaf.dtype) for leaf in leaves)
    try:
        found = _programs.pop(key, None) or Programs(rule)
    except TypeError:  # an axis of one's own that has no hash
        return Programs(rule)
    _programs[key] = found
    if len(_programs) > MOST_PROGRAMS:
        _programs.pop(next(iter(_programs)), None)
    return found
