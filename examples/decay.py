"""Fit two exponential decays to noisy measurements: `python examples/decay.py [picture.png]`.

There is no reinforcement learning here. A drug leaves the blood, a dye stops glowing, an isotope
decays, and the measured signal is the sum of a fast and a slow exponential:

    y(t) = e^{a₁ − k₁t} + e^{a₂ − k₂t} + c.

Fitting it is a classic ill-conditioned problem: very different parameters give almost the same
curve, and gradient descent crawls along that valley. What matters is how far the *curve* moves,
not how far the parameters move, and the Wasserstein geometry measures exactly that: the behavior
of this model is its cloud of points (t, y(t)).
"""

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy.optimize import least_squares

import wng

STEPS = 3000
SHOWN_STEP = 30

# --- the measurements -------------------------------------------------------------------------
time_key, noise_key = jax.random.split(jax.random.key(0))
t = jnp.sort(jax.random.uniform(time_key, (256,)))
y = 2 * jnp.exp(-t / 0.15) + jnp.exp(-t / 0.5) + 0.02 * jax.random.normal(noise_key, t.shape)

# --- the model --------------------------------------------------------------------------------
Params = dict[str, jax.Array]
start: Params = {"a": jnp.array([0.0, 0.0]), "k": jnp.array([1.6, 4.5]), "c": jnp.array(0.0)}


def model(params: Params) -> jax.Array:
    """Predict the signal at every measured time."""
    return jnp.exp(params["a"][:, None] - params["k"][:, None] * t).sum(0) + params["c"]


def loss_fn(params: Params) -> jax.Array:
    """Mean squared error."""
    return jnp.mean((model(params) - y) ** 2)


def behavior_fn(params: Params) -> jax.Array:
    """Return what the model does, as points [256, 2]."""
    return jnp.stack([t, model(params)], axis=1)


# --- training ---------------------------------------------------------------------------------
def train(optimizer: optax.GradientTransformationExtraArgs) -> tuple[jax.Array, Params]:
    """Return the losses of `STEPS` steps and the parameters after `SHOWN_STEP` of them."""

    def step(carry: tuple[Params, optax.OptState], key: jax.Array):  # type: ignore[no-untyped-def]
        params, state = carry
        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(grads, state, params, key=key, behavior_fn=behavior_fn)
        return (optax.apply_updates(params, updates), state), (loss, params)

    keys = jax.random.split(jax.random.key(1), STEPS)
    _, (losses, path) = jax.lax.scan(step, (start, optimizer.init(start)), keys)
    return losses, jax.tree.map(lambda x: x[SHOWN_STEP], path)


def best(
    make: Callable[[float], optax.GradientTransformation], grid: tuple[float, ...]
) -> tuple[float, np.ndarray, Params]:
    """Train with every learning rate of `grid` and return the run with the lowest median loss."""
    runs = []
    for rate in grid:
        train_once = jax.jit(lambda r=rate: train(optax.with_extra_args_support(make(r))))
        losses, params = train_once()
        runs.append((rate, np.asarray(losses), params))
    return min(runs, key=lambda run: np.nan_to_num(np.median(run[1]), nan=np.inf))


def wasserstein_sgd(rate: float) -> optax.GradientTransformation:
    """Put the Wasserstein natural gradient before SGD: the one line to add."""
    damping = wng.Damping(1e-3, relative=True)
    return optax.chain(wng.scale_by_wasserstein(num_basis=10, damping=damping), optax.sgd(rate))


def main() -> None:
    """Train with each method, print the table, draw the picture."""
    picture = sys.argv[1] if len(sys.argv) > 1 else "decay.png"
    flat, unravel = ravel_pytree(start)
    residuals = jax.jit(lambda x: model(unravel(jnp.asarray(x, jnp.float32))) - y)
    optimum = least_squares(lambda x: np.asarray(residuals(x), np.float64), flat, diff_step=1e-3)
    floor = 2 * optimum.cost / t.size

    methods = {
        "sgd": (optax.sgd, (0.01, 0.03, 0.1, 0.3, 1.0)),
        "adam": (optax.adam, (0.003, 0.01, 0.03, 0.1, 0.3)),
        "wng + sgd": (wasserstein_sgd, (0.03, 0.1, 0.3, 0.5, 1.0)),
    }
    results = {name: best(make, grid) for name, (make, grid) in methods.items()}

    levels = (1e-3, 1e-4, 1e-5, 1e-6)
    print("Steps until the loss is within … of the best possible fit:\n")
    print(f"{'':12}{'rate':>8}" + "".join(f"{level:>10.0e}" for level in levels))
    for name, (rate, losses, _) in results.items():
        reached = [np.flatnonzero(losses - floor < level) for level in levels]
        cells = [f"{hit[0]:>10}" if hit.size else f"{'>' + str(STEPS):>10}" for hit in reached]
        print(f"{name:12}{rate:>8}" + "".join(cells))

    draw(results, floor, picture)
    print(f"\nPicture: {picture}")


def draw(results: dict[str, tuple[float, np.ndarray, Params]], floor: float, path: str) -> None:
    """Draw the fits after a few steps (left) and the distance to the best fit (right)."""
    colors = {"sgd": "#8a8f98", "adam": "#4c78a8", "wng + sgd": "#d1495b"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    left.plot(t, y, ".", color="#c9ccd1", markersize=4, label="measurements")
    for name, (rate, losses, params) in results.items():
        left.plot(t, model(params), color=colors[name], lw=2, label=name)
        excess = np.maximum(losses - floor, 1e-9)
        steps = np.arange(1, len(losses) + 1)
        right.loglog(steps, excess, color=colors[name], lw=2, label=f"{name} (rate {rate})")
    left.set(title=f"Fit after {SHOWN_STEP} steps", xlabel="time t", ylabel="signal y")
    right.set(title="Distance to the best fit", xlabel="step", ylabel="loss − best loss")
    right.set_ylim(1e-9)
    for axis in (left, right):
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
