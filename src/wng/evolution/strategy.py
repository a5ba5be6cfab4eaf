r"""Evolution strategies with ask and tell, for any black box and any pytree of parameters.

A strategy perturbs its parameters, θ̃_n = θ + σε_n, is told how good each member was and how it
behaved, and moves θ. Three choices say how: the *proximity* (a distance to earlier behaviors that
is added to the fitness), the *geometry* (the metric that turns the gradient into a direction) and
the *search* (whether σ learns, too).
"""

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from wng.estimator.basis import Basis
from wng.estimator.checks import check_count, check_key, check_params
from wng.evolution.axes import GEOMETRIES, PROXIMITIES, SEARCHES
from wng.evolution.bounds import read_bounds
from wng.evolution.config import StrategyConfig
from wng.evolution.fitness import SHAPINGS, Sample, es_gradient, es_gradients
from wng.evolution.members import BASIS, BLOCK, FIXED, FRESH, RESTART, Noise, key_for, members
from wng.evolution.proximity import Keys
from wng.evolution.state import State
from wng.evolution.told import check_candidates, read_behaviors, read_returns
from wng.runs.settings import check_names

Metrics = dict[str, Array]


class Strategy:
    """An evolution strategy; `wng.ES`, `wng.WNES`, … are points on its axes.

    Args:
      params: θ at the start, any pytree of floating-point arrays.
      config: Settings; by default `defaults`, those of the class.
      optimizer: Any optax optimizer, in place of Adam (or of plain steps, if σ learns); it is given
        −Δθ.
      basis: Fixed basis, such as `wng.polynomial_basis`, in place of a kernel basis.
      bounds: Lowest and highest parameters, each a number or a pytree like `params`. Members and θ
        are clipped to them, and a restart begins at a random point between them.
      settings: Fields of the configuration to override.

    Attributes:
      config: Settings with the overrides, and σ as it is used.
      proximity: The object that `config.proximity` names.
      geometry: The object that `config.geometry` names.
      search: The object that `config.search` names.
    """

    defaults: ClassVar[StrategyConfig] = StrategyConfig()

    def __init__(
        self,
        params: Any,
        config: StrategyConfig | None = None,
        *,
        optimizer: optax.GradientTransformation | None = None,
        basis: Basis | None = None,
        bounds: tuple[Any, Any] | None = None,
        **settings: Any,
    ):
        check_params(params)
        config = self.defaults if config is None else config
        if not isinstance(config, StrategyConfig):
            raise ValueError(
                f"config must be a StrategyConfig, got a {type(config).__name__}: pass settings "
                "by name, such as population=100."
            )
        check_names(settings, type(config))
        self._flat, self._unravel = ravel_pytree(params)
        config = dataclasses.replace(config, **settings)
        sigma = config.sigma or self._flat.size**-0.5
        self.config = dataclasses.replace(config, sigma=sigma)
        self.proximity = PROXIMITIES.find(self.config.proximity)
        self.geometry = GEOMETRIES.find(self.config.geometry)
        self.geometry.check(self.config, basis)
        self.search = SEARCHES.find(self.config.search)
        self._optimizer = self.search.optimizer(self.config) if optimizer is None else optimizer
        self._basis = basis
        self._bounds = None if bounds is None else read_bounds(params, bounds)
        self._ask_one = jax.jit(self._member)  # both compiled, so that they round alike
        self._ask_all = jax.jit(
            lambda state: jax.vmap(self._unravel)(self._members(state, 0, self.config.population))
        )
        self._tell_all = jax.jit(self._update)

    @property
    def needs_behaviors(self) -> bool:
        """Whether `tell` needs behaviors."""
        return self.proximity.needs_behaviors or self.geometry.needs_behaviors(self.config)

    def init(
        self, key: PRNGKeyArray, behavior_size: int | None = None, params: Any = None
    ) -> State:
        """Return the state before the first generation.

        Args:
          key: Random key.
          behavior_size: d, the length of a behavior. Needed only if `tell` runs inside
            `jax.lax.scan` and the strategy remembers behaviors: the state must then have its
            final shape from the start.
          params: θ at the start, by default the one the strategy was made with.
        """
        check_key(key)
        past = None
        if behavior_size is not None:
            check_count(behavior_size, "behavior_size", 1)
            past = self.proximity.empty(self.config, behavior_size)
        center = self._flat if params is None else ravel_pytree(params)[0]
        if center.shape != self._flat.shape:
            raise ValueError("params must be a pytree like the one the strategy was made with.")
        zero = jnp.zeros((), int)
        return State(
            **self._fresh(center),
            generation=zero,
            key=key,
            past=past,
            skipped=zero,
            best=center,
            best_return=jnp.asarray(-jnp.inf, float),
            stalled=zero,
            restarts=zero,
            start=center if self.config.restart_after else None,
        )

    def _fresh(self, center: Float[Array, " p"]) -> dict[str, Any]:
        """Return what learns, as it is before the first generation."""
        sigma = self.search.start(self.config, center)
        optimizer = self._optimizer.init(self._unravel(center))
        return {"center": center, "sigma": sigma, "optimizer": optimizer}

    def params(self, state: State) -> Any:
        """Return θ as a pytree like the one the strategy was made with."""
        return self._unravel(state.center)

    def best(self, state: State) -> tuple[Any, Array]:
        """Return the member with the highest return so far, as a pytree, and that return.

        Before the first `tell`, θ and −∞. Where returns are noisy, `params` is the better choice.
        """
        return self._unravel(state.best), state.best_return

    def member(self, state: State, number: int | Array) -> Any:
        """Return one member of the generation, the same as row `number` of `ask`."""
        return self._ask_one(state, number)

    def _member(self, state: State, number: int | Array) -> Any:
        pair = self._members(state, number // 2 * 2, 2)  # made as in `ask`, so that it rounds alike
        return self._unravel(pair[number % 2])

    def _members(self, state: State, first: int | Array, number: int) -> Float[Array, "n p"]:
        made = members(self.config, *state.source, first, number)
        return made if self._bounds is None else self._bounds.clip(made)

    def ask(self, state: State) -> tuple[Any, State]:
        """Return the members of this generation: leaves have a leading [population] axis.

        Asking again returns the same members; `tell` starts the next generation.
        """
        return self._ask_all(state), state

    def tell(
        self, state: State, candidates: Any, returns: ArrayLike, behaviors: ArrayLike | None = None
    ) -> tuple[State, Metrics]:
        """Move θ by what the members achieved (higher is better) and how they behaved.

        Args:
          state: State that `ask` returned.
          candidates: Members that were evaluated: those of `ask`, changed if need be (for
            example clipped to bounds). None stands for those of `ask` unchanged, which are then
            made again in blocks, so that they need not fit into memory together.
          returns: One number for each member. Members whose return or behavior is not finite are
            dropped and counted.
          behaviors: One vector for each member; used only if `needs_behaviors`.

        Returns:
          The new state, and metrics of the generation.
        """
        population = self.config.population
        told = read_returns(returns, population)
        if candidates is not None:
            check_candidates(candidates, self._unravel(self._flat), population)
        nobody = jnp.zeros((population, 0))
        X = read_behaviors(behaviors, population) if self.needs_behaviors else nobody
        if state.past is None:
            state = state._replace(past=self.proximity.empty(self.config, X.shape[1]))
        return self._tell_all(state, candidates, told, X)

    def _update(
        self, state: State, candidates: Any, returns: Array, X: Array
    ) -> tuple[State, Metrics]:
        config = self.config
        empty = jax.eval_shape(partial(self.proximity.empty, config, X.shape[1]))
        past, empty = (jax.tree.map(lambda x: x.shape, tree) for tree in (state.past, empty))
        if past != empty:
            raise ValueError(
                f"behaviors have length {X.shape[1]}, which is not the length of those told "
                "before: use one embedding for all generations."
            )
        kept = jnp.isfinite(returns) & jnp.isfinite(X).all(axis=1)
        noise = self._noise(state, candidates, kept)
        kept = noise.kept
        sigma = config.sigma if state.sigma is None else state.sigma
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
            config, new_key(BASIS), gradient, sample, self._basis
        )
        if spread is not None:
            direction, spread = self.search.step(config, spread, direction, of_sigma)
        norm = jnp.linalg.norm(direction)
        if config.max_norm:
            factor = config.max_norm / jnp.maximum(norm, 1e-30)
            direction = direction * (factor if config.fixed_norm else jnp.minimum(1, factor))

        params = self._unravel(state.center)
        step, optimizer = self._optimizer.update(self._unravel(-direction), state.optimizer, params)
        center = ravel_pytree(optax.apply_updates(params, step))[0]
        if self._bounds is not None:
            center = self._bounds.clip(center)
        good = jnp.isfinite(center).all() & jnp.isfinite(norm) & kept.any()
        if spread is not None:
            good &= jnp.isfinite(spread).all()
        center, spread, optimizer, past = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (center, spread, optimizer, past),
            (state.center, state.sigma, state.optimizer, state.past),
        )
        first = jnp.argmax(jnp.where(kept, returns, -jnp.inf))
        better = kept[first] & (returns[first] > state.best_return)
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
            "alignment": gradient @ direction / (jnp.linalg.norm(gradient) * norm + 1e-30),
            "epsilon": epsilon,
            "distance": distance,
            "sigma": jnp.sqrt(jnp.mean(jnp.square(sigma))),
        }
        counts = {"generation": state.generation + 1, "skipped": state.skipped + ~good}
        counts["stalled"] = jnp.where(better, 0, state.stalled + 1)
        learned = {"center": center, "sigma": spread, "optimizer": optimizer, "past": past}
        state = state._replace(**learned, **counts, **best)
        if state.start is not None:
            state = self._restarted(state, new_key(RESTART))
        return state, metrics

    def _restarted(self, state: State, key: PRNGKeyArray) -> State:
        """Start over if there has been no better member for long; what it has found is kept."""
        start = state.start
        assert start is not None
        if self._bounds is not None:
            start = self._bounds.draw(key, start)
        over = state.stalled >= self.config.restart_after
        counts = {"stalled": jnp.zeros_like(state.stalled), "restarts": state.restarts + 1}
        fresh = state._replace(**self._fresh(start), **counts)
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, state)

    def _row(self, state: State, candidates: Any, number: Array) -> Float[Array, " p"]:
        """One member, flat."""
        if candidates is None:
            return ravel_pytree(self._member(state, number))[0]
        return ravel_pytree(jax.tree.map(lambda x: x[number], candidates))[0]

    def _noise(self, state: State, candidates: Any, kept: Array) -> Noise:
        """θ̃_n − θ; members whose parameters are not finite are left out as well."""
        number = self.config.population
        if candidates is None:
            block = min(number, max(2, BLOCK // state.center.size // 2 * 2))
            made = partial(self._members, state, number=block)
            return Noise(lambda first: made(first) - state.center, kept, block)
        rows = jax.vmap(lambda tree: ravel_pytree(tree)[0])(candidates) - state.center
        kept &= jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(kept[:, None], rows, 0)
        return Noise(lambda first: rows, kept, number)
