"""wng: Wasserstein natural gradients for reinforcement learning and evolution strategies."""

from importlib.metadata import version

from wng.behavior import Embedding, Trajectory
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
from wng.policy_gradient.agent import (
    BGPG,
    BGWNPG,
    NPG,
    PG,
    PPO,
    PPOKL,
    TRPO,
    WNPG,
    WTRPO,
    Agent,
    load,
)
from wng.policy_gradient.config import Config
from wng.runs.directory import RunDirectory

__version__ = version("wng")

__all__ = [
    "BGPG",
    "BGWNPG",
    "NPG",
    "PG",
    "PPO",
    "PPOKL",
    "TRPO",
    "WNPG",
    "WTRPO",
    "Agent",
    "Config",
    "Damping",
    "Embedding",
    "RunDirectory",
    "Trajectory",
    "WassersteinMetric",
    "__version__",
    "fisher_solve",
    "fisher_vector_product",
    "jacobian_perturbation",
    "jacobian_reparam",
    "jacobian_score",
    "kernel_basis",
    "load",
    "polynomial_basis",
    "scale_by_wasserstein",
]
