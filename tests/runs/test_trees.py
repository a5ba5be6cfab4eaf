import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from wng.runs import checkpoint
from wng.runs.trees import restore_tree, save_tree


def make_state(seed: int) -> dict:
    model = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(seed))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    params = eqx.filter(model, eqx.is_array)
    opt_state = optimizer.init(params)
    _, opt_state = optimizer.update(jax.tree.map(jnp.sin, params), opt_state, params)
    rng = np.random.default_rng(seed)
    return {
        "model": model,
        "opt": opt_state,
        "key": jax.random.key_data(jax.random.key(seed)),
        "env": {
            "qpos": rng.normal(size=(4, 3)),
            "strided": rng.normal(size=(4, 6))[:, ::2].T,
            "episode": np.array([2**40 + seed, 7]),
            "empty": np.zeros((0, 3), np.float32),
            "done": np.array([True, False]),
        },
        "scalar": np.float64(seed + 0.1),
        "nan": np.array([np.nan, -np.nan, np.inf, -0.0]),
        "number": 0.1 + seed,
        "count": 3 + seed,
        "flag": bool(seed),
    }


def assert_same(a: object, b: object) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        if isinstance(x, jax.Array | np.ndarray | np.generic):
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        else:
            assert x == y


def test_through_a_file_bit_for_bit(tmp_path) -> None:
    state, other = make_state(0), make_state(1)
    checkpoint.write(tmp_path, 10, save_tree(state), {"note": "ε"})
    arrays, info, problems = checkpoint.read_latest(tmp_path)
    assert_same(restore_tree(other, arrays), state)
    assert info == {"note": "ε", "step": 10}
    assert problems == []
    assert "model/layers/0/weight" in arrays
    assert "opt/1/0/mu/layers/0/weight" in arrays


def test_float64_on_device(x64, tmp_path) -> None:
    state = {"a": jnp.arange(3.0), "i": jnp.arange(3)}
    assert state["a"].dtype == jnp.float64
    checkpoint.write(tmp_path, 0, save_tree(state), {})
    arrays, _ = checkpoint.read(tmp_path / "000000000000.safetensors")
    assert_same(restore_tree(jax.tree.map(jnp.zeros_like, state), arrays), state)


def test_float64_checkpoint_without_float64_enabled() -> None:
    with jax.enable_x64(True):
        state = {"a": jnp.arange(3.0)}
        arrays = save_tree(state)
    with pytest.raises(ValueError, match="'a' is float64: set jax_enable_x64"):
        restore_tree(state, arrays)


def aligned_zeros(size: int) -> np.ndarray:
    """Memory as JAX likes to share it: at a multiple of 64 bytes."""
    memory = np.zeros(4 * size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + 4 * size].view(np.float32)


def test_saved_and_restored_arrays_are_copies() -> None:
    state = {"n": np.zeros(3), "j": jnp.zeros(64)}
    arrays = save_tree(state)
    arrays["j"] = aligned_zeros(64)
    state["n"][0] = 1
    assert arrays["n"][0] == 0
    restored = restore_tree(state, arrays)
    arrays["n"][1], arrays["j"][:] = 2, 2
    assert restored["n"].tolist() == [0, 0, 0]
    assert float(restored["j"].sum()) == 0
    restored["n"][2] = 3  # writable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("w"), "no array 'w': it was written by another version or configuration"),
        (lambda a: a.update(extra=np.zeros(1)), "an unexpected array 'extra'"),
        (lambda a: a.update(w=np.zeros(3, np.float32)), r"'w' .* float32 \[3\] .* float32 \[2\]"),
        (lambda a: a.update(w=np.zeros(2)), r"'w' .* float64 \[2\] where float32 \[2\]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message) -> None:
    like = {"w": jnp.zeros(2)}
    arrays = save_tree(like)
    change(arrays)
    with pytest.raises(ValueError, match=message):
        restore_tree(like, arrays)


def test_what_cannot_be_named_or_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="both called 'a/b'"):
        save_tree({"a": {"b": np.zeros(1)}, "a/b": np.zeros(1)})
    with pytest.raises(ValueError, match=r"'key' is a typed key.* jax.random.key_data"):
        save_tree({"key": jax.random.key(0)})
