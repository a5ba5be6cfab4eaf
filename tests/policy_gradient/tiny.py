"""Settings of an agent that learns little, but at once."""

TINY = {
    "hidden": (8,),
    "num_envs": 4,
    "rollout": 64,
    "minibatch": 32,
    "value_minibatch": 32,
    "epochs": 1,
    "value_epochs": 1,
    "num_basis": 5,
    "metric_samples": 32,
    "backend": "gymnasium",
}
