"""How near the kernel metric of a policy comes to the exact one, and what it costs, as M grows.

    python benchmarks/basis.py                       # Hopper-v5, a few minutes
    python benchmarks/basis.py --env Walker2d-v5

A policy is trained by TRPO for a while; then, on one batch of it, the natural gradient in each
estimate of E_s W₂² is compared with that of the exact metric G, which is formed densely. For a
direction d and the exact d* = (G + εI)⁻¹g, ε a multiple of λ_max(G), in the norm of G + εI:

    error     ‖d·s − d*‖ / ‖d*‖, with the best scale s: the length of a step is set elsewhere
    gain      share of the best decrease that a step along d of the same distance achieves

Error and gain are one number seen twice (gain = 1 − error²). `raw error` is without the scale: it
says how far the *size* of the estimated metric can be trusted. Times are medians of interleaved
runs in one process, as ratios to the exact metric solved by ten conjugate-gradient iterations.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import wng
from wng.experiments.output import markdown_table
from wng.policy_gradient.batch import Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.geometry import wasserstein_exact
from wng.policy_gradient.kernel import kernel
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.problem import Problem

Solve = Callable[[jax.Array], jax.Array]


def collected(env: str, iterations: int, samples: int) -> tuple[Problem, Networks, Data]:
    """A trained policy, and a batch of its own with as many windows as rows."""
    agent = wng.Agent(env, "trpo", metric_samples=samples)
    agent.learn(iterations * agent.config.rollout, progress=False)
    rollouts = -(-samples // agent.config.rollout)
    batch = agent.trainer.sample_batch(rollouts)
    batch = batch.take(jax.random.permutation(jax.random.key(0), len(batch.advantages))[:samples])
    ones = jnp.ones((samples, 1))
    seen = batch.observations[:, None]
    windows = Windows(seen, seen, batch.actions[:, None], batch.log_probs[:, None], ones, ones)
    agent.close()
    data = Data(batch, windows, None, jnp.zeros(()))
    return agent.trainer.learner.problem, agent.trainer.state.networks, data


def dense(networks: Networks, observations: jax.Array) -> np.ndarray:
    """E_s[(∂y/∂θ)ᵀ(∂y/∂θ)] for y = (μ, σ), in float64."""
    theta, unravel = ravel_pytree(networks.policy)

    def outputs(flat: jax.Array, s: jax.Array) -> jax.Array:
        policy: Any = unravel(flat)(s)
        return jnp.concatenate([policy.mean, jnp.exp(policy.log_std)])

    jacobian = jax.jit(jax.vmap(jax.jacrev(outputs), in_axes=(None, 0)))
    J = np.asarray(jacobian(theta, observations), np.float64).reshape(-1, theta.size)
    return J.T @ J / len(observations)


def compared(d: np.ndarray, best: np.ndarray, metric: np.ndarray) -> tuple[float, float, float]:
    """Raw error, error and gain of a direction."""

    def inner(u: np.ndarray, v: np.ndarray) -> float:
        return float(u @ metric @ v)

    size = inner(best, best)
    raw = np.sqrt(inner(d - best, d - best) / size)
    gain = inner(d, best) ** 2 / (inner(d, d) * size)
    return float(raw), float(np.sqrt(max(0.0, 1 - gain))), gain


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--iterations", type=int, default=30, help="of TRPO before the comparison")
    parser.add_argument("--samples", type=int, default=512, help="states of the batch")
    parser.add_argument("--draws", type=int, default=5, help="random bases of each kind")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    parser.add_argument("--damping", type=float, default=0.01, help="ε in units of λ_max(G)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 25, 50, 100, 200])
    args = parser.parse_args()
    base, networks, data = collected(args.env, args.iterations, args.samples)
    theta, unravel = ravel_pytree(networks.policy)
    loss = base.proximity.surrogate

    def surrogate(flat: jax.Array) -> jax.Array:
        return loss(base.config, Networks(unravel(flat), networks.value), data.batch)

    g = jax.jit(jax.grad(surrogate))(theta)
    G = dense(networks, data.batch.observations)
    epsilon = args.damping * np.linalg.eigvalsh(G)[-1]
    damped = G + epsilon * np.eye(len(G))
    best = np.linalg.solve(damped, np.asarray(g, np.float64))

    def problem(**settings: Any) -> Problem:
        config = wng.Config(geometry="wasserstein", metric_samples=args.samples, **settings)
        return Problem(
            config,
            base.behaviors.embedding,
            observation_size=base.observation_size,
            action_size=base.action_size,
            discrete=False,
        )

    def solver(geometry: Any, problem: Problem) -> Callable[[jax.Array], jax.Array]:
        @jax.jit
        def run(key: jax.Array) -> jax.Array:
            metric = geometry.metric(problem, networks, data, key)
            return metric.solve(g, jnp.asarray(epsilon, g.dtype))

        return run

    runs: dict[tuple[str, int], Callable[[jax.Array], jax.Array]] = {
        ("exact, 10 CG iterations", 0): solver(wasserstein_exact, base)
    }
    for size in args.sizes:
        for basis in ("kernel", "policy"):
            runs[basis, size] = solver(kernel, problem(num_basis=size, basis=basis))
    times: dict[tuple[str, int], list[float]] = {name: [] for name in runs}
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {name: [] for name in runs}
    for name, run in runs.items():
        for draw in range(args.draws):
            d = np.asarray(run(jax.random.key(draw)), np.float64)
            found[name].append(compared(d, best, damped))
    for _ in range(args.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(jax.random.key(0)))
            times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    unit = seconds["exact, 10 CG iterations", 0]
    rows = []
    for (kind, size), numbers in found.items():
        raw, error, gain = np.median(numbers, axis=0)
        cost = seconds[kind, size] / unit
        rows.append([kind, size or "–", f"{raw:.3f}", f"{error:.3f}", f"{gain:.3f}", f"{cost:.2f}"])
    print(
        f"{args.env}, p = {theta.size}, {args.samples} states, ε = {args.damping} λ_max, medians "
        f"of {args.draws} draws\n"
    )
    print(markdown_table(["basis", "M", "raw error", "error", "gain", "cost"], rows))


if __name__ == "__main__":
    main()
