import jax.numpy as jnp
import pytest

import wng
from wng.estimator.damping import reduction_ratio


def run(damping: wng.Damping, ratios: list[float]) -> list[float]:
    state, values = damping.init(), []
    for ratio in ratios:
        state = damping.update(state, jnp.asarray(ratio))
        values.append(float(state.value))
    return values


def test_reduction_ratio_by_hand() -> None:
    """L(θ) = θ² from θ = 1 by Δ = −0.5: saved 0.75, promised 2·0.5."""
    assert float(reduction_ratio(jnp.array(1.0), jnp.array(0.25), jnp.array(1.0))) == 0.75


def test_both_directions_and_only_when_due() -> None:
    damping = wng.Damping(1e-2, every=3)
    good, bad, fair = [0.9] * 6, [0.1] * 6, [0.5] * 6
    lowered, raised = 1e-2 * 0.85, 1e-2 / 0.85
    assert run(damping, good) == pytest.approx([1e-2] * 2 + [lowered] * 3 + [lowered * 0.85])
    assert run(damping, bad) == pytest.approx([1e-2] * 2 + [raised] * 3 + [raised / 0.85])
    assert run(damping, fair) == pytest.approx([1e-2] * 6)


def test_a_loss_below_minus_one_does_not_stop_adaptation() -> None:
    """The released code's marker for 'no loss yet' was −1."""
    ratio = reduction_ratio(jnp.array(-5.0), jnp.array(-5.1), jnp.array(0.1))
    assert run(wng.Damping(1e-2, every=1), [float(ratio)]) == pytest.approx([0.85e-2])


def test_non_finite_ratio_raises_at_once() -> None:
    damping = wng.Damping(1e-2, every=100)
    for ratio in (jnp.nan, jnp.inf, -jnp.inf):
        assert run(damping, [ratio]) == pytest.approx([1e-2 / 0.85])


def test_bounds() -> None:
    damping = wng.Damping(1e-10, every=1)
    assert run(damping, [1.0]) == pytest.approx([1e-10])
    assert run(wng.Damping(1e5, every=1), [0.0]) == pytest.approx([1e5])
    assert damping.epsilon(damping.init(), jnp.array(1.0)) == pytest.approx(1e-10)


def test_fixed_never_moves_and_relative_follows_the_metric() -> None:
    fixed = wng.Damping(1e-2)
    assert run(fixed, [0.0, 1.0, jnp.nan]) == pytest.approx([1e-2] * 3)
    relative = wng.Damping(0.1, relative=True)
    assert relative.epsilon(relative.init(), jnp.array(30.0)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": -1.0}, "damping initial must be a positive"),
        ({"initial": float("nan")}, "damping initial must be a positive"),
        ({"factor": 1.5}, "factor must be smaller than 1"),
        ({"factor": -0.5}, "factor must be a positive"),
        ({"initial": "auto"}, "damping initial must be a positive"),
        ({"low": 0.8}, "must be smaller"),
        ({"minimum": 1.0, "maximum": 0.1}, "must not exceed"),
        ({"every": -1}, "every must be a whole number"),
        ({"every": 2.5}, "every must be a whole number"),
        ({"step_size": 0.0}, "step_size must be a positive"),
    ],
)
def test_bad_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wng.Damping(**options)
