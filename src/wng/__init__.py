"""wng: Wasserstein natural gradients for reinforcement learning and evolution strategies."""

from importlib.metadata import version

from wng.estimator import (
    Damping,
    WassersteinMetric,
    fisher_solve,
    fisher_vector_product,
    jacobian_perturbation,
    jacobian_reparam,
    jacobian_score,
    kernel_basis,
    polynomial_basis,
    scale_by_wasserstein,
)

__version__ = version("wng")

__all__ = [
    "Damping",
    "WassersteinMetric",
    "__version__",
    "fisher_solve",
    "fisher_vector_product",
    "jacobian_perturbation",
    "jacobian_reparam",
    "jacobian_score",
    "kernel_basis",
    "polynomial_basis",
    "scale_by_wasserstein",
]
