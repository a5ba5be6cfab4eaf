"""How near the kernel metric of a policy comes to the exact one, and what it costs, as M grows.

    python benchmarks/basis.py                       # Hopper-v5, a few minutes
    python benchmarks/basis.py --env Walker2d-v5

    # ways to choose the centers of both bases
    python benchmarks/basis.py --centers --draws 10 --sizes 25 50 100 200

A policy is trained by TRPO for a while; then, on one batch of it, the natural gradient in each
estimate of E_s W₂² is compared with that of the exact metric G, which is formed densely. For a
direction d and the exact d* = (G + εI)⁻¹g, ε a multiple of λ_max(G), in the norm of G + εI:

    error     ‖d·s − d*‖ / ‖d*‖, with the best scale s: the length of a step is set elsewhere
    gain      share of the best decrease that a step along d of the same distance achieves

Error and gain are one number seen twice (gain = 1 − error²). `raw error` is without the scale: it
says how far the *size* of the estimated metric can be trusted. Times are medians of interleaved
runs in one process, as ratios to the exact metric solved by ten conjugate-gradient iterations.

With --centers, errors are means and standard deviations over the draws, the bandwidth is the same
for all choices, and times are milliseconds, for the choice and for metric and solve.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from centers import CHOICES
from jax.flatten_util import ravel_pytree

import wng
from wng.estimator.basis import KernelBasis
from wng.estimator.conditional import ConditionalBasis
from wng.estimator.jacobian import behaviors_and_pullback
from wng.estimator.metric import WassersteinMetric
from wng.experiments.output import markdown_table
from wng.policy_gradient.batch import Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.geometry import wasserstein_exact
from wng.policy_gradient.kernel import HeldFixed, kernel
from wng.policy_gradient.networks import Networks, Policy
from wng.policy_gradient.problem import Problem


class Case(NamedTuple):
    """A policy, its gradient on a batch, and the exact answer."""

    base: Problem
    networks: Networks
    data: Data
    gradient: jax.Array
    epsilon: jax.Array
    damped: np.ndarray  # G + εI
    best: np.ndarray  # (G + εI)⁻¹g

    def error(self, direction: jax.Array) -> tuple[float, float, float]:
        """Raw error, error and gain of a direction."""
        return compared(np.asarray(direction, np.float64), self.best, self.damped)


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


def make_case(env: str, iterations: int, samples: int, damping: float) -> Case:
    """Train the policy and solve exactly; ε is `damping` times λ_max(G)."""
    base, networks, data = collected(env, iterations, samples)
    theta, unravel = ravel_pytree(networks.policy)
    loss = base.proximity.surrogate

    def surrogate(flat: jax.Array) -> jax.Array:
        return loss(base.config, Networks(unravel(flat), networks.value), data.batch)

    g = jax.jit(jax.grad(surrogate))(theta)
    G = dense(networks, data.batch.observations)
    epsilon = damping * np.linalg.eigvalsh(G)[-1]
    damped = G + epsilon * np.eye(len(G))
    best = np.linalg.solve(damped, np.asarray(g, np.float64))
    return Case(base, networks, data, g, jnp.asarray(epsilon, g.dtype), damped, best)


def compare_bases(case: Case, sizes: list[int], draws: int, rounds: int) -> str:
    """Error, gain and cost of both bases, as wng makes them."""
    base, networks, data = case.base, case.networks, case.data

    def problem(**settings: Any) -> Problem:
        samples = len(data.batch.advantages)
        config = wng.Config(geometry="wasserstein", metric_samples=samples, **settings)
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
            return metric.solve(case.gradient, case.epsilon)

        return run

    runs: dict[tuple[str, int], Callable[[jax.Array], jax.Array]] = {
        ("exact, 10 CG iterations", 0): solver(wasserstein_exact, base)
    }
    for size in sizes:
        for basis in ("kernel", "policy"):
            runs[basis, size] = solver(kernel, problem(num_basis=size, basis=basis))
    times: dict[tuple[str, int], list[float]] = {name: [] for name in runs}
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {name: [] for name in runs}
    for name, run in runs.items():
        for draw in range(draws):
            found[name].append(case.error(run(jax.random.key(draw))))
    for _ in range(rounds):
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
    return markdown_table(["basis", "M", "raw error", "error", "gain", "cost"], rows)


def mean_distance(X: jax.Array) -> jax.Array:
    """The root-mean-square distance of samples."""
    return jnp.sqrt(2 * jnp.sum(jnp.var(X, axis=0)))


def compare_centers(case: Case, sizes: list[int], draws: int) -> str:
    """Error of both bases with each choice of the centers, and what the choice costs."""
    networks, behaviors, windows = case.networks, case.base.behaviors, case.data.windows
    states, actions = case.data.batch.observations, case.base.action_size
    half = case.base.config.bandwidth

    def embed(policy: Policy, key: jax.Array) -> jax.Array:
        return behaviors.embed(Networks(policy, networks.value), windows, key)

    def outputs(policy: Policy) -> jax.Array:
        return jnp.concatenate([states, policy(states).coordinates()], axis=1)

    @jax.jit
    def solve_kernel(key: jax.Array, centers: jax.Array) -> jax.Array:
        X, _, moved = behaviors.sample(networks, windows, key)
        free = jnp.where(moved.any(axis=0), 0.0, -jnp.inf)
        indices = jax.random.categorical(jax.random.fold_in(key, 1), free, shape=(len(centers),))
        basis = HeldFixed(KernelBasis(centers, indices, half * mean_distance(X)), moved)
        _, pull = behaviors_and_pullback(partial(embed, key=key), networks.policy)
        return WassersteinMetric(basis, X, pull(basis)).solve(case.gradient, case.epsilon)

    @jax.jit
    def solve_policy(key: jax.Array, centers: jax.Array) -> jax.Array:
        basis = ConditionalBasis(centers, mean_distance(states), 2 * actions, actions)
        X, pull = behaviors_and_pullback(outputs, networks.policy)
        return WassersteinMetric(basis, X, pull(basis)).solve(case.gradient, case.epsilon)

    rows = []
    for kind, solve in (("kernel", solve_kernel), ("policy", solve_policy)):
        for size in sizes:
            number = size if kind == "kernel" else (size - 2 * actions) // actions
            for name, choose in CHOICES.items():
                choice = jax.jit(choose, static_argnums=2)
                errors, choosing, solving = [], [], []
                for draw in range(-1, draws):  # the first one compiles
                    key = jax.random.key(max(draw, 0))
                    X = embed(networks.policy, key) if kind == "kernel" else states
                    unit = mean_distance(X) * (half if kind == "kernel" else 1)
                    start = time.perf_counter()
                    centers = jax.block_until_ready(choice(key, X / unit, number) * unit)
                    chosen = time.perf_counter()
                    direction = jax.block_until_ready(solve(key, centers))
                    done = time.perf_counter()
                    if draw >= 0:
                        errors.append(case.error(direction)[1])
                        choosing.append(1000 * (chosen - start))
                        solving.append(1000 * (done - chosen))
                spread = f"{np.mean(errors):.3f} ± {np.std(errors, ddof=1):.3f}"
                costs = [f"{statistics.median(times):.0f}" for times in (choosing, solving)]
                rows.append([kind, size, name, spread, *costs])
    return markdown_table(["basis", "M", "centers", "error", "choice", "solve"], rows)


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
    parser.add_argument("--centers", action="store_true", help="compare choices of the centers")
    args = parser.parse_args()
    case = make_case(args.env, args.iterations, args.samples, args.damping)
    if args.centers:
        table = compare_centers(case, args.sizes, args.draws)
    else:
        table = compare_bases(case, args.sizes, args.draws, args.rounds)
    print(
        f"{args.env}, p = {case.gradient.size}, {args.samples} states, ε = {args.damping} λ_max, "
        f"{args.draws} draws\n"
    )
    print(table)


if __name__ == "__main__":
    main()
