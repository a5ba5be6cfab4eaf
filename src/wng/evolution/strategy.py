r"""Evolution strategies with ask and tell, for any black box and any pytree of parameters.

A strategy perturbs its parameters, θ̃_n = θ + σε_n, is told how good each one was and how it
behaved, and moves θ. Two choices say how: what counts as good (*proximity*: novelty, or the
Wasserstein distance to earlier behaviours), and which metric turns the gradient into a direction
(*geometry*):

    Δθ ∝ (1 − δ) ĝ + δ ε ĝ^W,     ĝ^W = (Ĝ + εI)⁻¹ ĝ      (eq. `update_gradient_ES`)

ε ĝ^W is ĝ without what lies in directions that move behaviours: with δ > 0 the step keeps
behaviours near, with δ < 0 it moves them on purpose. (The paper writes ĝ^W for εĝ^W; only that has
the scale of ĝ.)
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from wng.behavior.registry import check_choice
from wng.estimator import Damping, WassersteinMetric, jacobian_perturbation, kernel_basis
from wng.estimator.basis import Basis
from wng.estimator.checks import check_count, check_key, check_params, check_positive
from wng.estimator.precondition import precondition
from wng.evolution.fitness import SHAPINGS, Shaping, es_gradient, standardized
from wng.evolution.proximity import Archive, Memory

Proximity = Literal["none", "novelty", "wasserstein"]
Geometry = Literal["euclidean", "wasserstein"]
Metrics = dict[str, Array]


class State(NamedTuple):
    """All that a strategy remembers: a pytree, to be scanned, vmapped or saved."""

    center: Float[Array, " p"]  # θ, flat
    optimizer: Any
    generation: Int[Array, ""]
    key: PRNGKeyArray
    past: Archive | Memory | None  # None also before the first `tell`
    skipped: Int[Array, ""]  # generations without a step, for a gradient that was not finite


class Strategy:
    """An evolution strategy; `wng.ES`, `wng.WNES`, … are points on its axes.

    Args:
      params: θ at the start, any pytree of floating-point arrays.
      population: N, members of a generation.
      sigma: σ, standard deviation of the perturbations.
      proximity: none, novelty (NSR-ES) or wasserstein (BGES).
      geometry: euclidean, or wasserstein (WNES).
      learning_rate: of Adam, unless `optimizer` is given.
      optimizer: any optax optimiser; it is handed −Δθ.
      shaping: how returns are put on a scale: standardize, or ranks (centred).
      antithetic: members 2i and 2i+1 are perturbed in opposite directions.
      max_norm: shorten Δθ to this norm before the optimiser.
      delta: δ ≤ 1; negative values push behaviours away from the present ones.
      num_basis: M, the rank of the metric.
      damping: ε, or a `wng.Damping`; by default a tenth of the metric's largest eigenvalue.
      basis: a fixed basis, such as `wng.polynomial_basis`, in place of a kernel basis.
      beta: β, the weight of the distance in the fitness.
      memory: n, how many earlier populations the Wasserstein distance is to.
      dual_features, dual_gamma, dual_steps: random features of the test functions, smoothing of
        the distance (in units of the mean squared distance), ascent steps a generation.
      archive: how many past behaviours novelty remembers.
      neighbors: how many of them a behaviour is compared with.
    """

    def __init__(
        self,
        params: Any,
        population: int = 100,
        sigma: float = 0.02,
        *,
        proximity: Proximity = "none",
        geometry: Geometry = "euclidean",
        learning_rate: float = 0.02,
        optimizer: optax.GradientTransformation | None = None,
        shaping: Shaping = "standardize",
        antithetic: bool = True,
        max_norm: float | None = None,
        delta: float = 1.0,
        num_basis: int = 20,
        damping: float | Damping | None = None,
        basis: Basis | None = None,
        beta: float = 0.5,
        memory: int = 2,
        dual_features: int = 200,
        dual_gamma: float = 0.1,
        dual_steps: int = 100,
        archive: int = 1000,
        neighbors: int = 10,
    ):
        check_params(params)
        check_count(population, "population", 2)
        if antithetic and population % 2:
            raise ValueError(
                f"population={population} must be even with antithetic pairs: take "
                f"{population + 1}, or antithetic=False."
            )
        for name, value in (("sigma", sigma), ("learning_rate", learning_rate)):
            check_positive(value, name)
        check_choice("proximity", proximity, get_args(Proximity))
        check_choice("geometry", geometry, get_args(Geometry))
        check_choice("shaping", shaping, get_args(Shaping))
        if max_norm is not None:
            check_positive(max_norm, "max_norm")
        if not (isinstance(delta, int | float) and -float("inf") < delta <= 1):
            raise ValueError(f"delta must be a number of at most 1, got {delta!r}.")
        if not (isinstance(beta, int | float) and -1 <= beta <= 1):
            raise ValueError(f"beta must be a number from -1 to 1, got {beta!r}.")
        counts = {"memory": memory, "dual_features": dual_features, "dual_steps": dual_steps}
        for name, count in (counts | {"archive": archive, "neighbors": neighbors}).items():
            check_count(count, name, 1)
        check_positive(dual_gamma, "dual_gamma")
        check_count(num_basis, "num_basis", 1)
        if geometry == "wasserstein" and basis is None and num_basis > population:
            raise ValueError(
                f"num_basis={num_basis} needs as many behaviours, but the population is only "
                f"{population}: lower num_basis."
            )
        if damping is None:
            damping = Damping(0.1, relative=True)
        elif not isinstance(damping, Damping):
            damping = Damping(damping)
        if damping.every:
            raise ValueError(
                "evolution strategies have no batch to measure a reduction ratio on: use a "
                "Damping that does not adapt (every=0)."
            )
        self._flat, self._unravel = ravel_pytree(params)
        self.population, self.sigma, self.antithetic = population, sigma, antithetic
        self.proximity, self.geometry, self.delta, self.beta = proximity, geometry, delta, beta
        self._shape = SHAPINGS[shaping]
        self._optimizer = optax.adam(learning_rate) if optimizer is None else optimizer
        self._max_norm, self._damping = max_norm, damping
        self._basis, self._num_basis = basis, num_basis
        self._memory, self._features = memory, dual_features
        self._gamma, self._dual_steps = dual_gamma, dual_steps
        self._archive, self._neighbors = archive, neighbors
        self._ask_one = jax.jit(self._member)  # compiled both: rounding is the same
        self._ask_all = jax.jit(self._members)
        self._tell_all = jax.jit(self._update)

    @property
    def needs_behaviors(self) -> bool:
        """Whether `tell` must be told behaviours."""
        return self.proximity != "none" or self._uses_metric

    @property
    def _uses_metric(self) -> bool:
        return self.geometry == "wasserstein" and self.delta != 0

    def init(self, key: PRNGKeyArray, behavior_size: int | None = None) -> State:
        """The state before the first generation.

        Args:
          key: of all randomness.
          behavior_size: d, the length of a behaviour. Needed only where `tell` runs inside
            `jax.lax.scan` and the strategy remembers behaviours, whose room must then be there
            from the start.
        """
        check_key(key)
        return State(
            center=self._flat,
            optimizer=self._optimizer.init(self._unravel(self._flat)),
            generation=jnp.zeros((), int),
            key=key,
            past=None if behavior_size is None else self._no_past(behavior_size),
            skipped=jnp.zeros((), int),
        )

    def _no_past(self, dim: int) -> Archive | Memory | None:
        check_count(dim, "behavior_size", 1)
        if self.proximity == "novelty":
            return Archive.empty(self._archive, dim)
        if self.proximity == "wasserstein":
            return Memory.empty(self._memory, self.population, dim, self._features)
        return None

    def params(self, state: State) -> Any:
        """θ, as the pytree that it came as."""
        return self._unravel(state.center)

    def member(self, state: State, number: int | Array) -> Any:
        """One member of the generation: it follows from (key, generation, number) alone.

        So whoever has the state can make any member; only numbers need to travel.
        """
        return self._ask_one(state, number)

    def _member(self, state: State, number: int | Array) -> Any:
        pair = number // 2 if self.antithetic else number
        key = jax.random.fold_in(_key(state, "members", state.generation), pair)
        noise = jax.random.normal(key, state.center.shape, state.center.dtype)
        if self.antithetic:
            noise = jnp.where(number % 2 == 0, noise, -noise)
        return self._unravel(state.center + self.sigma * noise)

    def _members(self, state: State) -> Any:
        return jax.vmap(lambda n: self._member(state, n))(jnp.arange(self.population))

    def ask(self, state: State) -> tuple[Any, State]:
        """The members of this generation, leaves with a leading [population] axis.

        Asking again gives the same members; `tell` begins the next generation.
        """
        return self._ask_all(state), state

    def tell(
        self,
        state: State,
        candidates: Any,
        returns: ArrayLike,
        behaviors: ArrayLike | None = None,
    ) -> tuple[State, Metrics]:
        """Move θ by what the members achieved (higher is better) and how they behaved.

        Args:
          state: as `ask` had it.
          candidates: the members that were evaluated: those of `ask`, or what became of them (a
            bound may have been applied).
          returns: one number each. Members with a return, or a behaviour, that is not finite are
            left out, and counted.
          behaviors: one vector each; only where `needs_behaviors`.

        Returns:
          The new state, and numbers about the generation.
        """
        shape = jnp.shape(returns)
        if shape != (self.population,):
            raise ValueError(
                f"returns must have shape [{self.population}], one for each member, got shape "
                f"{list(shape)}."
            )
        expected = jax.tree.map(
            lambda leaf: (self.population, *jnp.shape(leaf)), self._unravel(self._flat)
        )
        if jax.tree.map(jnp.shape, candidates) != expected:
            raise ValueError(
                "candidates must be the parameters of all members, as ask() returned them: the "
                f"same pytree, with a leading axis of {self.population}."
            )
        X = None
        if self.needs_behaviors:
            if behaviors is None:
                raise ValueError(
                    "this strategy compares behaviours: pass tell() behaviors, a vector for each "
                    "member."
                )
            size = jnp.shape(behaviors)
            if len(size) not in (1, 2) or size[0] != self.population or 0 in size:
                raise ValueError(
                    f"behaviors must have shape [{self.population}, d], a vector for each member, "
                    f"got shape {list(size)}."
                )
            X = jnp.asarray(behaviors, float).reshape(self.population, -1)
            if state.past is None:
                state = state._replace(past=self._no_past(X.shape[1]))
            elif state.past.behaviors.shape[-1] != X.shape[1]:
                raise ValueError(
                    f"behaviors have length {X.shape[1]}, but those told before had "
                    f"{state.past.behaviors.shape[-1]}."
                )
        return self._tell_all(state, candidates, jnp.asarray(returns, float), X)

    def _update(
        self, state: State, candidates: Any, returns: Array, X: Array | None
    ) -> tuple[State, Metrics]:
        kept = jnp.isfinite(returns)
        noise = jax.vmap(lambda tree: ravel_pytree(tree)[0])(candidates) - state.center
        kept &= jnp.isfinite(noise).all(axis=1)
        if X is not None:
            kept &= jnp.isfinite(X).all(axis=1)
            X = jnp.where(kept[:, None], X, X[jnp.argmax(kept)])  # some behaviour that occurred
        noise = jnp.where(kept[:, None], noise, 0)
        fitness, past, distance = self._fitness(state, returns, X, kept)
        gradient = es_gradient(noise, fitness, self.sigma, kept)
        direction, epsilon = self._direction(state, gradient, X, noise, kept)
        norm = jnp.linalg.norm(direction)
        if self._max_norm is not None:
            direction = direction * jnp.minimum(1, self._max_norm / jnp.maximum(norm, 1e-30))

        params = self._unravel(state.center)
        step, optimizer = self._optimizer.update(self._unravel(-direction), state.optimizer, params)
        center = ravel_pytree(optax.apply_updates(params, step))[0]
        good = jnp.isfinite(center).all() & jnp.isfinite(norm) & kept.any()
        center, optimizer, past = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (center, optimizer, past),
            (state.center, state.optimizer, state.past),
        )
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
        }
        new = State(
            center,
            optimizer,
            state.generation + 1,
            state.key,
            past,
            state.skipped + jnp.where(good, 0, 1),
        )
        return new, metrics

    def _fitness(
        self, state: State, returns: Array, X: Array | None, kept: Bool[Array, " N"]
    ) -> tuple[Array, Archive | Memory | None, Array]:
        """F, the past with this generation in it, and the mean distance to the past before."""
        good = self._shape(returns, kept)
        if X is None or state.past is None:
            return good, state.past, jnp.zeros(())
        if isinstance(state.past, Archive):
            each = state.past.novelty(X, self._neighbors)
            distance = jnp.where(kept, each, 0).sum() / jnp.maximum(kept.sum(), 1)
            # Any member stands for the policy's behaviour; by chance one that was dropped: its
            # stand-in.
            chosen = jax.random.randint(
                _key(state, "archive", state.generation), (), 0, self.population
            )
            past: Archive | Memory = state.past.add(X[chosen])
        else:
            # The same features in all generations: the test functions carry over.
            key = _key(state, "features", 0)
            each, distance, potentials = state.past.distance(
                key, X, kept, gamma=self._gamma, steps=self._dual_steps
            )
            past = state.past.add(X, potentials)
        fitness = (1 - self.beta) * good + self.beta * standardized(each, kept)
        return fitness, past, distance

    def _direction(
        self, state: State, gradient: Array, X: Array | None, noise: Array, kept: Array
    ) -> tuple[Array, Array]:
        """Δθ, and the ε of the metric."""
        if not self._uses_metric or X is None:
            return gradient, jnp.zeros(())
        key = _key(state, "basis", state.generation)
        basis = kernel_basis(key, X, self._num_basis) if self._basis is None else self._basis
        J = jacobian_perturbation(basis, X, noise, self.sigma)  # eq. `ES_jacobian`
        J = J * (self.population / jnp.maximum(kept.sum(), 1))
        metric = WassersteinMetric(basis, X, J).spectrum
        found = precondition(self._damping, self._damping.init(), metric, gradient)
        natural = jnp.where(found.fallback, gradient, found.epsilon * found.direction)
        return (1 - self.delta) * gradient + self.delta * natural, found.epsilon


def _key(state: State, purpose: str, generation: int | Array) -> PRNGKeyArray:
    """The key of a generation for one purpose."""
    purposes = ("members", "archive", "features", "basis")
    return jax.random.fold_in(jax.random.fold_in(state.key, purposes.index(purpose)), generation)
