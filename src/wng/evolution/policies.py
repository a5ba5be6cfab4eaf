r"""Policies whose parameters are perturbed: tanh networks, dense or Toeplitz.

A Toeplitz matrix W_ij = w_{i−j} has out + in − 1 parameters instead of out · in; with few
parameters a small population is enough (Choromanski et al., Structured Evolution, 2018).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from wng.evolution.config import PolicyKind, Start

Layer = tuple[Float[Array, "out in"], Any]  # weight matrix, and bias if it has one


@dataclass(frozen=True)
class Policy:
    """A network from observations to actions."""

    observation_size: int
    action_size: int  # number of action dimensions, or of actions if discrete
    kind: PolicyKind = "toeplitz"
    hidden: tuple[int, ...] = (16, 16)
    discrete: bool = False  # if so, it chooses the action with the largest output
    low: tuple[float, ...] = ()  # bounds of continuous actions; tanh keeps within finite ones
    high: tuple[float, ...] = ()
    start: Start = "normal"

    @property
    def _sizes(self) -> list[tuple[int, int]]:
        widths = [self.observation_size, *self.hidden, self.action_size]
        return list(itertools.pairwise(widths))

    @property
    def least_memory(self) -> int:
        """Least count of numbers in memory: matrices, θ at the start, θ, Adam's two moments."""
        if self.kind == "dense":
            return sum(4 * i * o for i, o in self._sizes)
        return sum(i * o + 4 * (i + o - 1) for i, o in self._sizes)

    @partial(jax.jit, static_argnums=0)
    def init(self, key: PRNGKeyArray) -> list[dict[str, Array]]:
        """Draw the parameters; the last layer has no biases, as released."""
        toeplitz, sizes = self.kind == "toeplitz", self._sizes
        shapes = [(o + i - 1,) if toeplitz else (o, i) for i, o in sizes]
        # One draw for all layers: each takes XLA a third of a second to compile. The numbers that a
        # layer needs are the first of its row.
        most = max(map(math.prod, shapes))
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(sizes)))
        if self.start == "uniform":
            return self._uniform(keys, shapes)
        rows = jax.vmap(lambda k: jax.random.normal(k, (most,)))(keys)
        params = []
        for number, (inputs, outputs) in enumerate(sizes):
            drawn = rows[number, : math.prod(shapes[number])].reshape(shapes[number])
            layer = {"weight": drawn / inputs**0.5}
            if number < len(self.hidden):
                layer["bias"] = jnp.zeros(outputs)
            params.append(layer)
        return params

    def _uniform(
        self, keys: PRNGKeyArray, shapes: Sequence[tuple[int, ...]]
    ) -> list[dict[str, Array]]:
        """Each vector of d weights or biases uniform in [0, 1/√d]."""
        params = []
        for number, shape in enumerate(shapes):
            weights = math.prod(shape)
            biases = self.hidden[number] if number < len(self.hidden) else 0
            drawn = jax.random.uniform(keys[number], (weights + biases,))
            layer = {"weight": drawn[:weights].reshape(shape) / weights**0.5}
            if biases:
                layer["bias"] = drawn[weights:] / biases**0.5
            params.append(layer)
        return params

    def layers(self, params: Any) -> list[Layer]:
        """Make the weight matrices, once for an episode."""
        sizes = zip(params, self._sizes, strict=True)
        return [(self._matrix(p["weight"], *size), p.get("bias")) for p, size in sizes]

    def _matrix(self, weight: Array, inputs: int, outputs: int) -> Float[Array, "out in"]:
        if self.kind == "dense":
            return weight
        return weight[np.arange(outputs)[:, None] - np.arange(inputs) + inputs - 1]

    def act(
        self, layers: list[Layer], observation: Float[Array, " d"], noise: Float[Array, " a"]
    ) -> Array:
        """Choose the action in a state; `noise` is in units of half the range of an action."""
        x = observation
        for weight, bias in layers[:-1]:
            x = jnp.tanh(weight @ x + bias)
        x = layers[-1][0] @ x
        if self.discrete:
            return jnp.argmax(x + noise)
        low, high = jnp.array(self.low), jnp.array(self.high)
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle = jnp.where(bounded, (low + high) / 2, 0)
        half = jnp.where(bounded, (high - low) / 2, 1)
        squashed = jnp.where(bounded, jnp.tanh(x), x)
        return jnp.clip(middle + half * (squashed + noise), low, high)
