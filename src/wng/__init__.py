"""wng: Wasserstein natural gradients for reinforcement learning and evolution strategies."""

from importlib.metadata import version

from wng.agents.agent import (
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
)
from wng.agents.load import load
from wng.behavior import Embedding, Trajectory
from wng.estimator import (
    Damping,
    WassersteinMetric,
    fill_masked,
    fisher_solve,
    fisher_vector_product,
    jacobian_perturbation,
    jacobian_reparam,
    jacobian_score,
    kernel_basis,
    polynomial_basis,
    scale_by_metric,
    scale_by_wasserstein,
)
from wng.evolution.config import EvolutionConfig, StrategyConfig
from wng.evolution.strategy import BGES, BGWNES, ES, NSRES, WNES, Strategy
from wng.execution.ray import RayExecutor
from wng.policy_gradient.config import Config
from wng.runs.directory import RunDirectory

__version__ = version("wng")

__all__ = [
    "BGES",
    "BGPG",
    "BGWNES",
    "BGWNPG",
    "ES",
    "NPG",
    "NSRES",
    "PG",
    "PPO",
    "PPOKL",
    "TRPO",
    "WNES",
    "WNPG",
    "WTRPO",
    "Agent",
    "Config",
    "Damping",
    "Embedding",
    "EvolutionConfig",
    "RayExecutor",
    "RunDirectory",
    "Strategy",
    "StrategyConfig",
    "Trajectory",
    "WassersteinMetric",
    "__version__",
    "fill_masked",
    "fisher_solve",
    "fisher_vector_product",
    "jacobian_perturbation",
    "jacobian_reparam",
    "jacobian_score",
    "kernel_basis",
    "load",
    "polynomial_basis",
    "scale_by_metric",
    "scale_by_wasserstein",
]
