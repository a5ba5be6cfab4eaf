r"""A basis for models that map inputs to outputs: linear in the outputs, local in the inputs.

For X = (s, y), with fixed inputs s and outputs y that depend on θ, the relevant distance is the
mean over inputs of the distance between outputs *at the same input*, E_s W₂²(q(·|s), q'(·|s)).
Its dual needs only the gradient in y:  sup_f ∇_θE[f]ᵀu − ½E‖∇_y f‖².
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.estimator.checks import check_count, check_key, check_samples
from wng.estimator.shuffle import shuffled


class ConditionalBasis(eqx.Module):
    r"""Functions y_i, and k_c(s) y_i for every center c and local output i.

    k_c(s) = exp(−‖s − s_c‖² / (2ℓ²)). Make one with `conditional_basis`.
    """

    centers: Float[Array, "c s"]
    bandwidth: Float[Array, ""]
    outputs: int = eqx.field(static=True)
    constant: int = eqx.field(static=True)  # outputs without local functions, the last ones

    @property
    def size(self) -> int:
        """M, the number of basis functions."""
        return self.outputs + self.centers.shape[0] * (self.outputs - self.constant)

    @eqx.filter_jit
    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n): the outputs, then for each center the local outputs times its kernel."""
        return jnp.einsum("mnd,nd->mn", self.gradients(X), X)

    @eqx.filter_jit
    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂h_m/∂y_i = 1 or k_c; zero along the inputs, which are held fixed."""
        inputs = self.centers.shape[1]
        if X.shape[1] != inputs + self.outputs:
            raise ValueError(
                f"X has {X.shape[1]} dimensions but this basis was made from samples with "
                f"{inputs} inputs and {self.outputs} outputs."
            )
        z = (X[None, :, :inputs] - self.centers[:, None, :]) / self.bandwidth
        kernels = jnp.exp(-0.5 * jnp.sum(z**2, axis=-1))
        unit = jnp.eye(X.shape[1], dtype=X.dtype)[inputs:]
        everywhere = jnp.broadcast_to(unit[:, None], (self.outputs, *X.shape))
        local = jnp.einsum("cn,id->cind", kernels, unit[: self.outputs - self.constant])
        return jnp.concatenate([everywhere, local.reshape(-1, *X.shape)])


def conditional_basis(
    key: PRNGKeyArray, X: Float[Array, "N d"], num_basis: int, *, inputs: int, constant: int = 0
) -> ConditionalBasis:
    r"""A basis for behaviors X = (s, y): `inputs` coordinates s held fixed, then outputs y.

    Its metric is the projection of E_s[(∂y/∂θ)ᵀ(∂y/∂θ)] onto moves of the outputs that vary
    smoothly with the input. It equals that matrix once there are as many centers as samples. Two
    uses are:

    * regression, where s is the input and y the prediction: the metric estimates the Gauss-Newton
      matrix;
    * a Gaussian policy, where s is the state and y = (μ(s), σ), in which W₂² is the squared
      Euclidean distance. The functions then stand for k(s)·a_i and ½(a_i − μ_i)², integrated over
      the actions in closed form, so they contain no action noise.

    Args:
      key: random key that chooses the centers among the samples.
      X: behaviors, [N, d].
      num_basis: largest M: one function for each output, and as many centers (at most N), each with
        one function for each local output, as there is room for.
      inputs: number of leading coordinates that are held fixed.
      constant: number of trailing outputs that do not depend on the input, such as σ.
    """
    X = jax.lax.stop_gradient(check_samples(X))
    check_key(key)
    check_count(num_basis, "num_basis", 1)
    check_count(inputs, "inputs", 1)
    outputs = X.shape[1] - inputs
    if outputs < 1:
        raise ValueError(
            f"inputs={inputs} leaves no outputs of behaviors with {X.shape[1]} dimensions: X must "
            "hold inputs followed by outputs, and inputs must be the number of the former."
        )
    if num_basis < outputs:
        raise ValueError(
            f"num_basis={num_basis} is fewer than one function for each of the {outputs} outputs: "
            f"use at least {outputs}."
        )
    check_count(constant, "constant", 0)
    if constant >= outputs:
        raise ValueError(f"constant={constant} must be fewer than the {outputs} outputs.")
    centers = min((num_basis - outputs) // (outputs - constant), X.shape[0])
    return _draw(key, X[:, :inputs], centers, outputs, constant)


@partial(jax.jit, static_argnames=("centers", "outputs", "constant"))
def _draw(
    key: PRNGKeyArray, S: Float[Array, "N s"], centers: int, outputs: int, constant: int
) -> ConditionalBasis:
    chosen = S[shuffled(key, S.shape[0])[:centers]]
    squared = 2 * jnp.sum(jnp.var(S, axis=0))  # the mean squared distance of inputs
    bandwidth = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
    return ConditionalBasis(chosen, bandwidth, outputs, constant)
