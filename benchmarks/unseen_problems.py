"""Four more small problems, written by a reviewer whom the author of the default did not see.

    python benchmarks/unseen_problems.py             # the default of `scale_by_wasserstein`
    python benchmarks/unseen_problems.py --damping 0.3 --relative

Format, targets and divergence are those of small_problems.py, and so are the options.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import small_problems as base
from jax import Array
from small_problems import Rng, Setup, beside, normal, squared_norm


def completion(rng: Rng) -> Setup:
    """A 12 × 10 matrix of rank 3 from 70 % of its entries; behaviors: rows of the estimate."""
    full = normal(rng, 12, 3) @ normal(rng, 3, 10, scale=3**-0.5)
    seen = (rng.uniform(size=full.shape) < 0.7).astype(np.float32)
    y = full + normal(rng, 12, 10, scale=0.1)
    params = {
        "rows": jnp.asarray(normal(rng, 12, 3, scale=0.3)),
        "columns": jnp.asarray(normal(rng, 10, 3, scale=0.3)),
    }

    def f(p: Any) -> Array:
        return p["rows"] @ p["columns"].T

    def loss(p: Any) -> Array:
        fit = 0.5 * jnp.mean(jnp.sum(seen * (f(p) - y) ** 2, axis=1))
        return fit + 0.5e-3 * squared_norm(p)

    return Setup(params, loss, f)


def pendulum(rng: Rng) -> Setup:
    """Four constants of a damped pendulum, p < M; behaviors: times next to angles."""
    substeps, dt = 3, 0.05
    time = (np.arange(40, dtype=np.float32) * substeps * dt)[:, None]

    def f(p: Any) -> Array:
        def step(state: Any, _: None) -> tuple[Any, Array]:
            angle, rate = state
            for _number in range(substeps):  # semi-implicit Euler
                rate = rate - dt * (p["stiffness"] * jnp.sin(angle) + p["friction"] * rate)
                angle = angle + dt * rate
            return (angle, rate), state[0]

        return jax.lax.scan(step, (p["angle"], p["rate"]), length=len(time))[1][:, None]

    truth = {
        "stiffness": rng.uniform(1.3, 2.0),
        "friction": rng.uniform(0.15, 0.3),
        "angle": rng.uniform(0.8, 1.5),
        "rate": rng.uniform(-0.5, 0.5),
    }
    exact = {name: jnp.asarray(value, jnp.float32) for name, value in truth.items()}
    y = np.asarray(f(exact)) + normal(rng, 40, 1, scale=0.03)
    start = {"stiffness": 1.0, "friction": 0.5, "angle": 0.5, "rate": 0.0}
    params = {name: jnp.asarray(value, jnp.float32) for name, value in start.items()}
    return Setup(params, lambda p: jnp.mean((f(p) - y) ** 2), lambda p: beside(time, f(p)))


def posterior(rng: Rng) -> Setup:
    """Bayesian logistic regression by a factorized Gaussian: minus the evidence bound, summed
    over 40 samples, with fixed antithetic noise; behaviors: the 64 weights drawn, d = 3."""
    x = np.concatenate([normal(rng, 40, 2), np.ones((40, 1), np.float32)], axis=1)
    labels = rng.uniform(size=(40, 1)) < 1 / (1 + np.exp(-x @ normal(rng, 3, 1, scale=1.5)))
    labels = labels.astype(np.float32)
    half = normal(rng, 32, 3)
    noise = np.concatenate([half, -half])

    def f(p: Any) -> Array:
        return p["mean"] + jnp.exp(p["log_std"]) * noise

    def loss(p: Any) -> Array:
        entropy = optax.sigmoid_binary_cross_entropy(x @ f(p).T, labels)  # [40, 64]
        variance = jnp.exp(2 * p["log_std"])
        kl = 0.5 * jnp.sum(variance + p["mean"] ** 2 - 1 - 2 * p["log_std"])
        return jnp.mean(jnp.sum(entropy, axis=0)) + kl

    return Setup({"mean": jnp.zeros(3), "log_std": jnp.zeros(3)}, loss, f)


def ordinal(rng: Rng) -> Setup:
    """Grades 0 to 3 from five features of scales 0.3 to 4; behaviors: expected grades, d = 1."""
    z = normal(rng, 120, 5)
    x = z * np.array([0.3, 1.0, 4.0, 0.5, 2.0], np.float32)
    score = z @ normal(rng, 5, scale=1.0) + rng.logistic(size=120)
    grade = np.digitize(score, [-1.5, 0.0, 2.0])
    params = {"weight": jnp.zeros(5), "first": jnp.asarray(-1.0), "log_gap": jnp.zeros(2)}

    def above(p: Any) -> Array:
        """Probabilities that the grade is at least 1, 2, 3, [120, 3]."""
        gaps = jnp.concatenate([jnp.zeros_like(p["log_gap"][:1]), jnp.exp(p["log_gap"])])
        cuts = p["first"] + jnp.cumsum(gaps)
        return jax.nn.sigmoid((x @ p["weight"])[:, None] - cuts)

    def loss(p: Any) -> Array:
        bounds = jnp.pad(above(p), ((0, 0), (1, 0)), constant_values=1)
        bounds = jnp.pad(bounds, ((0, 0), (0, 1)))
        found = jnp.take_along_axis(bounds[:, :-1] - bounds[:, 1:], grade[:, None], axis=1)
        return -jnp.mean(jnp.log(found + 1e-6))

    return Setup(params, loss, lambda p: jnp.sum(above(p), axis=1, keepdims=True))


SETUPS: dict[str, Callable[[Rng], Setup]] = {
    setup.__name__: setup for setup in (completion, pendulum, posterior, ordinal)
}

# L* for the seeds 0, 1, 2, as --optima prints it.
OPTIMA: dict[str, tuple[float, float, float]] = {
    "completion": (0.026305903, 0.024531945, 0.023264124),
    "pendulum": (0.00073494435, 0.00075519687, 0.00062773975),
    "posterior": (17.12396, 28.032412, 26.700295),
    "ordinal": (0.6902208, 0.79177455, 1.0278665),
}


if __name__ == "__main__":
    base.SETUPS.update(SETUPS)
    base.OPTIMA.update(OPTIMA)
    base.PROBLEMS = {name: partial(base.make, name) for name in SETUPS}
    base.main()
