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
    """Settings of an evolution strategy, the same for `wng.WNES` and `wng train wnes`."""

    proximity: str = "none"
    """Distance to earlier behaviors that is added to the fitness: none, novelty, wasserstein, or
    module:object."""
    geometry: str = "euclidean"
    """Local metric that turns the gradient into a direction: euclidean, wasserstein, or
    module:object."""
    search: str = "fixed"
    """How the search distribution N(θ, σ²) learns: fixed (σ does not change), fisher (natural steps
    in the Fisher metric, separable NES), wasserstein (natural steps in the Wasserstein metric), or
    module:object."""

    population: int = 100
    """Number N of members in a generation."""
    sigma: float = 0.05
    """Standard deviation σ of the perturbations, or its initial value if search is not fixed; 0
    uses 1/√p for p parameters, so that a perturbation has a norm of about 1."""
    antithetic: bool = True
    """Perturb members 2i and 2i+1 in opposite directions."""
    shaping: Shaping = "standardize"
    """How returns are scaled within a generation: standardize (mean 0, standard deviation 1), ranks
    (centered ranks), or utilities (a function of the ranks that favors the best members)."""
    learning_rate: float = 0.02
    """Learning rate of Adam with search=fixed; otherwise, the learning rate of the mean θ, where 1
    takes the whole natural step."""
    sigma_rate: float = 0.0
    """Learning rate of σ if search is not fixed; 0 uses (3 + ln p)/(5√p) for p parameters. With
    search=wasserstein, 0 uses the rate at which equal σ change as fast as with search=fisher."""
    search_damping: float = 3.0
    """Weight of the Fisher metric relative to the Wasserstein metric with search=wasserstein; 0
    uses the Wasserstein metric alone, in which a parameter with a small σ takes long steps."""
    max_norm: float = 0.0
    """Largest norm of the direction before the optimizer; 0 turns clipping off."""
    fixed_norm: bool = False
    """Scale every direction to the norm max_norm, even shorter ones."""
    restart_after: int = 0
    """Number of generations without a better member after which the search starts over; 0 turns
    restarts off."""

    beta: float = 0.5
    """Weight β of the distance to earlier behaviors in the fitness; the return has the weight
    1 − β."""
    memory: int = 2
    """Number of earlier populations to compare with, for proximity=wasserstein."""
    dual_features: int = 200
    """Number of random features of the two test functions, for proximity=wasserstein."""
    dual_gamma: float = 0.1
    """Smoothing of W₂, relative to the mean squared distance between behaviors, for
    proximity=wasserstein."""
    dual_steps: int = 100
    """Ascent steps on the test functions per generation, for proximity=wasserstein."""
    dual_batch: int = 100
    """Number of current and of earlier members in each ascent step on the test functions, for
    proximity=wasserstein; smaller populations are used whole."""
    archive: int = 1000
    """Number of past behaviors in the archive, for proximity=novelty."""
    neighbors: int = 10
    """Number of nearest behaviors whose mean distance is the novelty, for proximity=novelty."""

    delta: float = -1.3
    """Share δ ≤ 1 of the Wasserstein natural gradient in the direction, for geometry=wasserstein; a
    positive δ keeps behaviors near the present ones, a negative one moves them on purpose."""
    num_basis: int = 20
    """Number M of basis functions, the rank of the metric, for geometry=wasserstein."""
    damping: float = 0.1
    """Damping ε of the metric; a multiple of its largest eigenvalue with relative_damping."""
    relative_damping: bool = True
    """Measure the damping in units of the metric's largest eigenvalue."""
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
    """Settings of an evolution run. The method and the environment choose the defaults.

    `wng methods` shows them.
    """

    backend: Backend = "auto"
    """Where episodes run: inside a compiled program if they are written in JAX (jax), in batches on
    all cores (mujoco, for environments with a mujoco_task; envpool), in this process (gymnasium),
    in worker processes (workers), or wherever is fastest (auto)."""
    horizon: int = 0
    """Maximum number of steps in an episode; 0 uses the environment's time limit."""
    action_noise: float = 0.1
    """Standard deviation of the noise on actions, in units of half their range."""
    normalize_observations: bool = False
    """Standardize observations by the mean and variance of those that the members have reached."""

    policy: PolicyKind = "toeplitz"
    """Weight matrices of the policy: toeplitz (few parameters) or dense."""
    hidden: tuple[int, ...] = (16, 16)
    """Widths of the policy's tanh layers."""
    start: Start = "normal"
    """Initial parameters of the policy: normal (weights have variance 1/inputs, biases are 0) or
    uniform (a layer's d weights, or d biases, are uniform between 0 and 1/√d, as in the code of the
    paper's runs)."""

    embedding: str = "final-state"
    """Embedding Φ that maps an episode to its behavior: final-state, reward-to-go,
    trajectory-actions, or module:function."""


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
