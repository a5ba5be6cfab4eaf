"""Is the default of `scale_by_wasserstein` safe, and does it pay? Small problems against SGD.

    python benchmarks/small_problems.py                          # the default, no arguments
    python benchmarks/small_problems.py --damping 0.3 --relative
    python benchmarks/small_problems.py --euclidean              # the default without its metric
    python benchmarks/small_problems.py --optima                 # recompute the table OPTIMA

Every problem is deterministic and full-batch. For each rate and seed, `optax.sgd(rate)` and
`optax.chain(tx, optax.sgd(rate))` start from the same parameters and have to reach

    target = L* + 0.02 (L0 − L*),

L0 being the initial loss and L* the lowest loss that Adam and L-BFGS find from the same
parameters (see `lowest`; in the table OPTIMA for the seeds 0, 1, 2). A run has diverged if any
loss along it is not finite, or if its last loss exceeds max(2·L0, 2·L0 − L*); the second form
serves losses that can be negative.
"""

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import wng
from wng.experiments.output import markdown_table

SHARE = 0.02  # of the initial gap to L*, left at the target
Rng = np.random.Generator
Layers = list[tuple[Array, Array]]


class Setup(NamedTuple):
    """A problem without its target."""

    params: Any
    loss_fn: Callable[[Any], Array]
    behavior_fn: Callable[[Any], Array]


class Problem(NamedTuple):
    """A loss to minimize, and what the model does."""

    name: str
    params: Any  # initial parameters, a pytree of float32 arrays
    loss_fn: Callable[[Any], Array]  # deterministic, full batch
    behavior_fn: Callable[[Any], Array]  # θ ↦ X [N, d], differentiable
    target: float  # loss to reach


def normal(rng: Rng, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Gaussian numbers, in float32 so that a float64 loss sees the same data."""
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def linear(params: Any, x: np.ndarray) -> Array:
    """Outputs [N, outputs] of the linear model (weight, bias)."""
    weight, bias = params
    return x @ weight + bias


def linear_params(rng: Rng, inputs: int, outputs: int = 1, scale: float = 0.1) -> Any:
    """Initial weight and bias of a linear model."""
    return jnp.asarray(normal(rng, inputs, outputs, scale=scale)), jnp.zeros(outputs)


def network_params(rng: Rng, *sizes: int) -> Layers:
    """Initial weights and biases of a tanh network."""
    shapes = itertools.pairwise(sizes)
    return [(jnp.asarray(normal(rng, i, o, scale=i**-0.5)), jnp.zeros(o)) for i, o in shapes]


def network(layers: Layers, x: np.ndarray | Array) -> Array:
    """Outputs [N, outputs] of a tanh network."""
    hidden = jnp.asarray(x)
    for weight, bias in layers[:-1]:
        hidden = jnp.tanh(hidden @ weight + bias)
    weight, bias = layers[-1]
    return hidden @ weight + bias


def beside(x: np.ndarray, outputs: Array) -> Array:
    """Inputs next to outputs, [N, inputs + outputs]."""
    return jnp.concatenate([jnp.asarray(x, outputs.dtype), outputs], axis=1)


def squared_norm(params: Any) -> Array:
    """Sum of the squares of all parameters."""
    return jnp.sum(ravel_pytree(params)[0] ** 2)


def linear_small(rng: Rng) -> Setup:
    """Linear regression with p < M; the behaviors are the predictions."""
    x = normal(rng, 64, 2)
    y = x @ normal(rng, 2, 1) + 0.5 + normal(rng, 64, 1, scale=0.1)
    f = partial(linear, x=x)
    return Setup(linear_params(rng, 2), lambda p: jnp.mean((f(p) - y) ** 2), f)


def linear_wide(rng: Rng) -> Setup:
    """Linear regression with p > M from zero weights: all predictions are equal at first."""
    x = normal(rng, 128, 30)
    y = x @ normal(rng, 30, 1, scale=30**-0.5) + normal(rng, 128, 1, scale=0.1)
    f = partial(linear, x=x)
    return Setup(linear_params(rng, 30, scale=0.0), lambda p: jnp.mean((f(p) - y) ** 2), f)


def linear_ill(rng: Rng) -> Setup:
    """Linear regression, curvatures from 1 to 0.001 that all matter equally for the loss."""
    z = normal(rng, 100, 10)
    x = z * np.logspace(0, -1.5, 10, dtype=np.float32)
    y = z @ normal(rng, 10, 1) + normal(rng, 100, 1, scale=0.1)
    f = partial(linear, x=x)
    return Setup(linear_params(rng, 10), lambda p: 0.5 * jnp.mean((f(p) - y) ** 2), f)


def linear_large(rng: Rng) -> Setup:
    """Linear regression with targets of size 100."""
    x = normal(rng, 64, 8)
    y = 100 * (x @ normal(rng, 8, 1, scale=8**-0.5) + normal(rng, 64, 1, scale=0.1))
    f = partial(linear, x=x)
    return Setup(linear_params(rng, 8), lambda p: jnp.mean((f(p) - y) ** 2), f)


def linear_sum(rng: Rng) -> Setup:
    """Linear regression with three outputs; the loss is a sum over samples and outputs."""
    x = normal(rng, 32, 3)
    y = x @ normal(rng, 3, 3) + normal(rng, 32, 3, scale=0.1)
    f = partial(linear, x=x)
    return Setup(linear_params(rng, 3, 3), lambda p: 0.5 * jnp.sum((f(p) - y) ** 2), f)


def logistic(rng: Rng) -> Setup:
    """Logistic regression with L2 and p < M; behaviors: inputs next to probabilities."""
    x = normal(rng, 80, 2)
    labels = (x @ normal(rng, 2, 1, scale=2.0) + normal(rng, 80, 1) > 0.3).astype(np.float32)
    f = partial(linear, x=x)

    def loss(p: Any) -> Array:
        entropy = jnp.mean(optax.sigmoid_binary_cross_entropy(f(p), labels))
        return entropy + 0.5e-3 * squared_norm(p)

    return Setup(linear_params(rng, 2), loss, lambda p: beside(x, jax.nn.sigmoid(f(p))))


def logistic_sum(rng: Rng) -> Setup:
    """Logistic regression with p > M and a summed loss; the behaviors are the logits."""
    x = normal(rng, 100, 10)
    labels = (x @ normal(rng, 10, 1) + normal(rng, 100, 1, scale=2.0) > 0).astype(np.float32)
    f = partial(linear, x=x)

    def loss(p: Any) -> Array:
        return jnp.sum(optax.sigmoid_binary_cross_entropy(f(p), labels))

    return Setup(linear_params(rng, 10), loss, f)


def quadratic_net(rng: Rng) -> Setup:
    """A quadratic loss of four outputs with condition number 100, through a tanh network."""
    x = normal(rng, 64, 3)
    rotation = np.linalg.qr(normal(rng, 4, 4))[0]
    curvature = np.logspace(0, -2, 4, dtype=np.float32)
    # Targets are larger where the loss is flatter, so that all directions matter equally.
    z = np.asarray(network(network_params(rng, 3, 6, 4), x))
    y = z / np.sqrt(curvature) @ rotation.T
    f = partial(network, x=x)

    def loss(p: Any) -> Array:
        return 0.5 * jnp.mean(jnp.sum(curvature * ((f(p) - y) @ rotation) ** 2, axis=1))

    return Setup(network_params(rng, 3, 6, 4), loss, f)


def exponentials(rng: Rng) -> Setup:
    """A sum of two decays with p < M; behaviors: times next to predictions."""
    time = np.linspace(0, 5, 40, dtype=np.float32)[:, None]

    def f(p: Any) -> Array:
        return jnp.sum(p["size"] * jnp.exp(-p["rate"] * time), axis=1, keepdims=True)

    size, rate = rng.uniform(1, 3, 2).astype(np.float32), np.array([0.3, 3.0], np.float32)
    y = np.asarray(f({"size": size, "rate": rate})) + normal(rng, 40, 1, scale=0.02)
    params = {"size": jnp.ones(2), "rate": jnp.array([0.5, 1.5])}
    return Setup(params, lambda p: jnp.mean((f(p) - y) ** 2), lambda p: beside(time, f(p)))


def tanh_mlp(rng: Rng) -> Setup:
    """A sine with a tanh network of one hidden layer; the behaviors are the predictions."""
    x = np.linspace(-2, 2, 64, dtype=np.float32)[:, None]
    y = np.sin(2 * x + rng.uniform(0, 3)).astype(np.float32) + normal(rng, 64, 1, scale=0.05)
    f = partial(network, x=x)
    return Setup(network_params(rng, 1, 16, 1), lambda p: jnp.mean((f(p) - y) ** 2), f)


def mlp_tiny(rng: Rng) -> Setup:
    """Targets of size 0.01 and a tanh network whose last layer starts at that size."""
    x = normal(rng, 64, 2)
    y = 0.01 * (np.sin(x[:, :1]) * x[:, 1:] + normal(rng, 64, 1, scale=0.05))
    f = partial(network, x=x)
    layers = network_params(rng, 2, 8, 1)
    layers[-1] = (0.01 * layers[-1][0], layers[-1][1])
    return Setup(layers, lambda p: jnp.mean((f(p) - y) ** 2), f)


def softmax_net(rng: Rng) -> Setup:
    """Three classes, a tanh network and L2; the behaviors are the logits."""
    centers = normal(rng, 3, 2, scale=1.5)
    labels = np.arange(90) % 3
    x = centers[labels] + normal(rng, 90, 2)
    f = partial(network, x=x)

    def loss(p: Any) -> Array:
        entropy = optax.softmax_cross_entropy_with_integer_labels(f(p), jnp.asarray(labels))
        return jnp.mean(entropy) + 0.5e-3 * squared_norm(p)

    return Setup(network_params(rng, 2, 8, 3), loss, f)


def generator_mmd(rng: Rng) -> Setup:
    """A generator fitted to samples by MMD; the behaviors are its samples."""
    noise = normal(rng, 64, 2)
    angle = rng.uniform(0, np.pi, (80, 1))
    data = 2 * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    data = data.astype(np.float32) + normal(rng, 80, 2, scale=0.1)
    f = partial(network, x=noise)

    def kernel(a: Any, b: Any) -> Array:
        squares = jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)
        return jnp.mean(jnp.exp(-squares / 2))

    def loss(p: Any) -> Array:
        samples = f(p)
        return kernel(samples, samples) - 2 * kernel(samples, data) + kernel(data, data)

    return Setup(network_params(rng, 2, 8, 2), loss, f)


def mixture(rng: Rng) -> Setup:
    """The means of a 1-D mixture with p < M; the behaviors are reparameterized samples."""
    width, part = 0.7, np.arange(60) % 3
    centers = np.array([-3, 0, 3], np.float32) + normal(rng, 3, scale=0.5)
    data = centers[rng.integers(0, 3, 100)] + normal(rng, 100, scale=width)
    noise = normal(rng, 60, scale=width)

    def loss(means: Any) -> Array:
        logits = -0.5 * ((data[:, None] - means) / width) ** 2
        normalizer = np.log(3 * width * np.sqrt(2 * np.pi))
        return -jnp.mean(jax.nn.logsumexp(logits, axis=1)) + normalizer

    start = jnp.array([-1.0, 0.0, 1.0]) + normal(rng, 3, scale=0.1)
    return Setup(start, loss, lambda means: (means[part] + noise)[:, None])


def deep_narrow(rng: Rng) -> Setup:
    """Eight tanh layers of width 4; the behaviors are the predictions."""
    x = normal(rng, 64, 2)
    y = np.sin(x[:, :1]) + 0.5 * np.cos(2 * x[:, 1:]) + normal(rng, 64, 1, scale=0.05)
    f = partial(network, x=x)
    params = network_params(rng, 2, *[4] * 8, 1)
    return Setup(params, lambda p: 0.5 * jnp.mean((f(p) - y) ** 2), f)


def poisson(rng: Rng) -> Setup:
    """Poisson regression with p < M and a summed loss; the behaviors are the predicted counts."""
    x = normal(rng, 50, 3)
    y = rng.poisson(np.exp(x @ normal(rng, 3, 1, scale=0.4) + 1)).astype(np.float32)
    f = partial(linear, x=x)

    def loss(p: Any) -> Array:
        return jnp.sum(jnp.exp(f(p)) - y * f(p))

    return Setup(linear_params(rng, 3), loss, lambda p: jnp.exp(f(p)))


def huber(rng: Rng) -> Setup:
    """Robust regression, targets of size 100, outliers; behaviors: inputs next to predictions."""
    x = normal(rng, 80, 5)
    y = 100 * (x @ normal(rng, 5, 1, scale=5**-0.5) + normal(rng, 80, 1, scale=0.1))
    y[::10] += 500
    f = partial(linear, x=x)

    def loss(p: Any) -> Array:
        return jnp.mean(optax.huber_loss(f(p), y))

    return Setup(linear_params(rng, 5), loss, lambda p: beside(x, f(p)))


SETUPS: dict[str, Callable[[Rng], Setup]] = {
    setup.__name__: setup
    for setup in (
        linear_small,
        linear_wide,
        linear_ill,
        linear_large,
        linear_sum,
        logistic,
        logistic_sum,
        quadratic_net,
        exponentials,
        tanh_mlp,
        mlp_tiny,
        softmax_net,
        generator_mmd,
        mixture,
        deep_narrow,
        poisson,
        huber,
    )
}

# L* for the seeds 0, 1, 2, as --optima prints it.
OPTIMA: dict[str, tuple[float, float, float]] = {
    "linear_small": (0.010268638, 0.0082488269, 0.0095683936),
    "linear_wide": (0.0072621619, 0.0069498238, 0.0075873635),
    "linear_ill": (0.0053879003, 0.0044717931, 0.0049861403),
    "linear_large": (91.405628, 71.370664, 98.867295),
    "linear_sum": (0.37390994, 0.38862881, 0.46676809),
    "logistic": (0.17183011, 0.44122566, 0.2224584),
    "logistic_sum": (27.922081, 16.838598, 36.501806),
    "quadratic_net": (2.7453577e-09, 2.9871022e-11, 1.5592988e-08),
    "exponentials": (0.00038238729, 0.00046872834, 0.00032476382),
    "tanh_mlp": (0.0015084365, 0.0012421683, 0.001579274),
    "mlp_tiny": (2.1080773e-07, 2.4179411e-07, 1.9683622e-07),
    "softmax_net": (0.26838256, 0.27512073, 0.13967228),
    "generator_mmd": (5.9522737e-08, 1.0222622e-07, 9.1728066e-08),
    "mixture": (2.0644931, 2.0173238, 2.21787),
    "deep_narrow": (0.00035397605, 0.00025928083, 0.00020925902),
    "poisson": (-146.86054, 2.3599766, -91.712882),
    "huber": (56.712205, 54.446817, 55.527196),
}


def set_up(name: str, seed: int) -> Setup:
    """The problem of that name with data and parameters drawn from `seed`."""
    return SETUPS[name](np.random.default_rng([seed, *name.encode()]))


def known_optimum(name: str, seed: int) -> float:
    """L* from the table."""
    if not 0 <= seed < len(OPTIMA[name]):
        raise ValueError(f"L* is known for the seeds 0, 1, 2 only, got seed {seed}.")
    return OPTIMA[name][seed]


def make(name: str, seed: int) -> Problem:
    """The problem of that name and seed, with its target."""
    setup, optimum = set_up(name, seed), known_optimum(name, seed)
    start = float(setup.loss_fn(setup.params))
    return Problem(name, *setup, target=optimum + SHARE * (start - optimum))


PROBLEMS: dict[str, Callable[[int], Problem]] = {name: partial(make, name) for name in SETUPS}


def lowest(setup: Setup) -> float:
    """L*, in float64: L-BFGS from the initial parameters and from where Adam at 3 rates ends."""
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: x.astype(float), setup.params))
        loss = jax.jit(jax.value_and_grad(lambda v: setup.loss_fn(unravel(v))))

        @jax.jit
        def adam(rate: Array) -> Array:
            tx = optax.adam(rate)

            def step(carry: Any, _: None) -> tuple[Any, None]:
                v, state = carry
                updates, state = tx.update(loss(v)[1], state)
                return (optax.apply_updates(v, updates), state), None

            return jax.lax.scan(step, (flat, tx.init(flat)), length=5000)[0][0]

        starts = [flat, *(adam(jnp.asarray(rate)) for rate in (0.001, 0.01, 0.1))]
        options = {"maxiter": 3000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-9}
        ends = [
            minimize(
                lambda v: tuple(map(np.asarray, loss(v))),
                np.asarray(start),
                jac=True,
                method="L-BFGS-B",
                options=options,
            ).fun
            for start in starts
        ]
        return float(np.nanmin(ends))


@partial(jax.jit, static_argnames=("loss_fn", "behavior_fn", "tx", "steps"))
def losses(
    params: Any,
    learning_rate: Array,
    key: Array,
    loss_fn: Callable[[Any], Array],
    behavior_fn: Callable[[Any], Array],
    tx: optax.GradientTransformation,
    steps: int,
) -> Array:
    """The loss before the first step and after each, [steps + 1]."""
    optimizer = optax.with_extra_args_support(optax.chain(tx, optax.sgd(learning_rate)))

    def step(carry: Any, number: Array) -> tuple[Any, Array]:
        params, state = carry
        value, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(
            grads,
            state,
            params,
            key=jax.random.fold_in(key, number),
            behavior_fn=behavior_fn,
            value=value,  # these two for a transformation with adaptive damping
            value_fn=loss_fn,
        )
        return (optax.apply_updates(params, updates), state), value

    carry = params, optimizer.init(params)
    (params, _), values = jax.lax.scan(step, carry, jnp.arange(steps))
    return jnp.append(values, loss_fn(params))


def run(
    problem: Problem,
    tx: optax.GradientTransformation,
    learning_rate: float,
    steps: int = 1000,
    seed: int = 0,
) -> tuple[int | None, bool]:
    """Minimize with `optax.chain(tx, optax.sgd(learning_rate))`.

    Args:
      problem: what to minimize.
      tx: transformation of the gradient; `optax.identity()` gives plain SGD.
      learning_rate: of `optax.sgd`.
      steps: length of the run.
      seed: of the keys that are passed to `tx`.

    Returns:
      The first step at or below the target, or None; and whether the run has diverged: a loss
      along it is not finite, or the last one exceeds max(2·L0, 2·L0 − L*).
    """
    found = np.asarray(
        losses(
            problem.params,
            jnp.asarray(learning_rate),
            jax.random.key(seed),
            problem.loss_fn,
            problem.behavior_fn,
            tx,
            steps,
        ),
        float,
    )
    start = found[0]
    optimum = (problem.target - SHARE * start) / (1 - SHARE)
    diverged = not np.isfinite(found).all() or found[-1] > max(2 * start, 2 * start - optimum)
    reached = np.flatnonzero(found <= problem.target)
    return (int(reached[0]) if reached.size else None), bool(diverged)


class Case(NamedTuple):
    """SGD and WNG from the same parameters at the same rate."""

    sgd: int | None  # steps to the target
    wng: int | None
    sgd_diverged: bool
    wng_diverged: bool


def summary(cases: list[Case], steps: int) -> str:
    """What the cases say together, as a Markdown list."""
    lost = sum(c.wng_diverged and not c.sgd_diverged for c in cases)
    saved = sum(c.sgd_diverged and not c.wng_diverged for c in cases)
    reached = [c for c in cases if c.sgd is not None], [c for c in cases if c.wng is not None]
    late = sum(c.sgd_diverged for c in reached[0]), sum(c.wng_diverged for c in reached[1])
    decided = [c for c in cases if c.sgd is not None or c.wng is not None]
    pairs = [(c.sgd or steps, c.wng or steps) for c in decided]
    lines = [
        f"{len(cases)} cases; diverged: SGD {sum(c.sgd_diverged for c in cases)}, "
        f"WNG {sum(c.wng_diverged for c in cases)}",
        f"WNG diverges and SGD does not: {lost}; SGD diverges and WNG does not: {saved}",
        f"reached the target, but diverged: SGD {late[0]}, WNG {late[1]}",
        f"target reached by either: {len(decided)}, by SGD: {len(reached[0])}, "
        f"by WNG: {len(reached[1])}",
    ]
    if pairs:
        ratio = float(np.median([w / s for s, w in pairs]))
        better, equal = (np.mean([test(w, s) for s, w in pairs]) for test in (np.less, np.equal))
        lines += [
            f"of those, median of WNG steps / SGD steps (unreached counts as {steps}): {ratio:.3g}",
            f"of those, WNG better: {better:.0%} (equal: {equal:.0%})",
        ]
    return "\n".join(f"- {line}" for line in lines)


class Euclidean(NamedTuple):
    """The identity as a metric."""

    largest_eigenvalue: Array

    def solve(self, g: Array, damping: Array) -> Array:
        """g / (1 + ε)."""
        return g / (self.largest_eigenvalue + damping)


def euclidean() -> optax.GradientTransformationExtraArgs:
    """The default's rule for the length of the step, without the Wasserstein metric."""
    scale = wng.scale_by_metric(None)

    def update(grads: Any, state: Any, params: Any, **extra: Any) -> Any:
        metric = Euclidean(jnp.ones(()))
        return scale.update(grads, state, params, metric_fn=lambda _: metric, **extra)

    return optax.GradientTransformationExtraArgs(scale.init, update)


def transformation(args: argparse.Namespace) -> optax.GradientTransformation:
    """`wng.scale_by_wasserstein` with what the command line sets, and no other arguments."""
    if args.euclidean:
        return euclidean()
    chosen: dict[str, Any] = {}
    if args.num_basis is not None:
        chosen["num_basis"] = args.num_basis
    if args.damping is not None:
        chosen["damping"] = wng.Damping(args.damping, relative=args.relative)
    return wng.scale_by_wasserstein(**chosen)


def describe(names: list[str], seeds: list[int]) -> str:
    """Sizes and losses of the problems, as a Markdown table."""
    rows: list[list[object]] = []
    for name in names:
        setups = [set_up(name, seed) for seed in seeds]
        starts = [f"{float(s.loss_fn(s.params)):.4g}" for s in setups]
        optima = [f"{known_optimum(name, seed):.4g}" for seed in seeds]
        params, _, behavior_fn = setups[0]
        size, shape = ravel_pytree(params)[0].size, behavior_fn(params).shape
        rows.append([name, size, *shape, ", ".join(starts), ", ".join(optima)])
    return markdown_table(["problem", "p", "N", "d", "L0", "L*"], rows)


def main() -> None:
    """Run all problems at all rates, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damping", type=float, help="ε; the transformation's default if not set")
    parser.add_argument(
        "--relative", action="store_true", help="--damping is a multiple of the largest eigenvalue"
    )
    parser.add_argument(
        "--euclidean", action="store_true", help="the default's rule without its metric"
    )
    parser.add_argument("--num-basis", type=int, help="M; the transformation's default if not set")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--optima", action="store_true", help="compute L* and do nothing else")
    args = parser.parse_args()
    if args.relative and args.damping is None:
        parser.error("--relative needs --damping.")
    if args.euclidean and (args.damping is not None or args.num_basis is not None):
        parser.error("--euclidean has no --damping and no --num-basis.")
    if args.optima:
        for name in args.problems:
            found = [f"{lowest(set_up(name, seed)):.8g}" for seed in args.seeds]
            print(f'    "{name}": ({", ".join(found)}),', flush=True)
        return
    print(describe(args.problems, args.seeds), end="\n\n", flush=True)
    sgd, natural = optax.identity(), transformation(args)
    cases: list[Case] = []
    header = ["problem", "rate", "SGD steps", "WNG steps", "diverged"]
    print(markdown_table(header, []), flush=True)
    for name in args.problems:
        problems = {seed: PROBLEMS[name](seed) for seed in args.seeds}
        for rate in args.rates:
            here: list[Case] = []
            for seed, problem in problems.items():
                plain = run(problem, sgd, rate, args.steps, seed)
                scaled = run(problem, natural, rate, args.steps, seed)
                here.append(Case(plain[0], scaled[0], plain[1], scaled[1]))
            cases += here
            counts = sum(c.sgd_diverged for c in here), sum(c.wng_diverged for c in here)
            shown = [f"{n} {count}" for n, count in zip(("SGD", "WNG"), counts, strict=True)]
            print(
                f"| {name} | {rate:g} | {', '.join(str(c.sgd or '–') for c in here)} "
                f"| {', '.join(str(c.wng or '–') for c in here)} "
                f"| {', '.join(s for s, n in zip(shown, counts, strict=True) if n) or 'no'} |",
                flush=True,
            )
    print(f"\nSteps of seeds {args.seeds}; diverged: number of seeds.\n")
    print(summary(cases, args.steps))


if __name__ == "__main__":
    main()
