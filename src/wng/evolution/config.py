"""Every setting of an evolution run, in one frozen dataclass."""

from dataclasses import dataclass
from typing import Literal

from wng.evolution.fitness import Shaping
from wng.evolution.policies import Kind
from wng.evolution.strategy import Geometry, Proximity
from wng.runs.settings import Limits

Backend = Literal["auto", "jax", "mujoco", "gymnasium", "workers"]


@dataclass(frozen=True)
class EvolutionConfig:
    """Settings of a run. The method and the environment choose the defaults (`wng methods`)."""

    # What is learned
    proximity: Proximity = "none"
    """Global term of the fitness: novelty, or the Wasserstein distance to earlier behaviours."""
    geometry: Geometry = "euclidean"
    """Local metric that turns the gradient into a direction."""

    # Population
    population: int = 100
    """Members of a generation, in antithetic pairs."""
    sigma: float = 0.05
    """Standard deviation of the perturbations."""
    shaping: Shaping = "standardize"
    """Scale of returns within a generation: standardize, or ranks."""
    learning_rate: float = 0.02
    """Of Adam."""
    max_norm: float = 0.0
    """Shorten the direction to this norm before Adam; 0: leave it."""

    # Episodes
    backend: Backend = "auto"
    """Where episodes run: compiled (jax), batches on all cores (mujoco), this process, workers."""
    horizon: int = 0
    """Most steps of an episode; 0: the environment's own limit."""
    action_noise: float = 0.1
    """Standard deviation of noise on actions, in units of half their range."""

    # Policy
    policy: Kind = "toeplitz"
    """Weight matrices: toeplitz, of few parameters, or dense."""
    hidden: tuple[int, ...] = (16, 16)
    """Widths of the tanh layers."""

    # Behaviour
    embedding: str = "final-state"
    """Behaviour Φ of an episode: final-state, reward-to-go, trajectory-actions, or
    module:function."""

    # Proximity
    beta: float = 0.5
    """Weight of the distance in the fitness; the return has 1 − beta."""
    memory: int = 2
    """proximity=wasserstein: earlier populations that the distance is to."""
    dual_features: int = 200
    """Random features of the two test functions."""
    dual_gamma: float = 0.1
    """Smoothing of the distance, in units of the mean squared distance of behaviours."""
    dual_steps: int = 100
    """Ascent steps on the test functions in a generation."""
    archive: int = 1000
    """proximity=novelty: past behaviours that are remembered."""
    neighbors: int = 10
    """The nearest of them that a behaviour is compared with."""

    # Geometry
    delta: float = -1.3
    """δ ≤ 1, the share of the natural gradient in the direction; negative: move behaviours."""
    num_basis: int = 20
    """M, the rank of the metric."""
    damping: float = 0.1
    """ε; a multiple of the metric's largest eigenvalue with relative_damping."""
    relative_damping: bool = True
    """Whether it is."""

    def __post_init__(self) -> None:
        LIMITS.check(self)
        if self.population % 2:
            raise ValueError(
                f"population={self.population} must be even: members come in antithetic pairs."
            )
        if abs(self.beta) > 1:
            raise ValueError(f"beta must be from -1 to 1, got {self.beta}.")
        if self.geometry == "wasserstein" and self.num_basis > self.population:
            raise ValueError(
                f"num_basis={self.num_basis} needs as many behaviours, but the population is only "
                f"{self.population}: lower num_basis."
            )


LIMITS = Limits(
    registries={},
    at_least={"horizon": 0, "population": 2},
    any_sign=("delta", "beta"),
    at_most_one=("delta",),
    may_be_zero=("max_norm", "action_noise"),
)
GROUPS: dict[str, str] = {}
