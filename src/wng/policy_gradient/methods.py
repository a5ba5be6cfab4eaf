"""The table of policy-gradient methods, and their presets."""

from typing import Any

from wng.policy_gradient.config import Config
from wng.runs.settings import Method, Settings, check_names, check_preset, find_method

AUTO = "wasserstein-auto"


def _method(
    title: str, proximity: str, geometry: str, step: str, about: str, **more: str
) -> Method:
    axes = {"proximity": proximity, "geometry": geometry, "step": step}
    return Method(title, axes, about, **more)


METHODS: dict[str, Method] = {
    "pg": _method("PG", "none", "euclidean", "optimizer", "plain policy gradient"),
    "ppo": _method("PPO", "clip", "euclidean", "optimizer", "clipped probability ratio"),
    "ppokl": _method("PPO-KL", "kl", "euclidean", "optimizer", "KL penalty, adaptive weight"),
    "npg": _method("NPG", "none", "fisher", "optimizer", "Fisher natural gradient"),
    "trpo": _method("TRPO", "none", "fisher", "trust_region", "Fisher steps of a given KL"),
    "bgpg": _method("BGPG", "wasserstein", "euclidean", "optimizer", "W₂ penalty on behaviors"),
    "wnpg": _method(
        "WNPG",
        "none",
        "wasserstein",
        "optimizer",
        "Wasserstein natural gradient",
        or_geometry=AUTO,
    ),
    "bgwnpg": _method(
        "BG-WNPG",
        "wasserstein",
        "wasserstein",
        "optimizer",
        "W₂ penalty and WNG",
        or_geometry=AUTO,
    ),
    "wtrpo": _method(
        "WTRPO",
        "none",
        AUTO,
        "trust_region",
        "WNG steps of a given KL, exact for Gaussians",
    ),
}

# The paper's released runs: what all methods share, and below what each adds.
RELEASED: dict[str, Any] = {
    "num_envs": 1,
    "rollout": 2048,
    "epochs": 10,
    "minibatch": 64,
    # The script's default. The paper has the best of 1e-5, 5e-5, 1e-4 and 3e-4 for each task.
    "learning_rate": 5e-5,
    "value_learning_rate": 5e-5,
    "value_weight": 0.25,
    "penalty": 0.1,
    "penalty_form": "matched",  # per state, on ten actions
    "dual_bandwidth": 0.1,
    "dual_gamma": 1.0,
    "embedding": "actions-value",
    "num_basis": 5,
    "bandwidth": 1.0,
    "metric_samples": 64,
    "damping": 1e-5,
    "relative_damping": False,
    "adapt_damping": 5,
    "rescale": True,
}
# The paper's text where it differs from the released code: the actions of a trajectory.
PAPER = RELEASED | {
    "embedding": "trajectory-actions",
    "penalty_embedding": "trajectory-actions",
    "penalty_form": "exact",
    "rescale": False,
}
FISHER: dict[str, Any] = {"damping": 0.1, "relative_damping": False, "adapt_damping": 0}
FAITHFUL: dict[str, dict[str, Any]] = {
    "ppokl": {"penalty": 1.0},
    "npg": FISHER,
    "trpo": FISHER | {"value_learning_rate": 1e-3},
    "wtrpo": {
        "value_learning_rate": 1e-3,
        "damping": 0.1,
        "relative_damping": True,
        "adapt_damping": 0,
        "rescale": False,
    },
}

# What measured best here of all that learn CartPole-v1 (`benchmarks/tune.py`,
# results/policy_gradient/tuning.csv).
# Natural gradients take few, large minibatches and plain steps whose length is steered by KL.
NATURAL: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 0.01,
    "minibatch": 1024,
    "epochs": 5,
    "steer": True,
    "kl_target": 0.02,
}
# The closed form for Gaussian policies; the rest is for the estimator.
WASSERSTEIN = NATURAL | {"geometry": AUTO, "num_basis": 100, "refresh_every": 2}
SHORT: dict[str, Any] = {"rollout": 1024, "minibatch": 512}
TUNED: dict[str, dict[str, Any]] = {
    "pg": {"learning_rate": 1e-4, "steer": True, "kl_target": 0.02},
    "ppo": {"learning_rate": 3e-4},
    "ppokl": {"learning_rate": 1e-3, "minibatch": 256},
    "npg": NATURAL | {"damping": 0.01, "kl_target": 0.01} | SHORT,
    "trpo": FISHER | {"kl_target": 0.01, "rollout": 1024},
    "bgpg": {"learning_rate": 3e-4, "steer": True, "kl_target": 0.02},
    "wnpg": WASSERSTEIN | {"damping": 0.1, "kl_target": 0.01} | SHORT,
    "bgwnpg": WASSERSTEIN | {"damping": 0.01, "kl_target": 0.01, "penalty": 1.0},
    "wtrpo": {"damping": 0.003, "kl_target": 0.01, "rollout": 1024},
}


# Estimates of one metric share their presets.
LIKE = dict.fromkeys(("wasserstein-exact", "wasserstein-auto"), "wasserstein")


def nearest_method(**axes: str) -> str:
    """The named method nearest to a combination: same geometry, then step, then proximity."""
    asked = METHODS["pg"].axes | {name: value for name, value in axes.items() if value}

    def agreement(name: str) -> list[bool]:
        own = METHODS[name].axes
        return [
            LIKE.get(own[axis], own[axis]) == LIKE.get(asked[axis], asked[axis])
            for axis in ("geometry", "step", "proximity")
        ]

    return max(METHODS, key=agreement)


def preset(name: str, settings: Settings = "tuned", env: str = "", **overrides: Any) -> Config:
    """The configuration of a method, with fields to override; no preset depends on `env`.

    Settings are tuned (best in our measurements), paper (the paper's text) or released (its code).
    """
    method = find_method(name, METHODS)
    check_preset(settings)
    check_names(overrides, Config)
    chosen: dict[str, Any] = {
        "tuned": TUNED.get(method.key, {}),
        "paper": PAPER | FAITHFUL.get(method.key, {}),
        "released": RELEASED | FAITHFUL.get(method.key, {}),
    }[settings]
    return Config(**{**method.axes, **chosen, **overrides})
