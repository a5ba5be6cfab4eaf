r"""Policies whose parameters are perturbed: tanh networks, dense or Toeplitz.

A Toeplitz matrix W_ij = w_{i−j} has out + in − 1 parameters instead of out · in; with few
parameters a small population is enough (Choromanski et al., Structured Evolution, 2018).
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from wng.evolution.config import PolicyKind


class Layer(NamedTuple):
    """A layer, ready to be applied."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None


@dataclass(frozen=True)
class Policy:
    """A network from observations to actions.

    Args:
      observation_size: Length of an observation.
      action_size: Number of action dimensions, or of actions if `discrete`.
      kind: Kind of the weight matrices.
      hidden: Widths of the tanh layers.
      discrete: Whether to choose the action with the largest output.
      low, high: Bounds of continuous actions; tanh keeps within finite ones.
    """

    observation_size: int
    action_size: int
    kind: PolicyKind = "toeplitz"
    hidden: tuple[int, ...] = (16, 16)
    discrete: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

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

    def init(self, key: PRNGKeyArray) -> list[dict[str, Array]]:
        """Draw weights of variance 1/in; biases are 0, and the last layer has none, as released."""
        params = []
        for number, (inputs, outputs) in enumerate(self._sizes):
            shape = (outputs + inputs - 1,) if self.kind == "toeplitz" else (outputs, inputs)
            draw = jax.random.normal(jax.random.fold_in(key, number), shape)
            layer = {"weight": draw / inputs**0.5}
            if number < len(self.hidden):
                layer["bias"] = jnp.zeros(outputs)
            params.append(layer)
        return params

    def layers(self, params: Any) -> list[Layer]:
        """Make the weight matrices, once for an episode."""
        return [Layer(self._matrix(p["weight"], *size), p.get("bias"))
                for p, size in zip(params, self._sizes, strict=True)]  # fmt: skip

    def _matrix(self, weight: Array, inputs: int, outputs: int) -> Float[Array, "out in"]:
        if self.kind == "dense":
            return weight
        return weight[np.arange(outputs)[:, None] - np.arange(inputs) + inputs - 1]

    def act(
        self, layers: list[Layer], observation: Float[Array, " d"], noise: Float[Array, " a"]
    ) -> Array:
        """Choose the action in a state; `noise` is in units of half the range of an action."""
        x = observation
        for layer in layers[:-1]:
            x = jnp.tanh(layer.weight @ x + (0 if layer.bias is None else layer.bias))
        x = layers[-1].weight @ x
        if self.discrete:
            return jnp.argmax(x + noise)
        low, high = jnp.array(self.low), jnp.array(self.high)
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle = jnp.where(bounded, (low + high) / 2, 0)
        half = jnp.where(bounded, (high - low) / 2, 1)
        squashed = jnp.where(bounded, jnp.tanh(x), x)
        return jnp.clip(middle + half * (squashed + noise), low, high)
