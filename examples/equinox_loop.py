"""Train an Equinox network behind WNG: `python examples/equinox_loop.py [picture.png]`.

A small network fits a chirp, a wave that gets faster and faster. Networks learn slow waves long
before fast ones, because changing the fast part of the curve takes a large, coordinated change of
the weights. The Wasserstein natural gradient measures a step by how far it moves the *curve*, so
such changes become cheap.

The training loop is an ordinary Equinox loop. WNG adds one transformation to the optax chain and
one argument to `update`: a function that returns what the network does.
"""

import argparse
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import optax

import wng

# --- the data ---------------------------------------------------------------------------------
x = jnp.linspace(-1, 1, 200)[:, None]
y = 0.5 * jnp.exp(-x) * jnp.sin(24 * x**2)


def loss_fn(model: eqx.nn.MLP) -> jax.Array:
    """Mean squared error."""
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def behavior_fn(model: eqx.nn.MLP) -> jax.Array:
    """Return what the network does: each prediction next to its input, [200, 2]."""
    return jnp.concatenate([x, jax.vmap(model)(x)], axis=1)


# --- the loop ---------------------------------------------------------------------------------
def train(optimizer: optax.GradientTransformation, seed: int, steps: int) -> tuple:
    """Train one network; returns the loss of every step and the final predictions."""
    tx = optax.with_extra_args_support(optimizer)  # lets plain optax.adam ignore key, behavior_fn
    model = eqx.nn.MLP(1, 1, width_size=32, depth=2, activation=jnp.tanh, key=jax.random.key(seed))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def full(function: Callable) -> Callable:
        return lambda params: function(eqx.combine(params, static))

    @jax.jit
    def run() -> tuple:
        def step(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            params, state = carry
            loss, grads = jax.value_and_grad(full(loss_fn))(params)
            updates, state = tx.update(grads, state, params, key=key, behavior_fn=full(behavior_fn))
            return (optax.apply_updates(params, updates), state), loss

        keys = jax.random.split(jax.random.key(100 + seed), steps)
        (final, _), losses = jax.lax.scan(step, (params, tx.init(params)), keys)
        return losses, full(behavior_fn)(final)[:, 1]

    losses, predictions = run()
    return np.asarray(losses), np.asarray(predictions)


def wng_adam(damping: float) -> Callable[[float], optax.GradientTransformation]:
    """Adam behind the Wasserstein natural gradient: the one line to add."""
    control = wng.Damping(damping, relative=True)  # 0.1 is a safe start, 0.01 often faster
    wasserstein = wng.scale_by_wasserstein(num_basis=20, damping=control)
    return lambda rate: optax.chain(wasserstein, optax.adam(rate))


METHODS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "adam": optax.adam,
    "wng (damping 0.1) + adam": wng_adam(0.1),
    "wng (damping 0.01) + adam": wng_adam(0.01),
}
RATES = (0.01, 0.03, 0.1)


def main() -> None:
    """Train with each method, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("picture", nargs="?", default="equinox_loop.png", help="PNG to write")
    parser.add_argument("--steps", type=int, default=500, help="optimizer steps of each network")
    parser.add_argument("--seeds", type=int, default=3, help="networks per learning rate")
    options = parser.parse_args()

    results = {}
    print(f"Median loss of {options.seeds} networks after {options.steps} steps:\n")
    print(f"{'':27}" + "".join(f"{f'rate {rate}':>12}" for rate in RATES))
    for name, make in METHODS.items():
        runs = {
            rate: [train(make(rate), seed, options.steps) for seed in range(options.seeds)]
            for rate in RATES
        }
        final = {rate: float(np.median([r[0][-10:].mean() for r in runs[rate]])) for rate in RATES}
        print(f"{name:27}" + "".join(f"{final[rate]:>12.1e}" for rate in RATES))
        best = min(RATES, key=lambda rate: final[rate])
        results[name] = (best, runs[best])
    draw(results, options.picture)
    print(f"\nPicture: {options.picture}")


def draw(results: dict, path: str) -> None:
    """Draw the median network of each method (left) and the loss of every network (right)."""
    colors = dict(zip(results, ("#4c78a8", "#e9a03b", "#d1495b"), strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    left.plot(x[:, 0], y[:, 0], color="#b9bdc4", lw=5, label="chirp")
    for name, (rate, runs) in results.items():
        middle = sorted(runs, key=lambda run: run[0][-1])[len(runs) // 2]
        left.plot(x[:, 0], middle[1], color=colors[name], lw=2, label=name)
        for number, (losses, _) in enumerate(runs):
            label = f"{name}, rate {rate}" if number == 0 else None
            right.semilogy(losses, color=colors[name], lw=1.5, alpha=0.8, label=label)
    steps = len(next(iter(results.values()))[1][0][0])
    left.set(title=f"Fit after {steps} steps", xlabel="x", ylabel="y")
    right.set(title="Loss", xlabel="step", ylabel="mean squared error")
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
