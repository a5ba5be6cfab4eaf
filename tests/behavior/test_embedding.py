import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.behavior import Embedding, Trajectory, find_embedding
from wng.behavior.embedding import EMBEDDINGS, as_embedding

# Three steps of two-dimensional states and one-dimensional actions; the episode ends after step 2.
TRAJECTORY = Trajectory(
    observations=jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    next_observations=jnp.array([[1.5, 1.0], [3.5, 3.0], [5.5, 5.0]]),
    actions=jnp.array([[0.1], [0.2], [0.3]]),
    resampled=jnp.array([[[7.0], [8.0]], [[9.0], [10.0]], [[11.0], [12.0]]]),
    values=jnp.array([-1.0, -2.0, -3.0]),
    rewards=jnp.array([1.0, 10.0, 100.0]),
    mask=jnp.array([1.0, 1.0, 0.0]),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("state-action", [1.0, 2.0, 0.1]),
        ("clipped-action", [1.0, 2.0, 0.1]),  # clipping comes before Φ
        ("state-change", [1.0, 2.0, 0.5, -1.0]),
        ("actions", [7.0, 8.0]),
        ("actions-value", [7.0, 8.0, -1.0]),
        ("trajectory-actions", [0.1, 0.2, 0.0]),
        ("final-state", [3.0, 4.0]),
        ("reward-to-go", [11.0, 10.0, 0.0]),
    ],
)
def test_values_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(jax.jit(find_embedding(name).fn)(TRAJECTORY), expected, rtol=1e-6)


def test_every_named_embedding_has_values_by_hand() -> None:
    cases = test_values_by_hand.pytestmark[0].args[1]
    assert {name for name, _ in cases} == set(EMBEDDINGS)


def test_flags_say_what_each_embedding_looks_at() -> None:
    """Perturb one part of a trajectory at a time: of_actions and uses_value must tell the truth."""
    changed = {
        part: TRAJECTORY._replace(**{part: getattr(TRAJECTORY, part) + 0.5})
        for part in TRAJECTORY._fields[:-1]
    }
    for name, embedding in EMBEDDINGS.items():
        start = embedding.fn(TRAJECTORY)
        seen = {part for part, t in changed.items() if not np.array_equal(embedding.fn(t), start)}
        assert embedding.uses_value == ("values" in seen), name
        assert (embedding.resamples > 0) == ("resampled" in seen), name
        assert embedding.of_actions == bool(seen & {"actions", "resampled"}), name
        if embedding.of_actions:
            assert not seen & {"rewards", "next_observations"}, name
        if embedding.given_state:
            np.testing.assert_array_equal(start[:2], TRAJECTORY.observations[0], name)
            others = TRAJECTORY._fields[1:-1]
            moved = TRAJECTORY._replace(**{part: getattr(changed[part], part) for part in others})
            np.testing.assert_array_equal(embedding.fn(moved)[:2], start[:2], name)
            assert not np.array_equal(embedding.fn(moved)[2:], start[2:]), name


def test_a_window_that_never_ends_has_its_last_state() -> None:
    whole = TRAJECTORY._replace(mask=jnp.ones(3))
    np.testing.assert_array_equal(find_embedding("final-state").fn(whole), [5.0, 6.0])


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'state-action'"):
        find_embedding("State_Action")
    with pytest.raises(ValueError, match="did you mean 'reward-to-go'") as error:
        find_embedding("rewards-togo")
    assert "\n" not in str(error.value)


def test_module_and_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_embeddings")
    module.first = lambda t: t.observations[0]
    module.made = Embedding(lambda t: t.actions[-1], whole=False, of_actions=True)
    module.number = 3
    monkeypatch.setitem(sys.modules, "own_embeddings", module)
    first = find_embedding("own_embeddings:first")
    np.testing.assert_array_equal(first.fn(TRAJECTORY), [1.0, 2.0])
    # A plain function may look at anything: nothing is assumed of it.
    assert (first.whole, first.of_actions, first.uses_value, first.resamples) == (
        True,
        False,
        False,
        0,
    )
    assert find_embedding("own_embeddings:made") is module.made
    assert as_embedding(module.made) is module.made
    with pytest.raises(ValueError, match="got 3"):
        find_embedding("own_embeddings:number")
    with pytest.raises(ValueError, match="cannot be imported"):
        find_embedding("own_embeddings:missing")
    with pytest.raises(ValueError, match="cannot be imported"):
        find_embedding("no_such_module_anywhere:f")
