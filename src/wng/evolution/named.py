"""The strategies that have names, a class for each."""

from wng.evolution.config import StrategyConfig
from wng.evolution.methods import METHODS, TUNED
from wng.evolution.strategy import Strategy


def _method_class(key: str) -> type[Strategy]:
    """Make the class of a method, with the settings of `wng train <method>` as its defaults."""
    method = METHODS[key]
    about = f"{method.title}: {method.about}. See `wng.Strategy` for the arguments."
    defaults = StrategyConfig(**{**method.axes, **TUNED[key]})
    return type(key.upper(), (Strategy,), {"__doc__": about, "defaults": defaults})


ES, NSRES, BGES, WNES, BGWNES, SNES, WSNES = map(
    _method_class, ("es", "nsres", "bges", "wnes", "bgwnes", "snes", "wsnes")
)
