"""How hard BGPG's penalty pulls a policy back, under each of the settings, beside (β/2) W₂².

    python benchmarks/penalty.py        # five minutes

The old policy is N(0, 1) in each of 2048 states; the new one has another mean or another log σ. β
is 1 under all settings. `value` is the penalty less its value at the old policy: the dual of
`released` has a constant, which does not pull. `pull` is its derivative in the parameter that was
shifted. Both are means over the states. `paper` compares stretches of trajectory, over whose steps
W₂² adds up, and is given per step. The test functions of `released` climb for 25 steps at each
minibatch and carry over to the next, so it is shown at the first and at the tenth.

The second table is for `--penalty-form dual`, on 512 states, after so many ascent steps.
"""

import argparse
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from wng.behavior import find_embedding
from wng.experiments.output import markdown_table
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.methods import preset
from wng.policy_gradient.networks import Networks, init_networks
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.proximity import wasserstein_penalty
from wng.runs.settings import Settings

STATES, SIZE = 2048, 2
MEAN_SHIFTS, LOG_STD_SHIFTS = (0.25, 0.5, 1.0, 2.0), (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)
DUAL_STEPS = (25, 250, 2000)
Penalty = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def networks(theta: jax.Array) -> Networks:
    """A policy N(μ, σ²) in every state, θ = (μ, log σ)."""
    made = init_networks(jax.random.key(0), SIZE, 1, discrete=False, hidden=(), log_std=0.0)
    parts = (jnp.zeros((SIZE, 1)), theta[:1], theta[1:])
    return eqx.tree_at(
        lambda n: (n.policy.net.weights[0], n.policy.net.biases[0], n.policy.log_std), made, parts
    )


def exact(theta: jax.Array) -> jax.Array:
    """½ W₂² = ½ (μ² + (σ − 1)²)."""
    return (theta[0] ** 2 + (jnp.exp(theta[1]) - 1) ** 2) / 2


def penalty(settings: Settings, minibatches: int, key: jax.Array, **more: Any) -> Penalty:
    """θ ↦ value and gradient of the penalty per step, after `minibatches` at θ."""
    chosen: dict[str, Any] = {"num_envs": 1, "dual_samples": STATES, **more}
    config = preset("bgpg", settings, **chosen)
    embedding = find_embedding(config.embedding)
    problem = Problem(config, embedding, observation_size=SIZE, action_size=1, discrete=False)
    horizon = problem.penalty_behaviors.horizon
    states = jax.random.normal(key, (STATES, SIZE))
    old = networks(jnp.zeros(2))
    policy = old.policy(states)
    nothing = jnp.zeros(STATES)
    batch = Batch(states, policy.mode(), nothing, policy, nothing, nothing)
    steps = (states, states, policy.mode(), nothing, nothing, nothing + 1)
    windows = Windows(*jax.tree.map(lambda x: x.reshape(-1, horizon, *x.shape[1:]), steps))

    @jax.jit
    def run(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        prepared = wasserstein_penalty.prepare(problem, old, windows, key)
        for _ in range(minibatches):
            prepared = wasserstein_penalty.refine(problem, networks(theta), prepared, key)
        data = Data(batch, windows, prepared, jnp.ones(()))

        def value(theta: jax.Array) -> jax.Array:
            return wasserstein_penalty.penalty(problem, networks(theta), data, key) / horizon

        return jax.value_and_grad(value)(theta)

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of states and features")
    key = jax.random.key(parser.parse_args().seed)
    kinds: dict[str, Penalty] = {
        "½ W₂²": jax.value_and_grad(exact),
        "tuned": penalty("tuned", 1, key),
        "paper": penalty("paper", 1, key),
        "released": penalty("released", 1, key),
        "released, 10th": penalty("released", 10, key),
    }
    print(f"{STATES} states, β = 1\n\n{table(kinds)}\n")
    dual = {"penalty_form": "dual", "dual_samples": 512}
    kinds = {"½ W₂²": kinds["½ W₂²"]}
    for steps in DUAL_STEPS:
        kinds[f"dual, {steps} steps"] = penalty("tuned", 1, key, dual_steps=steps, **dual)
    print(table(kinds))


def table(kinds: dict[str, Penalty]) -> str:
    """Values and pulls at all shifts."""
    start = {name: float(run(jnp.zeros(2))[0]) for name, run in kinds.items()}
    shifts = [(0, s) for s in MEAN_SHIFTS] + [(1, s) for s in LOG_STD_SHIFTS]
    rows = []
    for index, shift in shifts:
        row = [("μ", "log σ")[index] + f" {shift:+}"]
        for name, run in kinds.items():
            value, gradient = run(jnp.zeros(2).at[index].set(shift))
            row += [f"{float(value) - start[name]:.3f}", f"{np.asarray(gradient)[index]:+.3f}"]
        rows.append(row)
    columns = [f"{name}: {what}" for name in kinds for what in ("value", "pull")]
    return markdown_table(["shift", *columns], rows)


if __name__ == "__main__":
    main()
