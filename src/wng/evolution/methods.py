"""The table of methods, their presets, and the classes with ask and tell."""

from typing import Any

from wng.evolution.config import EvolutionConfig
from wng.evolution.strategy import Geometry, Proximity, Strategy
from wng.runs import settings as shared
from wng.runs.settings import Method, Settings


def _method(title: str, proximity: Proximity, geometry: Geometry, about: str) -> Method:
    return Method(title, {"proximity": proximity, "geometry": geometry}, about)


METHODS: dict[str, Method] = {
    "es": _method("ES", "none", "euclidean", "evolution strategy"),
    "esclip": _method("ES-clip", "none", "euclidean", "the same, its direction clipped by norm"),
    "nsres": _method("NSR-ES", "novelty", "euclidean", "novelty beside the return"),
    "bges": _method("BGES", "wasserstein", "euclidean", "W₂ to earlier behaviours beside it"),
    "wnes": _method("WNES", "none", "wasserstein", "Wasserstein natural gradient"),
    "bgwnes": _method("BG-WNES", "wasserstein", "wasserstein", "W₂ distance and WNG"),
}
# The paper's settings by task: quadruped as it walks, the point for everything else.
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
    "population": 422,  # pairs for half the parameters, as in the paper
    "hidden": (64, 64),
    "embedding": "reward-to-go",
}
FAITHFUL: dict[str, dict[str, Any]] = {"esclip": {"max_norm": 1.0}}
# What measurement here found best (`benchmarks/tune_evolution.py`, results/evolution/tuning.csv).
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
    """The configuration of a method on an environment.

    Args:
      name: of the method, such as "wnes".
      settings: tuned, what works best here; paper, the paper's text; released, its code.
      env: id of the environment; the quadruped has its own policy, population and behaviour.
      overrides: fields of `EvolutionConfig` to set on top.
    """
    method = shared.find_method(name, METHODS)
    shared.check_preset(settings)
    shared.check_names(overrides, EvolutionConfig)
    quadruped = QUADRUPED if "Quadruped" in str(env) else {}
    if settings == "tuned":
        chosen = TUNED[method.key] | quadruped
    else:
        chosen = RELEASED | FAITHFUL.get(method.key, {}) | quadruped
        if quadruped:
            # The released noise is drawn from a sphere of radius 0.12, in 502 dimensions.
            sigma = 0.02 if settings == "paper" else 0.12 / 502**0.5
            chosen |= {"sigma": sigma, "learning_rate": 0.02}
    return EvolutionConfig(**{**method.axes, **chosen, **overrides})


def _method_class(name: str, key: str) -> type[Strategy]:
    method = METHODS[key]

    class Chosen(Strategy):
        def __init__(
            self, params: Any, population: int = 100, sigma: float = 0.02, **settings: Any
        ):
            super().__init__(params, population, sigma, **{**method.axes, **settings})

    Chosen.__name__ = Chosen.__qualname__ = name
    Chosen.__doc__ = f"{method.title}: {method.about}. Arguments as for `wng.Strategy`."
    return Chosen


ES, NSRES, BGES, WNES, BGWNES = (
    _method_class(key.upper(), key) for key in ("es", "nsres", "bges", "wnes", "bgwnes")
)
