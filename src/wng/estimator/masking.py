"""Parameters that optax wrappers, such as `optax.masked`, hide."""

from typing import Any

import jax
import optax


def fill_masked(visible: Any, params: Any) -> Any:
    """The parameters in `visible`, with those that `optax.masked` has hidden taken from `params`.

    Args:
      visible: pytree in which `optax.MaskedNode` stands for hidden parameters.
      params: all parameters.
    """
    return jax.tree.map(
        lambda seen, full: full if _is_masked(seen) else seen, visible, params, is_leaf=_is_masked
    )


def hides(params: Any) -> bool:
    """Whether a wrapper hides some of the parameters."""
    return any(map(_is_masked, jax.tree.leaves(params, is_leaf=_is_masked)))


def _is_masked(leaf: Any) -> bool:
    return isinstance(leaf, optax.MaskedNode)
