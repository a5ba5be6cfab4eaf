"""Settings of the transport figure."""

import dataclasses

from wng.runs.settings import check_memory, check_seed


@dataclasses.dataclass(frozen=True)
class TransportSettings:
    """Settings of the transport figure."""

    num_samples: int = 1000
    """Number of samples N of the behavior distribution."""
    num_basis: int = 50
    """Number of kernel basis functions M."""
    seed: int = 0
    """Random seed of the samples and of the basis."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_basis <= self.num_samples:
            raise ValueError(
                f"num_basis ({self.num_basis}) must be at least 1 and not exceed num_samples "
                f"({self.num_samples})."
            )
        check_seed(self.seed)
        # All pairwise distances, in float64.
        check_memory(f"num_samples={self.num_samples}", 2 * self.num_samples**2)
