"""How much of a policy's natural gradient is signal, and how much is the noise of its batch?

    python benchmarks/gradient_noise.py    # four tasks, about five minutes

WTRPO trains on each task with its tuned settings. At several points of the training, its policy
collects 32 batches, each as large as a batch that it learns from. With g_i the gradient on batch i,
G the metric on all states and ⟨u, v⟩ = uᵀ(G + εI)⁻¹v, the table has

    signal    mean of ⟨g_i, g_j⟩ over pairs of batches, ÷ mean of ⟨g_i, g_i⟩

which is the expected share of a natural gradient's squared length that is not noise. Its standard
error comes from leaving out one batch at a time. `path` is the squared length of the sum of the
last 20 training steps, measured by KL, ÷ the sum of their squared lengths: 1 if each step goes its
own way, 20 if all go the same way, less than 1 if they take each other back.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import wng
from wng.experiments.output import markdown_table
from wng.policy_gradient.batch import Data
from wng.policy_gradient.geometry import fisher, wasserstein_exact
from wng.policy_gradient.methods import TUNED
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.trust_region import second_order_kl

TASKS = ("Hopper-v5", "InvertedDoublePendulum-v5", "Walker2d-v5", "Reacher-v5")
POINTS = (10_000, 30_000, 100_000, 300_000)  # steps of training
BATCHES = 32
PATH = 20  # steps
# Metric, and ε as it is in the presets of TRPO and WTRPO.
METRICS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Fisher": (fisher, TUNED["trpo"]),
    "Wasserstein": (wasserstein_exact, TUNED["wtrpo"]),
}


def share(inner: np.ndarray) -> float:
    """Mean off the diagonal ÷ mean on it."""
    number = len(inner)
    on = np.trace(inner)
    return float((inner.sum() - on) / (number - 1) / on)


def signal(agent: wng.Agent, samples: int) -> dict[str, str]:
    """The share of signal in each metric, ± its standard error."""
    networks, problem = agent.trainer.state.networks, agent.trainer.learner.problem
    config, key = agent.config, jax.random.key(0)
    batch = agent.trainer.sample_batch(BATCHES)
    theta, unravel = ravel_pytree(networks.policy)

    def gradient(rows: Any) -> jax.Array:
        def loss(flat: jax.Array) -> jax.Array:
            moved = Networks(unravel(flat), networks.value)
            return problem.proximity.surrogate(config, moved, rows.standardized())

        return jax.grad(loss)(theta)

    parts = jax.tree.map(lambda x: x.reshape(BATCHES, samples, *x.shape[1:]), batch)
    gradients = jax.jit(lambda rows: jax.lax.map(gradient, rows))(parts)
    found = {}
    for name, (geometry, settings) in METRICS.items():
        data: Any = Data(batch, None, None, jnp.zeros(()))  # type: ignore[arg-type]
        metric = geometry.metric(problem, networks, data, key)
        relative = settings.get("relative_damping", True)
        epsilon = settings["damping"] * (metric.largest_eigenvalue if relative else 1.0)
        solve = jax.jit(lambda g, m=metric, e=epsilon: jax.lax.map(lambda v: m.solve(v, e), g))
        inner = np.asarray(gradients, np.float64) @ np.asarray(solve(gradients), np.float64).T
        without = [share(np.delete(np.delete(inner, i, axis=0), i, axis=1)) for i in range(BATCHES)]
        error = np.sqrt((BATCHES - 1) * np.var(without))
        found[name] = f"{share(inner):.3f} ± {error:.3f}"
    return found


def path(agent: wng.Agent, policies: list[jax.Array]) -> float:
    """How straight the last steps of training went."""
    batch = agent.trainer.sample_batch(1)
    theta, unravel = ravel_pytree(agent.trainer.state.networks.policy)
    observations = batch.observations
    length = jax.jit(lambda u: second_order_kl(lambda f: unravel(f)(observations), theta, u))
    steps = np.diff(np.stack(policies), axis=0)
    return float(length(policies[-1] - policies[0]) / sum(length(step) for step in steps))


def rows(env: str, seed: int) -> list[list[str]]:
    """Train on a task; a row for each point."""
    agent = wng.Agent(env, "wtrpo", seed=seed)
    policies, found = [], []

    def remember(agent: wng.Agent, _: Any) -> None:
        policies.append(np.asarray(ravel_pytree(agent.params)[0]))
        del policies[: -PATH - 1]

    for point in POINTS:
        agent.learn(point - agent.steps, progress=False, callback=remember)
        shares = signal(agent, agent.config.rollout)
        straight = f"{path(agent, policies):.2f}" if len(policies) > PATH else "–"
        found.append([env, f"{agent.steps:,}", *shares.values(), straight])
        print(*found[-1], flush=True)
    agent.close()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seed", type=int, default=100)
    args = parser.parse_args()
    found = [row for env in args.tasks for row in rows(env, args.seed)]
    print(markdown_table(["task", "steps", *METRICS, f"path of {PATH} steps"], found))


if __name__ == "__main__":
    main()
