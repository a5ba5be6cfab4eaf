r"""Evolution strategies with ask and tell, for any black box and any pytree of parameters.

A strategy perturbs its parameters, θ̃_n = θ + σε_n, learns how good each member was and how it
behaved, and moves θ. Three choices determine how: the *proximity* (a distance to earlier behaviors
that is added to the fitness), the *geometry* (the metric that turns the gradient into a direction)
and the *search* (whether and how σ learns, too).
"""

import dataclasses
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
from wng.evolution.generation import Metrics, Rule, shared_programs
from wng.evolution.methods import METHODS, TUNED
from wng.evolution.state import Restarts, State
from wng.runs.settings import check_names, numbers_of


class Strategy:
    """An evolution strategy; `wng.ES`, `wng.WNES`, … are combinations with a name.

    Args:
      params: Initial θ, any pytree of floating-point arrays.
      config: Settings. The default is `defaults`, those of the class.
      optimizer: Any optax optimizer, in place of Adam (or of plain steps, if σ learns); it receives
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
        self._rule = Rule(
            self.config,
            self.proximity,
            self.geometry,
            self.search,
            optimizer,
            basis,
            None if bounds is None else read_bounds(params, bounds),
            self._unravel,
        )
        self._numbers, self._programs = numbers_of(self.config), shared_programs(self._rule, params)

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
          params: Initial θ, clipped to the bounds. The default is the one passed to the
            constructor.
        """
        check_key(key)
        past = None
        if behavior_size is not None:
            check_count(behavior_size, "behavior_size", 1)
            past = self.proximity.empty(self.config, behavior_size)
        center = self._flat if params is None else self._read_params(params)
        zero = jnp.zeros((), int)
        return State(
            **self._rule.fresh(center),
            generation=zero,
            key=key,
            past=past,
            skipped=zero,
            best=center,
            best_return=jnp.asarray(-jnp.inf, float),
            restarts=Restarts.none_yet(center) if self.config.restart_after else None,
        )

    def _read_params(self, params: Any) -> Float[Array, " p"]:
        like = self._unravel(self._flat)
        trees = jax.tree.structure(params), jax.tree.structure(like)
        if trees[0] != trees[1] or jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, like):
            raise ValueError("params must be a pytree like the one passed to the constructor.")
        flat = ravel_pytree(params)[0].astype(self._flat.dtype)
        bounds = self._rule.bounds
        return flat if bounds is None else bounds.clip(flat)

    def params(self, state: State) -> Any:
        """Return θ as a pytree like the one passed to the constructor."""
        return self._unravel(state.center)

    def best(self, state: State) -> tuple[Any, Array]:
        """Return the member with the highest return so far, as a pytree, and that return.

        Before the first `tell`, these are θ and −∞. If returns are noisy, `params` is the better
        choice.
        """
        return self._unravel(state.best), state.best_return

    def member(self, state: State, number: int | Array) -> Any:
        """Return one member of the generation, the same as row `number` of `ask`."""
        return self._programs.member(self._numbers, state, number)

    def ask(self, state: State) -> tuple[Any, State]:
        """Return the members of this generation: leaves have a leading [population] axis.

        Asking again returns the same members; `tell` starts the next generation.
        """
        return self._programs.everyone(self._numbers, state), state

    def tell(
        self, state: State, candidates: Any, returns: ArrayLike, behaviors: ArrayLike | None = None
    ) -> tuple[State, Metrics]:
        """Move θ by what the members achieved (higher is better) and how they behaved.

        Args:
          state: State that `ask` returned.
          candidates: Members that were evaluated: those of `ask`, possibly changed (for example,
            clipped to bounds). None stands for those of `ask` unchanged, which are then
            regenerated in blocks, so that they need not fit in memory together.
          returns: One number for each member. Members whose return or behavior is not finite are
            dropped and counted.
          behaviors: One vector for each member; used only if `needs_behaviors`.

        Returns:
          The new state, and metrics of the generation.
        """
        population = self.config.population
        told = _read_returns(returns, population)
        if candidates is not None:
            _check_candidates(candidates, self._unravel(self._flat), population)
        nobody = jnp.zeros((population, 0))
        X = _read_behaviors(behaviors, population) if self.needs_behaviors else nobody
        if state.past is None:
            state = state._replace(past=self.proximity.empty(self.config, X.shape[1]))
        return self._programs.learn(self._numbers, state, candidates, told, X)

    def tell_block(
        self, states: State, returns: Float[Array, "S N"], behaviors: Float[Array, "S N d"]
    ) -> tuple[State, Metrics]:
        """Do what `tell` does for S searches at once, with the members of `ask` unchanged.

        All arrays, including those in `states`, have a leading axis of length S. `states` must come
        from `init` with a `behavior_size`.
        """
        X = jnp.asarray(behaviors, float)[..., : None if self.needs_behaviors else 0]
        return self._programs.learn_block(self._numbers, states, jnp.asarray(returns, float), X)


def _check_candidates(candidates: Any, params: Any, population: int) -> None:
    """Raise a ValueError unless `candidates` are as many as the population, each like `params`."""
    expected = jax.tree.map(lambda leaf: (population, *jnp.shape(leaf)), params)
    if jax.tree.map(jnp.shape, candidates) != expected:
        raise ValueError(
            "candidates must be the parameters of all members as ask() returned them: the "
            f"same pytree, with a leading axis of {population}."
        )


def _read_returns(returns: ArrayLike, population: int) -> Float[Array, " N"]:
    """Return the returns as an array, one for each member."""
    if jnp.shape(returns) != (population,):
        raise ValueError(
            f"returns must have shape [{population}], one for each member, got shape "
            f"{list(jnp.shape(returns))}."
        )
    return jnp.asarray(returns, float)


def _read_behaviors(behaviors: ArrayLike | None, population: int) -> Float[Array, "N d"]:
    """Return the behaviors as an array, a vector for each member."""
    if behaviors is None:
        raise ValueError(
            "this strategy compares behaviors: pass tell() behaviors, a vector for each member."
        )
    size = jnp.shape(behaviors)
    if len(size) not in (1, 2) or size[0] != population or 0 in size:
        raise ValueError(
            f"behaviors must have shape [{population}, d], a vector for each member, got "
            f"shape {list(size)}."
        )
    return jnp.asarray(behaviors, float).reshape(population, -1)


def _method_class(key: str) -> type[Strategy]:
    """Make the class of a method, with the settings of `wng train <method>` as its defaults."""
    method = METHODS[key]
    about = f"{method.title}: {method.about}. See `wng.Strategy` for the arguments."
    defaults = StrategyConfig(**{**method.axes, **TUNED[key]})
    return type(key.upper(), (Strategy,), {"__doc__": about, "defaults": defaults})


ES, NSRES, BGES, WNES, BGWNES, NSRWNES, SNES, WSNES = map(
    _method_class, ("es", "nsres", "bges", "wnes", "bgwnes", "nsrwnes", "snes", "wsnes")
)
