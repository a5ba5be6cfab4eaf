"""Settings of the Gaussian study."""

import dataclasses

from wng.runs.settings import LARGEST, check_memory, check_seed


@dataclasses.dataclass(frozen=True)
class ToySettings:
    """Settings of the Gaussian study. "Not given" marks values that the paper leaves open."""

    dim: int = 100
    """Number of dimensions (paper: 100)."""
    iterations: int = 4000
    """Number of gradient evaluations per run (paper: 4000)."""
    step_size: float = 0.9
    """Step size λ of the runs that do not vary it (paper: 0.9)."""
    beta: float = 0.1
    """Penalty weight β of the runs that do not vary it (paper: 0.1)."""
    inner_steps: int = 10
    """Number of gradient steps a penalized method takes before its reference θ_k moves (paper: not
    given). The gradient of a divergence vanishes at θ_k, so with 1 a penalty has no effect."""
    mean: float = 2.0
    """Center of the initial means (paper: not given)."""
    spread: float = 0.5
    """Standard deviation of the initial means around their center (paper: not given)."""
    std: float = 1.0
    """Initial standard deviation of the Gaussian (paper: not given)."""
    num_basis: int = 5
    """Number of basis functions M of the estimated Wasserstein geometry."""
    num_samples: int = 100
    """Number of samples N per iteration of the estimated Wasserstein geometry."""
    damping: float = 1e-10
    """Damping ε of the estimated Wasserstein geometry (the closed forms need none)."""
    seed: int = 0
    """Random seed of the initial means and of the estimator's samples."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("mean", "spread", "seed") and not value > 0:
                raise ValueError(f"{field.name} must be positive, got {value}.")
            if not abs(value) <= LARGEST:
                raise ValueError(f"{field.name} must be finite, got {value}.")
        check_seed(self.seed)
        check_memory(f"iterations={self.iterations}", 2 * 3 * 17 * self.iterations)  # in float64
        check_memory(
            f"num_samples={self.num_samples} in dim={self.dim}", 2 * self.num_samples * self.dim
        )
        if self.num_basis > self.num_samples:
            raise ValueError(
                f"num_basis ({self.num_basis}) must not exceed num_samples ({self.num_samples})."
            )
