r"""Geometry: the local metric that turns a gradient into a direction.

`fisher` and `wasserstein-exact` are one product with two choices of the curvature H,

    G = E_s[ (∂o/∂θ)ᵀ H(o) (∂o/∂θ) ],    o = mean and log-std, or logits, of π_θ(·|s),

where H is the Hessian of the KL divergence, or half that of W₂², in the outputs o. Both are solved
on a Krylov space, as by conjugate gradients. `wasserstein`, the paper's kernel estimator, is in
`kernel.py`.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from wng.behavior.embedding import Embedding, find_embedding
from wng.estimator.krylov import krylov_metric
from wng.estimator.metric import LowRank
from wng.estimator.precondition import Metric
from wng.estimator.transform import scale_by_metric
from wng.policy_gradient.batch import Data
from wng.policy_gradient.networks import Categorical, Networks
from wng.policy_gradient.problem import Problem

# Embeddings whose Wasserstein metric is that of the actions in each state.
ACTIONS = ("state-action", "clipped-action", "actions", "actions-value", "trajectory-actions")


class Identity(eqx.Module):
    """The metric G = I."""

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """λ_max(G)."""
        return jnp.ones(())

    def solve(self, g: Float[Array, " p"], damping: Array) -> Float[Array, " p"]:
        """G⁻¹ g; the identity needs no damping."""
        return g


class Geometry(abc.ABC):
    """The base class of geometries."""

    needs_behaviors = False  # whether the metric depends on the embedding Φ

    def suited(self, discrete: bool, embedding: Embedding) -> "Geometry":
        """The geometry to use for these actions and behaviors, by default this one."""
        return self

    def check(self, problem: Problem) -> None:
        """Raise a ValueError if this geometry does not apply to the problem."""
        return

    @abc.abstractmethod
    def metric(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Metric:
        """The metric at `networks`, on the minibatch (or batch) and windows of `data`."""

    def transform(self, problem: Problem) -> optax.GradientTransformation:
        """The first link of the optimizer's chain, from gradient to direction."""
        return scale_by_metric(problem.control)


class Euclidean(Geometry):
    """No metric: the direction is the gradient."""

    def metric(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Metric:
        """G = I."""
        return Identity()

    def transform(self, problem: Problem) -> optax.GradientTransformation:
        """Nothing to do."""
        return optax.identity()


class OutputMetric(eqx.Module):
    """G = E_s[(∂o/∂θ)ᵀ H (∂o/∂θ)], matrix-free: one JVP and one VJP per product."""

    networks: Networks
    observations: Float[Array, "N d"]
    curvature: Callable[[Any, Any], Any] = eqx.field(static=True)  # (o, tangent) ↦ H · tangent
    iterations: int = eqx.field(static=True)

    def restricted(self, g: Float[Array, " p"]) -> LowRank:
        """G on the Krylov space of g, by `iterations` products."""
        return krylov_metric(self.products(), g, self.iterations)

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """λ_max(G), from a random start."""
        size = ravel_pytree(self.networks.policy)[0].size
        return self.restricted(jax.random.normal(jax.random.key(0), (size,))).largest_eigenvalue

    def solve(self, g: Float[Array, " p"], damping: Array) -> Float[Array, " p"]:
        """(G + εI)⁻¹ g, as conjugate gradients solve it."""
        return self.restricted(g).solve(g, damping)

    def products(self) -> Callable[[Float[Array, " p"]], Float[Array, " p"]]:
        """The map v ↦ Gv."""
        theta, unravel = ravel_pytree(self.networks.policy)
        at, push = jax.linearize(lambda flat: unravel(flat)(self.observations), theta)
        pull = jax.linear_transpose(push, theta)
        number = self.observations.shape[0]

        def product(v: Float[Array, " p"]) -> Float[Array, " p"]:
            curved = self.curvature(at, push(v))
            return pull(jax.tree.map(lambda x: x / number, curved))[0]

        return product


class Fisher(Geometry):
    """The geometry of the KL divergence (NPG, TRPO)."""

    def curvature(self, problem: Problem, outputs: Any, tangent: Any) -> Any:
        """Hessian of KL in the outputs of the policy, applied to a tangent."""
        return outputs.fisher(tangent)

    def metric(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Metric:
        """See `OutputMetric`."""
        curvature = functools.partial(self.curvature, problem)
        iterations = problem.config.cg_iterations
        return OutputMetric(networks, data.batch.observations, curvature, iterations)


class WassersteinExact(Fisher):
    """The closed form of E_s W₂² for Gaussian policies: the reference for the kernel estimator."""

    def check(self, problem: Problem) -> None:
        """The closed form is that of Gaussian actions."""
        if problem.discrete:
            raise ValueError(
                "geometry=wasserstein-exact is the closed form for Gaussian policies and needs "
                "continuous actions: use --geometry wasserstein."
            )
        if not self.applies(problem.behaviors.embedding):
            raise ValueError(
                f"geometry=wasserstein-exact is the closed form for actions, but the embedding "
                f"'{problem.config.embedding}' is not one of actions: use --geometry wasserstein."
            )

    @staticmethod
    def applies(embedding: Embedding) -> bool:
        """Whether an embedding is the actions, as they are or clipped, and no function of them.

        (It may hold the value too, which moves no action.)
        """
        return embedding in map(find_embedding, ACTIONS)

    def curvature(self, problem: Problem, outputs: Any, tangent: Any) -> Any:
        """Half the Hessian of W₂² in the outputs of the policy, applied to a tangent."""
        assert not isinstance(outputs, Categorical)
        if problem.behaviors.embedding.clipped:
            return outputs.clipped_wasserstein(tangent, *problem.action_bounds)
        return outputs.wasserstein(tangent)


euclidean, fisher, wasserstein_exact = Euclidean(), Fisher(), WassersteinExact()
