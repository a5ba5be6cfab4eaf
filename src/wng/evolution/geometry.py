r"""Geometries: which metric turns the gradient ĝ into a direction Δθ.

    Δθ = (1 − δ) ĝ + δ ε ĝ^W,     ĝ^W = (Ĝ + εI)⁻¹ ĝ      (eq. 15)

ε ĝ^W is ĝ without its part along directions that move behaviors: δ > 0 keeps behaviors near, δ < 0
moves them on purpose. (The paper writes ĝ^W for ε ĝ^W; only the latter has the scale of ĝ.)

With `rescale`, the damping is ε diag(1/d) instead of εI, so ε ĝ^W has the scale of d∘ĝ, and

    Δθ = (1 − δ) d∘ĝ + δ ε ĝ^W = d∘(ĝ − δ Jᵀ(J diag(d) Jᵀ + εL)†J (d∘ĝ)),

as in the paper's code. (With (1 − δ) ĝ, which is far larger, δ would have no effect.)
"""

import jax.numpy as jnp
from jaxtyping import Array, Float
from jaxtyping import PRNGKeyArray as Key

from wng.estimator import Damping, WassersteinMetric, kernel_basis
from wng.estimator.basis import Basis
from wng.estimator.jacobian import perturbation_weights
from wng.estimator.precondition import precondition
from wng.evolution.config import StrategyConfig
from wng.evolution.fitness import Sample
from wng.runs.settings import is_off

Gradient = Float[Array, " p"]


class Geometry:
    """The Euclidean geometry: the direction is the gradient. Base class of all geometries."""

    def check(self, config: StrategyConfig, basis: Basis | None) -> None:
        """Raise a ValueError if the settings do not fit this geometry."""

    def needs_behaviors(self, config: StrategyConfig) -> bool:
        """Whether `direction` uses behaviors."""
        return False

    def direction(
        self, config: StrategyConfig, key: Key, g: Gradient, sample: Sample, basis: Basis | None
    ) -> tuple[Gradient, Float[Array, ""]]:
        """Return Δθ for the gradient ĝ = `g`, and the damping ε of the metric.

        `key` is new in each generation; `basis` replaces the kernel basis if it is not None.
        """
        return g, jnp.zeros(())


class _Wasserstein(Geometry):
    """The Wasserstein geometry of behaviors, by the kernel estimator (WNES)."""

    def check(self, config: StrategyConfig, basis: Basis | None) -> None:
        if basis is None and config.num_basis > config.population:
            raise ValueError(
                f"num_basis={config.num_basis} needs as many behaviors, but the population is "
                f"only {config.population}: lower num_basis."
            )

    def needs_behaviors(self, config: StrategyConfig) -> bool:
        return config.rescale or not is_off(config.delta)

    def direction(
        self, config: StrategyConfig, key: Key, g: Gradient, sample: Sample, basis: Basis | None
    ) -> tuple[Gradient, Float[Array, ""]]:
        if not self.needs_behaviors(config):
            return g, jnp.zeros(())
        X = sample.behaviors
        basis = kernel_basis(key, X, config.num_basis) if basis is None else basis
        J = sample.noise.sums(perturbation_weights(basis, X))  # eq. 14
        J = J / (config.population * sample.sigma**2)
        J = J * (config.population / jnp.maximum(sample.kept.sum(), 1))
        metric = WassersteinMetric(basis, X, J, rescale=config.rescale).spectrum
        damping = Damping(config.damping, relative=config.relative_damping)
        found = precondition(damping, damping.init(), metric, g)
        plain = g if metric.root_scale is None else metric.root_scale**2 * g
        mixed = (1 - config.delta) * plain + config.delta * found.epsilon * found.direction
        return jnp.where(found.fallback, g, mixed), found.epsilon


EUCLIDEAN, WASSERSTEIN = Geometry(), _Wasserstein()
