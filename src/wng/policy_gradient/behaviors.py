"""Behaviors of a policy: stretches of trajectories, embedded, with gradients or with scores."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from wng.behavior import Embedding, Trajectory
from wng.estimator.shuffle import shuffled
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks


class Windows(NamedTuple):
    """Stretches of H steps, each within one episode: [W, H, ...]."""

    observations: Array
    next_observations: Array  # true successors, also where an episode ended
    actions: Array  # as taken: vectors, or integers if discrete
    log_probs: Array  # under the policy that took them
    rewards: Array
    mask: Array  # 1 up to the end of the episode, 0 after it

    def pick(self, number: int, key: PRNGKeyArray) -> "Windows":
        """`number` windows at random, without replacement; all if there are fewer."""
        index = shuffled(key, self.mask.shape[0])[:number]
        return jax.tree.map(lambda x: x[index], self)


def cut_windows(
    horizon: int,
    observations: Array,
    next_observations: Array,
    actions: Array,
    log_probs: Array,
    rewards: Array,
    done: Array,
) -> Windows:
    """Cut [T, n, ...] into windows of `horizon` steps; the end of an episode masks the rest."""
    steps = observations.shape[0] // horizon * horizon

    def cut(x: Array) -> Array:
        return jnp.moveaxis(x[:steps], 1, 0).reshape(-1, horizon, *x.shape[2:])

    ended = jnp.cumsum(cut(done), axis=1) - cut(done)  # episodes that ended before this step
    return Windows(
        cut(observations),
        cut(next_observations),
        cut(actions),
        cut(log_probs),
        cut(rewards),
        (ended == 0).astype(float),
    )


class Behaviors:
    """Φ of windows under a policy: what the kernel metric and the Wasserstein penalty see.

    If `joint`, policy and value parameters share one metric. `action_bounds` are the lowest and
    the highest actions.
    """

    def __init__(
        self,
        embedding: Embedding,
        config: Config,
        discrete: bool,
        action_size: int,
        joint: bool,
        action_bounds: tuple[Any, Any],
    ):
        self.embedding, self.discrete, self.action_size = embedding, discrete, action_size
        self._clips, self._bounds = embedding.clipped and not discrete, action_bounds
        self.joint, self._name = joint, config.embedding
        self.horizon = config.horizon if embedding.whole else 1
        applies = embedding.of_actions and not discrete
        self._forced = config.jacobian == "reparam"
        self.reparam = self._forced or (config.jacobian == "auto" and applies)

    def check(self) -> None:
        """Raise a ValueError if the embedding does not suit the actions or the Jacobian."""
        if self._forced and self.discrete:
            raise ValueError(
                "jacobian=reparam needs continuous actions: use --jacobian score (or auto)."
            )
        if self._forced and not self.embedding.of_actions:
            raise ValueError(
                f"jacobian=reparam needs an embedding of actions, but '{self._name}' looks at "
                "states or rewards: use --jacobian score (or auto)."
            )
        if self.embedding.uses_value and not self.reparam:
            raise ValueError(
                f"the embedding '{self._name}' needs the reparameterized Jacobian, which discrete "
                "actions do not have: use --embedding state-action."
            )

    def parameters(self, networks: Networks) -> Any:
        """The parameters that the metric covers: the policy's, or those of both networks."""
        return networks if self.joint else networks.policy

    def with_parameters(self, networks: Networks, theta: Any) -> Networks:
        """`networks` with `theta` in place of `parameters(networks)`."""
        return theta if self.joint else Networks(theta, networks.value)

    def embed(self, networks: Networks, windows: Windows, key: PRNGKeyArray) -> Array:
        """X [W, d]: under `networks` in the windows' states, or as it happened (score form)."""
        return self._apply(self._trajectories(networks, windows, key)[0])

    def sample(
        self, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> tuple[Array, Array, Array]:
        """X, the resampled actions in it, and which numbers of X [W, d] actions (or values) move.

        Where they move none, as behind the end of an episode or a bound of the actions, transport
        moves none either.
        """
        trajectories, more = self._trajectories(networks, windows, key)

        def embed(moving: tuple[Array, Array, Array]) -> Array:
            actions, resampled, values = moving
            return self._apply(
                trajectories._replace(actions=actions, resampled=resampled, values=values)
            )

        start = (trajectories.actions, trajectories.resampled, trajectories.values)
        push = tuple(
            jax.random.normal(k, x.shape)
            for k, x in zip(jax.random.split(key, 3), start, strict=True)
        )
        if not self.joint:  # the metric does not cover the value function
            push = (push[0], push[1], jnp.zeros_like(push[2]))
        X, moves = jax.jvp(embed, (start,), (push,))
        if self.embedding.of_actions:
            return X, more, moves != 0
        given = windows.observations.shape[-1] if self.embedding.given_state else 0
        return X, more, jnp.broadcast_to(jnp.arange(X.shape[1]) >= given, X.shape)

    def log_probs(self, networks: Networks, windows: Windows, more: Array) -> Array:
        """Σ_t log π(a_t|s_t) of each window, or of the resampled actions where Φ uses those."""
        policy = networks.policy(windows.observations)
        if self.embedding.resamples:
            wide: Any = jax.tree.map(lambda x: x[..., None, :], policy)
            return jnp.sum(wide.log_prob(more) * windows.mask[..., None], axis=(1, 2))
        return jnp.sum(policy.log_prob(windows.actions) * windows.mask, axis=1)

    def weights(self, networks: Networks, windows: Windows, more: Array) -> Array:
        """Importance weights of windows that an older policy took, clipped to e^±3."""
        if self.reparam or self.embedding.resamples:
            return jnp.ones(windows.rewards.shape[0])
        old = jnp.sum(windows.log_probs * windows.mask, axis=1)
        return jnp.exp(jnp.clip(self.log_probs(networks, windows, more) - old, -3, 3))

    def _actions(self, actions: Array) -> Array:
        return jax.nn.one_hot(actions, self.action_size) if self.discrete else actions

    def _apply(self, trajectories: Trajectory) -> Array:
        """Φ of each trajectory."""
        if self._clips:
            low, high = map(jnp.asarray, self._bounds)
            trajectories = trajectories._replace(
                actions=jnp.clip(trajectories.actions, low, high),
                resampled=jnp.clip(trajectories.resampled, low, high),
            )
        return jax.vmap(self.embedding.fn)(trajectories)

    def _trajectories(
        self, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> tuple[Trajectory, Array]:
        policy = networks.policy(windows.observations)
        shape = (*windows.rewards.shape, self.embedding.resamples, self.action_size)
        key_action, key_more = jax.random.split(key)
        wide: Any = jax.tree.map(lambda x: x[..., None, :], policy)  # one row per resampled action
        more = wide.sample(policy.noise(key_more, shape))
        taken = windows.actions
        if self.reparam:
            taken = policy.sample(policy.noise(key_action, windows.actions.shape))
        trajectories = Trajectory(
            windows.observations,
            windows.next_observations,
            self._actions(taken),
            self._actions(more),
            networks.values(windows.observations),
            windows.rewards,
            windows.mask,
        )
        return trajectories, more
