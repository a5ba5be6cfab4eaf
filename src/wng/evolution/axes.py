"""The axes of evolution strategies: proximities, geometries and searches by name.

Assign to a registry to add your own, or name it as `module:attribute`; subclass
`wng.evolution.proximity.Proximity`, `wng.evolution.geometry.Geometry` or
`wng.evolution.search.Search` to write it.
"""

from typing import TYPE_CHECKING

from wng.behavior.registry import Registry

if TYPE_CHECKING:  # the names are known without importing JAX
    from wng.evolution.geometry import Geometry
    from wng.evolution.proximity import Proximity
    from wng.evolution.search import Search

PROXIMITIES: "Registry[Proximity]" = Registry(
    "proximity",
    {
        "none": "wng.evolution.proximity:NONE",
        "novelty": "wng.evolution.proximity:NOVELTY",
        "wasserstein": "wng.evolution.proximity:WASSERSTEIN",
    },
)
GEOMETRIES: "Registry[Geometry]" = Registry(
    "geometry",
    {
        "euclidean": "wng.evolution.geometry:EUCLIDEAN",
        "wasserstein": "wng.evolution.geometry:WASSERSTEIN",
    },
)
SEARCHES: "Registry[Search]" = Registry(
    "search",
    {
        "fixed": "wng.evolution.search:FIXED",
        "fisher": "wng.evolution.search:FISHER",
        "wasserstein": "wng.evolution.search:WASSERSTEIN",
    },
)
