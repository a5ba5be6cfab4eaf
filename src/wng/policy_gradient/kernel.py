"""The paper's geometry: the kernel estimator of the Wasserstein metric on embedded behaviors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from wng.behavior.embedding import Embedding, find_embedding
from wng.estimator.basis import KernelBasis, kernel_basis
from wng.estimator.conditional import conditional_basis
from wng.estimator.jacobian import behaviors_and_pullback, jacobian_score
from wng.estimator.metric import LowRank, WassersteinMetric
from wng.estimator.transform import scale_by_metric
from wng.policy_gradient.batch import Data
from wng.policy_gradient.geometry import Geometry, wasserstein_exact
from wng.policy_gradient.networks import Networks, Policy
from wng.policy_gradient.problem import Problem


class HeldFixed(eqx.Module):
    """A basis whose transport leaves the coordinates that actions do not move where they are.

    With X = (s, a) the joint distance lets states move too. Where the policy is steep, shifting the
    states is far cheaper than shifting the actions, and the metric hardly notices a change of σ.
    The distance meant is that between actions in the same states, E_s W₂²(π(·|s), π'(·|s)), whose
    dual asks only for the gradient in a:  sup_f ∇_θE[f]ᵀu − ½E‖∇_a f‖². What stays where it is may
    differ from behavior to behavior: an action that was clipped to its bound does not move either.
    """

    basis: KernelBasis
    moved: Bool[Array, "N d"]  # of the N behaviors that the metric is estimated from

    @property
    def size(self) -> int:
        """M."""
        return self.basis.size

    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n)."""
        return self.basis.values(X)

    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂_i h_m(X_n), zero along the coordinates that are held fixed."""
        return jnp.where(self.moved, self.basis.gradients(X), 0)


class Kernel(Geometry):
    """Wasserstein metric of the behaviors Φ(τ), for any embedding (WNPG, BG-WNPG)."""

    needs_behaviors = True

    def check(self, problem: Problem) -> None:
        """The basis of policies is one of actions in single states."""
        config = problem.config
        if config.basis != "policy":
            return
        if problem.behaviors.embedding != find_embedding("state-action"):
            raise ValueError(
                "basis=policy needs the state and the action, but the embedding is "
                f"'{config.embedding}': use --embedding state-action, or --basis kernel."
            )
        if config.num_basis < self.coordinates(problem):
            raise ValueError(
                f"basis=policy needs a function for each of the {self.coordinates(problem)} "
                f"outputs of the policy: raise num_basis={config.num_basis}."
            )

    def metric(
        self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray
    ) -> LowRank:
        """Ĝ = JᵀL†J over the parameters that Φ depends on (Algorithm `KWNG_3`)."""
        config, behaviors, windows = problem.config, problem.behaviors, data.windows
        if self.of_policies(problem):
            return self.policy_metric(problem, networks, windows.observations[:, 0], key)
        key_behavior, key_basis, key_index = jax.random.split(key, 3)
        theta = behaviors.parameters(networks)

        def full(theta: Any) -> Networks:
            return behaviors.with_parameters(networks, theta)

        X, more, moved = behaviors.sample(networks, windows, key_behavior)
        drawn = kernel_basis(key_basis, X, min(config.num_basis, X.shape[0]))
        indices = jax.random.categorical(
            key_index, jnp.where(moved.any(axis=0), 0.0, -jnp.inf), shape=(drawn.size,)
        )
        bandwidth = config.bandwidth * drawn.bandwidth
        basis = HeldFixed(KernelBasis(drawn.centers, indices, bandwidth), moved)
        if behaviors.reparam:
            _, pullback = behaviors_and_pullback(
                lambda t: behaviors.embed(full(t), windows, key_behavior), theta
            )
            J = pullback(basis)
        else:
            J = jacobian_score(
                basis,
                X,
                lambda t: behaviors.log_probs(full(t), windows, more),
                theta,
                behaviors.weights(networks, windows, more),
            )
        return WassersteinMetric(basis, X, J, rescale=config.rescale).spectrum

    def policy_metric(
        self, problem: Problem, networks: Networks, states: Array, key: PRNGKeyArray
    ) -> LowRank:
        """Ĝ of E_s W₂², a squared Euclidean distance in the policy's coordinates."""
        config = problem.config

        def behavior(policy: Policy) -> Array:
            return jnp.concatenate([states, policy(states).coordinates()], axis=1)

        X, pullback = behaviors_and_pullback(behavior, networks.policy)
        basis = conditional_basis(
            key,
            X,
            config.num_basis,
            inputs=problem.observation_size,
            constant=self.coordinates(problem) - problem.action_size,  # σ
        )
        return WassersteinMetric(basis, X, pullback(basis), rescale=config.rescale).spectrum

    def transform(self, problem: Problem) -> optax.GradientTransformation:
        """The natural gradient in a metric that is used for `refresh_every` minibatches."""
        config = problem.config

        def empty(params: Any) -> LowRank:
            flat, _ = ravel_pytree(params)
            return LowRank.empty(flat.size, self.rank(problem), flat.dtype, rescale=config.rescale)

        return scale_by_metric(problem.control, config.refresh_every, empty=empty)

    def rank(self, problem: Problem) -> int:
        """M, the number of basis functions."""
        config, windows, actions = problem.config, problem.num_windows, problem.action_size
        if not self.of_policies(problem):
            return min(config.num_basis, windows)
        outputs = self.coordinates(problem)
        return outputs + min((config.num_basis - outputs) // actions, windows) * actions

    def of_policies(self, problem: Problem) -> bool:
        """Whether the basis is the one for policies."""
        config = problem.config
        if config.basis != "auto":
            return config.basis == "policy"
        seen = problem.behaviors.embedding == find_embedding("state-action")
        return seen and config.num_basis >= self.coordinates(problem)

    def coordinates(self, problem: Problem) -> int:
        """Number of outputs of the policy: probabilities, or means and standard deviations."""
        return problem.action_size * (1 if problem.discrete else 2)


class Auto(Kernel):
    """The Wasserstein metric: exact for the actions of Gaussian policies, else estimated."""

    def suited(self, discrete: bool, embedding: Embedding) -> Geometry:
        """The closed form where there is one."""
        applies = not discrete and wasserstein_exact.applies(embedding)
        return wasserstein_exact if applies else kernel


kernel, auto = Kernel(), Auto()
