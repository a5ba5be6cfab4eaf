"""Converts pytrees to named arrays and back."""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from wng.runs.checkpoint import MISMATCH

T = TypeVar("T")


def save_tree(tree: Any) -> dict[str, np.ndarray]:
    """The arrays and numbers in `tree`, copied, under their paths such as 'params/layers/0/weight'.

    Leaves of other kinds (activation functions, strings) are part of the structure, which
    `restore_tree` takes from elsewhere.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree):
        if not _is_data(leaf):
            continue
        if name in arrays:
            raise ValueError(f"two arrays in the tree are both called '{name}': rename one.")
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise ValueError(
                f"'{name}' is a typed key, which is not an array: store jax.random.key_data(key)."
            )
        arrays[name] = np.array(leaf)
    return arrays


def restore_tree(like: T, arrays: dict[str, np.ndarray]) -> T:
    """A tree with the structure of `like` and the values of `arrays`, which must fit exactly.

    JAX arrays come back as JAX arrays, NumPy arrays as NumPy arrays, numbers as numbers.
    """
    unused = set(arrays)
    leaves = []
    for name, leaf in _named_leaves(like):
        if _is_data(leaf):
            if name not in arrays:
                raise ValueError(f"the checkpoint has no array '{name}': {MISMATCH}.")
            unused.discard(name)
            leaf = _restore_leaf(name, leaf, arrays[name])
        leaves.append(leaf)
    if unused:
        raise ValueError(f"the checkpoint has an unexpected array '{min(unused)}': {MISMATCH}.")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def check_kinds(arrays: Mapping[str, Any], like: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError if `arrays` differs from `like` in names, types or numbers of axes."""
    for name in {**like, **arrays}:
        found, expected = arrays.get(name), like.get(name)
        if found is None or expected is None:
            raise ValueError(f"array '{name}' is missing or unexpected: {MISMATCH}.")
        if found.dtype != expected.dtype or found.ndim != expected.ndim:
            raise ValueError(f"array '{name}' in the checkpoint is of another kind: {MISMATCH}.")


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), x) for path, x in leaves]


def _is_data(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex)


def _restore_leaf(name: str, like: Any, array: np.ndarray) -> Any:
    expected = like if hasattr(like, "dtype") else np.asarray(like)
    if array.shape != expected.shape or array.dtype != expected.dtype:
        raise ValueError(
            f"array '{name}' in the checkpoint is {array.dtype} {list(array.shape)} where "
            f"{expected.dtype} {list(expected.shape)} is expected: {MISMATCH}."
        )
    # Copies: a JAX array may otherwise share the memory of `array`, and then be donated.
    if isinstance(like, jax.Array):
        restored = jnp.array(array, copy=True)
        if restored.dtype != array.dtype:
            raise ValueError(f"array '{name}' is {array.dtype}: set jax_enable_x64 to load it.")
        return restored
    if isinstance(like, np.ndarray):
        return array.copy()
    return array[()] if isinstance(like, np.generic) else type(like)(array.item())


def part(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays under `prefix`/, without it."""
    start = prefix + "/"
    return {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}
