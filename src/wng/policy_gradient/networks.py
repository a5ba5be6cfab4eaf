"""Policy and value networks, and the two action distributions.

What acting takes (networks, samples and modes) runs in NumPy where all arrays are NumPy's; see
`Program.actor`.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class MLP(eqx.Module):
    """A tanh network on batches [..., in]: plain matrix products, no vmap."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __init__(self, key: PRNGKeyArray, sizes: Sequence[int], last_scale: float):
        scales = [2**0.5] * (len(sizes) - 2) + [last_scale]
        shapes = list(itertools.pairwise(sizes))
        # One draw for all layers: each takes XLA a third of a second to compile. The numbers that a
        # layer needs are the first of its row.
        most = max(map(math.prod, shapes))
        rows = jax.vmap(lambda k: jax.random.normal(k, (most,)))(jax.random.split(key, len(shapes)))
        self.weights = tuple(map(_orthogonal, rows, shapes, scales))
        self.biases = tuple(jnp.zeros(size) for size in sizes[1:])

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        """Output of the network."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight + bias
            x = x.__array_namespace__().tanh(x)
        return x @ self.weights[-1] + self.biases[-1]


def _orthogonal(drawn: Array, shape: tuple[int, int], scale: float) -> Float[Array, "i o"]:
    """What `jax.nn.initializers.orthogonal` makes of normal numbers."""
    Q, R = jnp.linalg.qr(drawn[: math.prod(shape)].reshape(max(shape), min(shape)))
    Q *= jnp.sign(jnp.diag(R))
    return scale * (Q if shape[0] >= shape[1] else Q.T)


class Gaussian(NamedTuple):
    """N(mean, diag σ²) over actions; every method is per state (the last axis is summed)."""

    mean: Float[Array, "... a"]
    log_std: Float[Array, "... a"]

    @staticmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """What `sample` needs, standard normal."""
        return jax.random.normal(key, shape)

    def sample(self, noise: Array) -> Array:
        """a = μ + σz: differentiable in the parameters."""
        return self.mean + self.log_std.__array_namespace__().exp(self.log_std) * noise

    def mode(self) -> Array:
        """The most likely action."""
        return self.mean

    def log_prob(self, action: Array) -> Array:
        """log π(a|s)."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    def kl(self, new: Any) -> Array:
        """KL(self, new)."""
        ratio = jnp.exp(2 * (self.log_std - new.log_std))
        distance = (self.mean - new.mean) ** 2 * jnp.exp(-2 * new.log_std)
        return jnp.sum(new.log_std - self.log_std + 0.5 * (ratio + distance - 1), axis=-1)

    def wasserstein_squared(self, new: Any) -> Array:
        """W₂²(self, new) = ‖μ − μ'‖² + ‖σ − σ'‖²."""
        spread = jnp.exp(self.log_std) - jnp.exp(new.log_std)
        return jnp.sum((self.mean - new.mean) ** 2 + spread**2, axis=-1)

    def coordinates(self) -> Array:
        """(μ, σ), in which W₂ is the Euclidean distance."""
        return jnp.concatenate([self.mean, jnp.exp(self.log_std)], axis=-1)

    def entropy(self) -> Array:
        """Differential entropy."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def fisher(self, tangent: Any) -> "Gaussian":
        """Hessian of KL(self, ·) at self, applied to a tangent: diag(1/σ², 2)."""
        return Gaussian(tangent.mean * jnp.exp(-2 * self.log_std), 2 * tangent.log_std)

    def wasserstein(self, tangent: "Gaussian") -> "Gaussian":
        """Half the Hessian of W₂²(self, ·) at self, applied to a tangent: diag(1, σ²)."""
        return Gaussian(tangent.mean, tangent.log_std * jnp.exp(2 * self.log_std))

    def clipped_wasserstein(self, tangent: "Gaussian", low: Any, high: Any) -> "Gaussian":
        """Half the Hessian of W₂² of the clipped action, clip(μ + σz), applied to a tangent.

        Clipping is monotone, so optimal transport pairs equal z, and (dμ, dσ) costs
        E[1(low < μ + σz < high) (dμ + z dσ)²]: moments of a normal between two bounds.
        """
        std = jnp.exp(self.log_std)
        # Nothing is beyond 30 σ, and ±∞ would be multiplied by a density of 0.
        a, b = (jnp.clip((x - self.mean) / std, -30, 30) for x in map(jnp.asarray, (low, high)))
        density_a, density_b = jax.scipy.stats.norm.pdf(a), jax.scipy.stats.norm.pdf(b)
        cdf, above = jax.scipy.stats.norm.cdf, a > 0  # of two numbers near 1, little would be left
        inside = jnp.where(above, cdf(-a) - cdf(-b), cdf(b) - cdf(a))
        first = density_a - density_b  # E[1(…) z]
        second = inside + a * density_a - b * density_b  # E[1(…) z²]
        mean, spread = tangent.mean, std * tangent.log_std
        return Gaussian(inside * mean + first * spread, std * (first * mean + second * spread))


class Categorical(NamedTuple):
    """A choice among k actions; behaviors see it as a one-hot vector."""

    logits: Float[Array, "... k"]

    @staticmethod
    def noise(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """What `sample` needs, standard Gumbel."""
        return jax.random.gumbel(key, shape)

    def sample(self, noise: Array) -> Array:
        """The Gumbel-max trick: an exact sample, not differentiable."""
        return (self.logits + noise).argmax(axis=-1)

    def mode(self) -> Array:
        """The most likely action."""
        return self.logits.argmax(axis=-1)

    def log_probs(self) -> Array:
        """log π of every action."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """log π(a|s)."""
        return jnp.take_along_axis(self.log_probs(), action[..., None], axis=-1)[..., 0]

    def kl(self, new: Any) -> Array:
        """KL(self, new)."""
        old = self.log_probs()
        return jnp.sum(jnp.exp(old) * (old - new.log_probs()), axis=-1)

    def wasserstein_squared(self, new: Any) -> Array:
        """W₂²(self, new) of one-hot actions, ‖e_i − e_j‖² = 2 apart: twice the total variation."""
        return jnp.sum(jnp.abs(jnp.exp(self.log_probs()) - jnp.exp(new.log_probs())), axis=-1)

    def coordinates(self) -> Array:
        """π, the mean of the one-hot action."""
        return jnp.exp(self.log_probs())

    def entropy(self) -> Array:
        """−E[log π]."""
        return -jnp.sum(jnp.exp(self.log_probs()) * self.log_probs(), axis=-1)

    def fisher(self, tangent: Any) -> "Categorical":
        """Hessian of KL(self, ·) at self, applied to a tangent: diag(π) − ππᵀ."""
        probs = jnp.exp(self.log_probs())
        inner = jnp.sum(probs * tangent.logits, axis=-1, keepdims=True)
        return Categorical(probs * (tangent.logits - inner))


Distribution = Gaussian | Categorical


def action_noise(discrete: bool, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """The noise that `sample` takes: Gumbel for discrete actions, otherwise normal."""
    return (Categorical if discrete else Gaussian).noise(key, shape)


class Policy(eqx.Module):
    """π_θ(a|s): a network for the mean or the logits, and a log-std that no state changes."""

    net: MLP
    log_std: Array | None  # None: discrete actions

    def __call__(self, observations: Float[Array, "... d"]) -> Distribution:
        """The distribution over actions in each state."""
        output = self.net(observations)
        if self.log_std is None:
            return Categorical(output)
        arrays = output.__array_namespace__()
        return Gaussian(output, arrays.broadcast_to(self.log_std, output.shape))


class Networks(eqx.Module):
    """All trainable parameters: separate policy and value networks."""

    policy: Policy
    value: MLP

    def values(self, observations: Float[Array, "... d"]) -> Float[Array, "..."]:
        """V(s)."""
        return self.value(observations)[..., 0]


def init_networks(
    key: PRNGKeyArray,
    observation_size: int,
    action_size: int,
    *,
    discrete: bool,
    hidden: Sequence[int],
    log_std: float,
) -> Networks:
    """Orthogonal initialization, √2 inside, 0.01 for the actions, 1 for the value."""
    policy_key, value_key = jax.random.split(key)
    return Networks(
        Policy(
            MLP(policy_key, (observation_size, *hidden, action_size), last_scale=0.01),
            None if discrete else jnp.full(action_size, log_std, jnp.float32),
        ),
        MLP(value_key, (observation_size, *hidden, 1), last_scale=1.0),
    )
