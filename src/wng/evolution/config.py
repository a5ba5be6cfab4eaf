"""Settings of a strategy, and of a run that evolves a policy with it."""

from dataclasses import dataclass
from typing import Literal

from wng.evolution.axes import GEOMETRIES, PROXIMITIES, SEARCHES
from wng.runs.settings import Limits

Shaping = Literal["standardize", "ranks", "utilities"]
PolicyKind = Literal["toeplitz", "dense"]
Start = Literal["normal", "uniform"]
Backend = Literal["auto", "jax", "mujoco", "envpool", "gymnasium", "workers"]


@dataclass(frozen=True)
class StrategyConfig:
    """Settings of a strategy with ask and tell, the same for `wng.WNES` and `wng train wnes`."""

    proximity: str = "none"
    """Distance that is added to the fitness: none, novelty, wasserstein, or module:object."""
    geometry: str = "euclidean"
    """Metric of the direction of a step: euclidean, wasserstein, or module:object."""
    search: str = "fixed"
    """How the search distribution N(θ, σ²) learns: fixed (σ stays), fisher (separable NES),
    wasserstein, or module:object."""

    population: int = 100
    """N, the number of members in a generation."""
    sigma: float = 0.05
    """σ, the standard deviation of the perturbations, at the start if it learns; 0 uses 1/√p for p
    parameters, so that a perturbation has a norm of about 1."""
    antithetic: bool = True
    """Perturb members 2i and 2i+1 in opposite directions."""
    shaping: Shaping = "standardize"
    """Scale of returns within a generation: standardize, ranks (centered), or utilities (of ranks;
    they favor the best)."""
    learning_rate: float = 0.02
    """Learning rate of Adam; if the search distribution learns, of its mean θ, where 1 is a whole
    natural step."""
    sigma_rate: float = 0.0
    """Learning rate of σ if the search distribution learns; 0 uses (3 + ln p)/(5√p) for p
    parameters, 1.5 times that with search=wasserstein."""
    search_damping: float = 3.0
    """Weight of the Fisher metric, beside 1 for the Wasserstein metric, with search=wasserstein; 0
    is the Wasserstein metric alone, in which a parameter with a small σ takes long steps."""
    max_norm: float = 0.0
    """Largest norm of the direction before Adam; 0 turns clipping off."""
    fixed_norm: bool = False
    """Scale every direction to max_norm, shorter ones too."""
    restart_after: int = 0
    """Number of generations without a better member after which the search starts over; 0 turns
    restarts off."""

    beta: float = 0.5
    """β, the weight of the distance in the fitness; the return has 1 − β."""
    memory: int = 2
    """proximity=wasserstein: number of earlier populations that the distance is to."""
    dual_features: int = 200
    """proximity=wasserstein: random features of the two test functions."""
    dual_gamma: float = 0.1
    """proximity=wasserstein: smoothing of W₂, relative to the mean squared distance."""
    dual_steps: int = 100
    """proximity=wasserstein: ascent steps on the test functions per generation."""
    dual_batch: int = 100
    """proximity=wasserstein: number of members, and of earlier ones, that each of these steps looks
    at; all of them if the population is no larger."""
    archive: int = 1000
    """proximity=novelty: number of past behaviors in the archive."""
    neighbors: int = 10
    """proximity=novelty: number of nearest behaviors that novelty is measured by."""

    delta: float = -1.3
    """δ ≤ 1, the share of the natural gradient; a negative one moves behaviors on purpose."""
    num_basis: int = 20
    """M, the rank of the metric."""
    damping: float = 0.1
    """ε, the damping of the metric; see relative_damping."""
    relative_damping: bool = True
    """Multiply the damping by the largest eigenvalue of the metric."""
    rescale: bool = False
    """Rescale the damping by the metric's diagonal, as the paper's released code does."""

    def __post_init__(self) -> None:
        LIMITS.check(self)
        if self.antithetic and self.population % 2:
            raise ValueError(
                f"population={self.population} must be even with antithetic pairs: use "
                f"{self.population + 1}, or turn antithetic off."
            )
        if self.fixed_norm and not self.max_norm:
            raise ValueError("fixed_norm needs a norm: set max_norm, for example to 1.")
        if abs(self.beta) > 1:
            raise ValueError(f"beta must be from -1 to 1, got {self.beta}.")


@dataclass(frozen=True)
class EvolutionConfig(StrategyConfig):
    """Settings of a run. The method and the environment choose the defaults (`wng methods`)."""

    backend: Backend = "auto"
    """Where episodes run: compiled (jax), in batches on all cores (mujoco, for tasks of wng;
    envpool), in this process (gymnasium), in worker processes (workers), or wherever is fastest
    (auto)."""
    horizon: int = 0
    """Maximum number of steps in an episode; 0 uses the environment's time limit."""
    action_noise: float = 0.1
    """Standard deviation of the noise on actions, in units of half their range."""
    normalize_observations: bool = False
    """Standardize observations by the mean and variance of those that members have reached."""

    policy: PolicyKind = "toeplitz"
    """Weight matrices of the policy: toeplitz (few parameters) or dense."""
    hidden: tuple[int, ...] = (16, 16)
    """Widths of the tanh layers."""
    start: Start = "normal"
    """Initial parameters of the policy: normal (weights of variance 1/in, biases 0) or uniform
    (all positive: each vector of d weights or biases is uniform in [0, 1/√d], as in the code that
    the paper's runs used)."""

    embedding: str = "final-state"
    """Behavior Φ of an episode: final-state, reward-to-go, trajectory-actions, or
    module:function."""


LIMITS = Limits(
    registries={"proximity": PROXIMITIES, "geometry": GEOMETRIES, "search": SEARCHES},
    at_least={"horizon": 0, "population": 2, "restart_after": 0},
    any_sign=("delta", "beta"),
    at_most_one=("delta",),
    may_be_zero=("max_norm", "action_noise", "sigma", "sigma_rate", "search_damping"),
)
# Groups of flags in --help, by the first setting of each.
GROUPS = {
    "proximity": "axes",
    "population": "population",
    "beta": "proximity",
    "delta": "geometry",
    "backend": "episodes",
    "policy": "policy",
    "embedding": "behavior",
}
