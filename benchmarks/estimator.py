"""What a Wasserstein step costs: `python benchmarks/estimator.py`.

Prints ratios measured in one run, interleaved, so that a noisy machine hits both sides alike:
a preconditioned step against a plain gradient step, and how cost and peak memory of a solve grow
with the batch N, the number of basis functions M and the number of parameters p.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import wng

BATCH, OBSERVATION, ACTION, WIDTH = 64, 11, 3, 64
ROUNDS, STEPS = 40, 100  # STEPS run inside one compiled scan, as a training loop does


def network(key: jax.Array, sizes: list[int]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of a tanh network."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (i, o)) / i**0.5, jnp.zeros(o))
        for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def apply(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Forward pass."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median time of each, one call of each in turn."""
    for run in runs.values():
        jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: statistics.median(values) for name, values in times.items()}


def training_loop(tx: optax.GradientTransformation) -> Callable[[], Any]:
    """`STEPS` policy-gradient steps of a policy and a value network, compiled."""
    params: dict[str, Any] = {
        "policy": network(jax.random.key(0), [OBSERVATION, WIDTH, WIDTH, ACTION]),
        "value": network(jax.random.key(1), [OBSERVATION, WIDTH, WIDTH, 1]),
        "log_std": -jnp.ones(ACTION),
    }
    x = jax.random.normal(jax.random.key(2), (BATCH, OBSERVATION))
    noise = jax.random.normal(jax.random.key(3), (BATCH, ACTION))
    advantage, target = jax.random.normal(jax.random.key(5), (2, BATCH))
    action = apply(params["policy"], x) + jnp.exp(params["log_std"]) * noise
    optimizer = optax.with_extra_args_support(tx)

    def behaviors(params: Any) -> jax.Array:
        return jnp.concatenate(
            [
                apply(params["policy"], x) + jnp.exp(params["log_std"]) * noise,
                apply(params["value"], x),
            ],
            axis=1,
        )

    def log_prob(params: Any) -> jax.Array:
        z = (action - apply(params["policy"], x)) / jnp.exp(params["log_std"])
        return jnp.sum(-0.5 * z**2 - params["log_std"], axis=1)

    old_log_prob = log_prob(params)

    def loss(params: Any) -> jax.Array:
        surrogate = jnp.exp(log_prob(params) - old_log_prob) * advantage
        error = apply(params["value"], x)[:, 0] - target
        return jnp.mean(0.5 * error**2 - surrogate)

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        params, state = carry
        grads = jax.grad(loss)(params)
        updates, state = optimizer.update(grads, state, params, key=key, behavior_fn=behaviors)
        return (optax.apply_updates(params, updates), state), None

    def loop(params: Any, state: Any) -> Any:
        keys = jax.random.split(jax.random.key(4), STEPS)
        return jax.lax.scan(step, (params, state), keys)[0]

    compiled, state = jax.jit(loop), optimizer.init(params)
    return lambda: compiled(params, state)


def step_cost() -> None:
    """A preconditioned step against a plain one, both clipped and followed by Adam."""
    plain = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))

    def wasserstein(**options: Any) -> optax.GradientTransformation:
        damping = wng.Damping(0.1, relative=True)
        return optax.chain(wng.scale_by_wasserstein(5, damping, **options), plain)

    runs = {
        "plain": training_loop(plain),
        "every": training_loop(wasserstein()),
        "fifth": training_loop(wasserstein(refresh_every=5)),
    }
    times = interleaved(runs, ROUNDS)
    print(f"Cost of a step: batch {BATCH}, M=5, two {WIDTH}×{WIDTH} tanh nets, clipping, Adam")
    print(f"  metric at every step  {times['every'] / times['plain']:6.2f} × a plain step (≤ 5)")
    print(f"  refresh_every=5       {times['fifth'] / times['plain']:6.2f} × a plain step (≤ 2)")


def solve_loop(n: int, m: int, p: int) -> tuple[Callable[[], Any], int]:
    """Basis, metric and solve for given samples and Jacobian; and its peak memory in bytes."""
    X = jax.random.normal(jax.random.key(0), (n, 4))
    J = jax.random.normal(jax.random.key(1), (m, p))
    g = jax.random.normal(jax.random.key(2), (p,))

    def solve(X: jax.Array, J: jax.Array, g: jax.Array) -> jax.Array:
        basis = wng.kernel_basis(jax.random.key(3), X, m)
        return wng.WassersteinMetric(basis, X, J).solve(g, 1e-3)

    compiled = jax.jit(solve).lower(X, J, g).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    peak = analysis.temp_size_in_bytes + analysis.argument_size_in_bytes
    return lambda: compiled(X, J, g), peak


def growth() -> None:
    """Time and memory of metric and solve, one of N, M, p doubled at a time."""
    base = {"n": 4096, "m": 10, "p": 100_000}
    print("\nGrowth of metric + solve, from N=4096, M=10, p=100000 (d=4):")
    print(f"  {'':>14}{'time':>9}{'memory':>9}")
    for name in base:
        sizes = [{**base, name: base[name] * factor} for factor in (1, 2, 4)]
        built = [solve_loop(**size) for size in sizes]
        times = interleaved({str(i): run for i, (run, _) in enumerate(built)}, 10)
        for i, size in enumerate(sizes):
            ratio, memory = times[str(i)] / times["0"], built[i][1] / built[0][1]
            label = f"{name.upper() if name != 'p' else 'p'}={size[name]}"
            print(f"  {label:>14}{ratio:>8.2f}×{memory:>8.2f}×")
    square = base["p"] ** 2 * 4
    print(f"  peak memory at the base size: {solve_loop(**base)[1] / square:.1e} of one p×p matrix")


if __name__ == "__main__":
    step_cost()
    growth()
