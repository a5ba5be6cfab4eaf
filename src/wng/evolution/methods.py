"""The table of methods and their presets."""

from typing import Any

from wng.evolution.config import EvolutionConfig
from wng.runs import settings as shared
from wng.runs.settings import Method, Settings


def _method(title: str, proximity: str, geometry: str, about: str) -> Method:
    return Method(title, {"proximity": proximity, "geometry": geometry}, about)


METHODS: dict[str, Method] = {
    "es": _method("ES", "none", "euclidean", "evolution strategy"),
    "esclip": _method("ES-clip", "none", "euclidean", "ES with its direction clipped by norm"),
    "nsres": _method("NSR-ES", "novelty", "euclidean", "return and novelty"),
    "bges": _method("BGES", "wasserstein", "euclidean", "return and W₂ to earlier behaviors"),
    "wnes": _method("WNES", "none", "wasserstein", "Wasserstein natural gradient"),
    "bgwnes": _method("BG-WNES", "wasserstein", "wasserstein", "BGES with WNG"),
}
# The paper's settings: the quadruped has its own, all other tasks those of the point.
RELEASED: dict[str, Any] = {
    "sigma": 0.01,
    "learning_rate": 0.1,
    "beta": 0.5,
    "dual_features": 1000,
    "dual_gamma": 1.0,
    "num_basis": 5,
    "damping": 1e-5,
    "relative_damping": False,
}
QUADRUPED: dict[str, Any] = {
    "population": 422,  # half as many antithetic pairs as parameters, as in the paper
    "hidden": (64, 64),
    "embedding": "reward-to-go",
}
FAITHFUL: dict[str, dict[str, Any]] = {"esclip": {"max_norm": 1.0}}
# Best in our measurements (`benchmarks/tune_evolution.py`, results/evolution/tuning.csv).
TUNED: dict[str, dict[str, Any]] = {
    "es": {"learning_rate": 0.02},
    "esclip": {"max_norm": 10.0, "learning_rate": 0.02},
    "nsres": {"beta": 0.2, "learning_rate": 0.05},
    "bges": {"beta": 0.05, "learning_rate": 0.02},
    "wnes": {"delta": -1.3, "learning_rate": 0.02},
    "bgwnes": {"delta": -1.3, "beta": 0.1, "learning_rate": 0.02},
}


def preset(
    name: str, settings: Settings = "tuned", env: str = "", **overrides: Any
) -> EvolutionConfig:
    """Make the configuration of a method on an environment, with fields to override.

    Settings are tuned (best in our measurements), paper (the paper's text) or released (its code).
    """
    method = shared.find_method(name, METHODS)
    shared.check_preset(settings)
    shared.check_names(overrides, EvolutionConfig)
    quadruped = QUADRUPED if "Quadruped" in str(env) else {}
    if settings == "tuned":
        chosen = TUNED.get(method.key, {}) | quadruped
    else:
        chosen = RELEASED | FAITHFUL.get(method.key, {}) | quadruped
        if quadruped:
            # The released noise is drawn from a sphere of radius 0.12, in 502 dimensions.
            sigma = 0.02 if settings == "paper" else 0.12 / 502**0.5
            chosen |= {"sigma": sigma, "learning_rate": 0.02}
    return EvolutionConfig(**{**method.axes, **chosen, **overrides})
