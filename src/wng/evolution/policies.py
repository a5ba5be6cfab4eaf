r"""Policies whose parameters are perturbed: two hidden layers of tanh, dense or Toeplitz.

A Toeplitz matrix W_ij = w_{i−j} has out + in − 1 parameters in place of out · in; few parameters
are what makes a small population enough (Choromanski et al., Structured Evolution, 2018).
"""

import itertools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Kind = Literal["toeplitz", "dense"]


class Layer(NamedTuple):
    """A layer as it is applied."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None


@dataclass(frozen=True)
class Policy:
    """A network from observations to actions, and what its parameters are.

    Args:
      observation_size: length of an observation.
      action_size: action dimensions, or actions if `discrete`.
      kind: of the weight matrices.
      hidden: widths of the tanh layers.
      discrete: the action is the one with the largest output.
      low, high: bounds of continuous actions; where they are finite, tanh keeps within them.
    """

    observation_size: int
    action_size: int
    kind: Kind = "toeplitz"
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
        """Numbers that are held at the least: its matrices, θ as drawn, θ in use, Adam's two."""
        if self.kind == "dense":
            return sum(4 * i * o for i, o in self._sizes)
        return sum(i * o + 4 * (i + o - 1) for i, o in self._sizes)

    def init(self, key: PRNGKeyArray) -> list[dict[str, Array]]:
        """Random weights of variance 1/in, zero biases; the last layer has none, as released."""
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
        """The matrices, to be made once for an episode."""
        return [Layer(self._matrix(p["weight"], *size), p.get("bias"))
                for p, size in zip(params, self._sizes, strict=True)]  # fmt: skip

    def _matrix(self, weight: Array, inputs: int, outputs: int) -> Float[Array, "out in"]:
        if self.kind == "dense":
            return weight
        return weight[np.arange(outputs)[:, None] - np.arange(inputs) + inputs - 1]

    def act(
        self, layers: list[Layer], observation: Float[Array, " d"], noise: Float[Array, " a"]
    ) -> Array:
        """The action in a state; `noise` is in units of half the range of an action."""
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
