r"""Geometry: the local metric that turns a gradient into a direction.

`fisher` and `wasserstein-exact` are the same product with another curvature in the middle,

    G = E_s[ (∂o/∂θ)ᵀ H(o) (∂o/∂θ) ],    o = mean and log-std, or logits, of π_θ(·|s),

H being the Hessian of the KL divergence, or half that of W₂², in the outputs o. They are solved by
conjugate gradients. `wasserstein` is the paper's kernel estimator on embedded behaviours.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from wng.behavior import Embedding, Trajectory
from wng.estimator import jacobian_score, kernel_basis
from wng.estimator.basis import KernelBasis
from wng.estimator.jacobian import behaviors_and_pullback
from wng.estimator.metric import LowRank, WassersteinMetric
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Categorical, Distribution, Networks


class Windows(NamedTuple):
    """Stretches of H steps of one episode each: [W, H, ...]."""

    observations: Array
    actions: Array  # as taken: vectors, or integers if discrete
    log_probs: Array  # under the policy that took them
    rewards: Array
    mask: Array

    def take(self, index: Array) -> "Windows":
        """The chosen ones."""
        return jax.tree.map(lambda x: x[index], self)


def cut_windows(
    horizon: int,
    observations: Array,
    actions: Array,
    log_probs: Array,
    rewards: Array,
    done: Array,
) -> Windows:
    """Cut [T, n, ...] into stretches of `horizon` steps; an episode's end masks the rest of one."""
    steps = observations.shape[0] // horizon * horizon

    def cut(x: Array) -> Array:
        tail = x.shape[2:]
        return jnp.moveaxis(x[:steps], 1, 0).reshape(-1, horizon, *tail)

    ended = jnp.cumsum(cut(done), axis=1) - cut(done)  # episodes that ended before this step
    return Windows(
        cut(observations), cut(actions), cut(log_probs), cut(rewards), (ended == 0).astype(float)
    )


class Behaviors:
    """Φ of windows, differentiable or with its score: what the kernel metric is made from."""

    def __init__(self, embedding: Embedding, config: Config, discrete: bool, action_size: int):
        self.embedding, self.discrete, self.action_size = embedding, discrete, action_size
        # After a trust-region step of the policy, the value function is fitted on its own.
        kernel = config.geometry == "wasserstein"
        self.shared = embedding.uses_value and kernel and config.step == "optimizer"
        applies = embedding.of_actions and not discrete
        self.reparam = config.jacobian == "reparam" or (config.jacobian == "auto" and applies)
        if config.jacobian == "reparam" and discrete:
            raise ValueError(
                "jacobian=reparam needs continuous actions: use --jacobian score (or auto)."
            )
        if config.jacobian == "reparam" and not embedding.of_actions:
            raise ValueError(
                f"jacobian=reparam needs an embedding of actions, and '{config.embedding}' looks "
                "at states or rewards: use --jacobian score (or auto)."
            )
        if embedding.uses_value and not self.reparam:
            raise ValueError(
                f"the embedding '{config.embedding}' needs the reparameterised Jacobian, which "
                "discrete actions do not have: use --embedding state-action."
            )
        if config.proximity == "wasserstein" and embedding.resamples and not self.reparam:
            raise ValueError(
                f"proximity=wasserstein cannot differentiate the embedding '{config.embedding}' "
                "with discrete actions: use --embedding state-action."
            )

    def with_parameters(self, networks: Networks, theta: Any) -> Networks:
        """`networks` with `theta`, the parameters that the metric is on, in place."""
        return theta if self.shared else Networks(theta, networks.value)

    def _actions(self, actions: Array) -> Array:
        return jax.nn.one_hot(actions, self.action_size) if self.discrete else actions

    def embed(self, networks: Networks, windows: Windows, key: PRNGKeyArray) -> Array:
        """X [W, d]: under `networks` in the windows' states, or as it happened (score form)."""
        return jax.vmap(self.embedding.fn)(self._trajectories(networks, windows, key)[0])

    def sample(
        self, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> tuple[Array, Array, Array]:
        """X, the further actions in it, and which of its coordinates actions (or values) move."""
        trajectories, more = self._trajectories(networks, windows, key)

        def embed(moving: tuple[Array, Array, Array]) -> Array:
            actions, resampled, values = moving
            return jax.vmap(self.embedding.fn)(
                trajectories._replace(actions=actions, resampled=resampled, values=values)
            )

        start = (trajectories.actions, trajectories.resampled, trajectories.values)
        push = tuple(
            jax.random.normal(k, x.shape)
            for k, x in zip(jax.random.split(key, 3), start, strict=True)
        )
        if not self.shared:  # values are not the metric's to move
            push = (push[0], push[1], jnp.zeros_like(push[2]))
        X, moves = jax.jvp(embed, (start,), (push,))
        moved = jnp.any(moves != 0, axis=0)
        return X, more, moved if self.embedding.of_actions else jnp.ones_like(moved)

    def _trajectories(
        self, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> tuple[Trajectory, Array]:
        policy = networks.policy(windows.observations)
        shape = (*windows.rewards.shape, self.embedding.resamples, self.action_size)
        key_action, key_more = jax.random.split(key)
        wide: Any = jax.tree.map(lambda x: x[..., None, :], policy)  # a row a further action
        more = wide.sample(policy.noise(key_more, shape))
        taken = windows.actions
        if self.reparam:
            taken = policy.sample(policy.noise(key_action, windows.actions.shape))
        trajectories = Trajectory(
            windows.observations,
            self._actions(taken),
            self._actions(more),
            networks.values(windows.observations),
            windows.rewards,
            windows.mask,
        )
        return trajectories, more

    def log_probs(self, networks: Networks, windows: Windows, more: Array) -> Array:
        """Score of a window: Σ_t log π(a_t|s_t), or of the further actions if Φ is made of them."""
        policy = networks.policy(windows.observations)
        if self.embedding.resamples:
            wide: Any = jax.tree.map(lambda x: x[..., None, :], policy)
            return jnp.sum(wide.log_prob(more) * windows.mask[..., None], axis=(1, 2))
        return jnp.sum(policy.log_prob(windows.actions) * windows.mask, axis=1)

    def weights(self, networks: Networks, windows: Windows, more: Array) -> Array:
        """Importance of windows that an older policy took; clipped so that none rules alone."""
        if self.reparam or self.embedding.resamples:
            return jnp.ones(windows.rewards.shape[0])
        old = jnp.sum(windows.log_probs * windows.mask, axis=1)
        return jnp.exp(jnp.clip(self.log_probs(networks, windows, more) - old, -3, 3))


class HeldFixed(eqx.Module):
    """A basis whose transport leaves the coordinates that actions do not move where they are.

    With X = (s, a) the joint distance lets states move too, and where the policy is steep it is
    far cheaper to shift the states than the actions: the metric then hardly notices a change of
    σ. The distance meant is that between the actions in the same states, E_s W₂²(π(·|s), π'(·|s)),
    whose dual asks only for the gradient in a:  sup_f ∇_θE[f]ᵀu − ½E‖∇_a f‖².
    """

    basis: KernelBasis
    moved: Bool[Array, " d"]

    @property
    def size(self) -> int:
        """M."""
        return self.basis.size

    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n)."""
        return self.basis.values(X)

    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂_i h_m(X_n), zero along what is held fixed."""
        return jnp.where(self.moved, self.basis.gradients(X), 0)


def kernel_metric(
    behaviors: Behaviors,
    config: Config,
    networks: Networks,
    windows: Windows,
    key: PRNGKeyArray,
) -> LowRank:
    """The paper's estimator at `networks`, over the parameters that Φ depends on."""
    key_behavior, key_basis, key_index = jax.random.split(key, 3)
    theta = networks if behaviors.shared else networks.policy

    def full(theta: Any) -> Networks:
        return behaviors.with_parameters(networks, theta)

    def draw(X: Array, moved: Array) -> HeldFixed:
        basis = kernel_basis(key_basis, X, min(config.num_basis, X.shape[0]))
        indices = jax.random.categorical(
            key_index, jnp.where(moved, 0.0, -jnp.inf), shape=(basis.size,)
        )
        basis = KernelBasis(basis.centers, indices, config.bandwidth * basis.bandwidth)
        return HeldFixed(basis, moved)

    X, more, moved = behaviors.sample(networks, windows, key_behavior)
    basis = draw(X, moved)
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


class OutputMetric(NamedTuple):
    """G = E_s[(∂o/∂θ)ᵀ H (∂o/∂θ)], matrix-free: one JVP and one VJP a product."""

    networks: Networks
    observations: Float[Array, "N d"]
    fisher: bool
    iterations: int

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """Not known; the damping of this metric is absolute."""
        return jnp.ones(())

    def products(self) -> Any:
        """v ↦ Gv."""
        theta, unravel = ravel_pytree(self.networks.policy)

        def outputs(flat: Array) -> Distribution:
            return unravel(flat)(self.observations)

        at, push = jax.linearize(outputs, theta)
        pull = jax.linear_transpose(push, theta)
        number = self.observations.shape[0]

        def product(v: Float[Array, " p"]) -> Float[Array, " p"]:
            tangent = push(v)
            if self.fisher:
                curved = at.fisher(tangent)
            else:
                assert not isinstance(at, Categorical)
                curved = at.wasserstein(tangent)
            return pull(jax.tree.map(lambda x: x / number, curved))[0]

        return product

    def solve(self, g: Float[Array, " p"], damping: Array) -> Float[Array, " p"]:
        """(G + εI)⁻¹ g by conjugate gradients."""
        product = self.products()
        return jax.scipy.sparse.linalg.cg(
            lambda v: product(v) + damping * v, g, tol=1e-6, maxiter=self.iterations
        )[0]
