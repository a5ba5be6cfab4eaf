"""The mathematics of the Wasserstein natural gradient: arrays in, arrays out."""

from wng.estimator import gaussian
from wng.estimator.basis import (
    Basis,
    KernelBasis,
    PolynomialBasis,
    kernel_basis,
    polynomial_basis,
)
from wng.estimator.conditional import ConditionalBasis, conditional_basis
from wng.estimator.damping import Damping, DampingState, reduction_ratio
from wng.estimator.fisher import fisher_solve, fisher_vector_product
from wng.estimator.jacobian import jacobian_perturbation, jacobian_reparam, jacobian_score
from wng.estimator.masking import fill_masked
from wng.estimator.metric import LowRank, WassersteinMetric
from wng.estimator.precondition import Metric, precondition
from wng.estimator.transform import (
    ScaleByMetricState,
    scale_by_metric,
    scale_by_wasserstein,
)
from wng.estimator.tuning import TuningState

__all__ = [
    "Basis",
    "ConditionalBasis",
    "Damping",
    "DampingState",
    "KernelBasis",
    "LowRank",
    "Metric",
    "PolynomialBasis",
    "ScaleByMetricState",
    "TuningState",
    "WassersteinMetric",
    "conditional_basis",
    "fill_masked",
    "fisher_solve",
    "fisher_vector_product",
    "gaussian",
    "jacobian_perturbation",
    "jacobian_reparam",
    "jacobian_score",
    "kernel_basis",
    "polynomial_basis",
    "precondition",
    "reduction_ratio",
    "scale_by_metric",
    "scale_by_wasserstein",
]
