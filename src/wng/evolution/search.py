r"""Searches: how the search distribution N(θ, diag σ²) learns from ĝ and ĝ_σ.

    ĝ = 1/N Σ F_n ε_n/σ,     ĝ_σ = 1/N Σ F_n (ε_n² − 1)/σ,     ε_n = (θ̃_n − θ)/σ

A *fixed* search moves θ alone, through Adam. The others take a natural step in (θ, ln σ), with the
closed forms of `wng.estimator.gaussian`; σ stays positive, because its logarithm moves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from wng.estimator.gaussian import information
from wng.evolution.config import StrategyConfig
from wng.runs.settings import is_off

Vector = Float[Array, " p"]


class Search:
    """The fixed search distribution: σ stays as it is. Base class of all searches."""

    def optimizer(self, config: StrategyConfig) -> optax.GradientTransformation:
        """Make the optimizer of θ, which the user may replace."""
        return optax.adam(config.learning_rate)

    def start(self, config: StrategyConfig, center: Vector) -> Vector | None:
        """Return the initial σ of each parameter, or None if σ never changes."""
        return None

    def step(
        self, config: StrategyConfig, sigma: Vector, direction: Vector, of_sigma: Vector
    ) -> tuple[Vector, Vector]:
        """Return the direction of θ that goes to the optimizer, and the new σ.

        `direction` is what the geometry made of ĝ, and `of_sigma` is ĝ_σ. Called only if `start`
        returns σ.
        """
        return direction, sigma


class _Fisher(Search):
    """The natural step in the Fisher metric: separable NES (Wierstra et al. 2014, algorithm 6).

    σ²ĝ moves θ, and ½σĝ_σ moves ln σ.
    """

    def haste(self, config: StrategyConfig) -> Any:
        """Return the factor by which the default learning rate of σ differs from theirs."""
        return 1.0

    def information(self, config: StrategyConfig, sigma: Vector) -> tuple[Vector, Vector]:
        """Return the diagonals of the metric, for θ and for ln σ."""
        return information("fisher", "log-diagonal", jnp.log(sigma))

    def optimizer(self, config: StrategyConfig) -> optax.GradientTransformation:
        return optax.sgd(config.learning_rate)

    def start(self, config: StrategyConfig, center: Vector) -> Vector:
        return jnp.full_like(center, config.sigma)

    def step(
        self, config: StrategyConfig, sigma: Vector, direction: Vector, of_sigma: Vector
    ) -> tuple[Vector, Vector]:
        of_mean, of_log = self.information(config, sigma)
        rate: Any = config.sigma_rate
        if is_off(rate):
            rate = self.haste(config) * (3 + np.log(sigma.size)) / (5 * sigma.size**0.5)
        # No step changes σ by more than a factor e; σ, 1/σ² and σ² stay finite.
        log_step = jnp.clip(rate * sigma * of_sigma / of_log, -1, 1)
        least = float(jnp.finfo(sigma.dtype).tiny) ** 0.5
        return direction / of_mean, jnp.clip(sigma * jnp.exp(log_step), least, 1 / least)


class _Wasserstein(_Fisher):
    """The natural step in the Wasserstein metric, damped by the Fisher metric.

    In (θ, σ) the Wasserstein metric is the identity, so a step of ĝ has the length of ĝ, which
    grows as 1/σ, because the returns have a fixed scale. So lengths are measured in units of the
    current scale of the distribution, s = √(mean σ²): the metric is I/s². In it, though, a
    coordinate with σ_i ≪ s would move by many times σ_i, on the noise of its estimate alone. The
    Fisher metric, which bounds a step by σ_i, damps that: (G_W/s² + cG_F)/(1 + c), c being
    `search_damping`. The 1 + c lets θ move as in separable NES where all σ are equal.
    `benchmarks/tune_search.py` compares it with others.
    """

    def haste(self, config: StrategyConfig) -> Any:
        """Let σ move as in separable NES where all σ are equal, as θ does."""
        c = config.search_damping
        return (1 + 2 * c) / (2 + 2 * c)

    def information(self, config: StrategyConfig, sigma: Vector) -> tuple[Vector, Vector]:
        scale, c = jnp.mean(sigma**2), config.search_damping
        wasserstein = information("wasserstein", "log-diagonal", jnp.log(sigma))
        fisher = super().information(config, sigma)
        of_mean, of_log = (
            (w / scale + c * f) / (1 + c) for w, f in zip(wasserstein, fisher, strict=True)
        )
        return of_mean, of_log


FIXED, FISHER, WASSERSTEIN = Search(), _Fisher(), _Wasserstein()
