"""Behavioral embeddings Φ, which map a stretch of a trajectory to a vector.

The metric and the Wasserstein penalty see a policy only through X = Φ(τ). They cannot see what Φ
leaves out: with the actions alone, the metric knows how often an action is taken but not in
which state, so `state-action` is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wng.behavior.registry import Registry

if TYPE_CHECKING:  # names and properties of embeddings are known without importing JAX
    from jaxtyping import Array, Float


class Trajectory(NamedTuple):
    """H consecutive steps of one episode, the argument of an embedding."""

    observations: Float[Array, "H d"]  # normalized as the policy sees them
    next_observations: Float[Array, "H d"]  # what each step led to, also at the end of an episode
    actions: Float[Array, "H a"]  # one-hot vectors if discrete
    resampled: Float[Array, "H K a"]  # K further actions drawn in each state
    values: Float[Array, " H"]  # predictions of the value network
    rewards: Float[Array, " H"]  # normalized
    mask: Float[Array, " H"]  # 1 up to the end of the episode, 0 after it


@dataclass(frozen=True)
class Embedding:
    """A map Φ from a trajectory to a behavior.

    Args:
      fn: Φ as a function from a `Trajectory` to a vector [d]. Use jax.numpy.
      whole: Φ sees stretches of `horizon` steps; otherwise it sees each step alone (H = 1).
      of_actions: Φ depends on the parameters θ only through the actions (and values), with the
        states held fixed. Then the reparameterized Jacobian applies to continuous actions.
        Otherwise, wng uses the score form.
      uses_value: Φ uses the value predictions, so policy and value parameters share one metric.
      resamples: K, the number of additional actions drawn in each state.
      clipped: policy gradients clip the actions to their bounds before Φ sees them, as the
        environment does. Where an action is out of bounds, a change in θ then changes nothing.
      given_state: the behavior starts with the first state, which is held fixed, so that the rest
        is compared in the same states. Embeddings of actions do not need this.
    """

    fn: Callable[[Trajectory], Float[Array, " d"]]
    whole: bool = True
    of_actions: bool = False
    uses_value: bool = False
    resamples: int = 0
    clipped: bool = False
    given_state: bool = False


def _state_action(t: Trajectory) -> Array:
    import jax.numpy as jnp

    return jnp.concatenate([t.observations[0], t.actions[0]])


def _actions(t: Trajectory) -> Array:
    return t.resampled[0].reshape(-1)


def _actions_value(t: Trajectory) -> Array:
    import jax.numpy as jnp

    return jnp.append(t.resampled[0].reshape(-1), t.values[0])


def _trajectory_actions(t: Trajectory) -> Array:
    return (t.actions * t.mask[:, None]).reshape(-1)


def _final_state(t: Trajectory) -> Array:
    import jax.numpy as jnp

    return t.observations[jnp.sum(t.mask).astype(int) - 1]


def _state_change(t: Trajectory) -> Array:
    import jax.numpy as jnp

    change = t.next_observations[0] - t.observations[0]
    return jnp.concatenate([t.observations[0], change])


def _reward_to_go(t: Trajectory) -> Array:
    import jax.numpy as jnp

    return jnp.cumsum((t.rewards * t.mask)[::-1])[::-1]


EMBEDDINGS: Registry[Embedding] = Registry(
    "embedding",
    {
        # The state and the action of a step.
        "state-action": Embedding(_state_action, whole=False, of_actions=True),
        # The same with the action that the environment receives: within its bounds.
        "clipped-action": Embedding(_state_action, whole=False, of_actions=True, clipped=True),
        # The state, and how a step of the environment changes it.
        "state-change": Embedding(_state_change, whole=False, given_state=True),
        # Ten actions drawn in one state; the state itself is left out.
        "actions": Embedding(_actions, whole=False, of_actions=True, resamples=10),
        # The same with the state's value, as in the paper's released runs.
        "actions-value": Embedding(
            _actions_value, whole=False, of_actions=True, uses_value=True, resamples=10
        ),
        # The actions of `horizon` consecutive steps, as in the paper's text.
        "trajectory-actions": Embedding(_trajectory_actions, of_actions=True),
        # Where the episode, or the stretch of `horizon` steps, ended.
        "final-state": Embedding(_final_state),
        # The sum of rewards still to come, at each of `horizon` steps.
        "reward-to-go": Embedding(_reward_to_go),
    },
)


def find_embedding(name: str) -> Embedding:
    """The embedding called `name`, or the function at `name` = `module:function`."""
    return as_embedding(EMBEDDINGS.find(name))


def as_embedding(found: object) -> Embedding:
    """Return an `Embedding` as it is, and wrap a plain function of a `Trajectory` in one."""
    if isinstance(found, Embedding):
        return found
    if callable(found):
        return Embedding(found)
    raise ValueError(
        f"an embedding is a name, a function of a Trajectory, or a wng.Embedding; got {found!r}."
    )


def code_name(embedding: object) -> str:
    """The name of a function in a configuration, in angle brackets."""
    fn = getattr(embedding, "fn", embedding)
    return f"<{getattr(fn, '__name__', type(fn).__name__).strip('<>')}>"


def check_loadable(name: str, embedding: object, path: object) -> None:
    """Raise a ValueError if an agent needs a function that is not given (files hold no code)."""
    if embedding is None and name.startswith("<"):
        raise ValueError(
            f"{path} was trained with the embedding {name}, a function, and files hold no code: "
            "pass it as embedding=…"
        )
