"""The three axes of a policy-gradient method: registries of proximities, geometries and steps.

A method is a row that names one of each (`wng.policy_gradient.methods.METHODS`). To add one of your
own, assign to a registry, `GEOMETRIES["mine"] = MyGeometry()`, or name it as `module:object`.
"""

from typing import TYPE_CHECKING

from wng.behavior.registry import Registry

if TYPE_CHECKING:
    from wng.policy_gradient.geometry import Geometry
    from wng.policy_gradient.proximity import Proximity
    from wng.policy_gradient.steps import Step

PROXIMITIES: "Registry[Proximity]" = Registry(
    "proximity",
    {
        "none": "wng.policy_gradient.proximity:none",
        "clip": "wng.policy_gradient.proximity:clip",
        "kl": "wng.policy_gradient.proximity:kl_penalty",
        "wasserstein": "wng.policy_gradient.proximity:wasserstein_penalty",
    },
)
GEOMETRIES: "Registry[Geometry]" = Registry(
    "geometry",
    {
        "euclidean": "wng.policy_gradient.geometry:euclidean",
        "fisher": "wng.policy_gradient.geometry:fisher",
        "wasserstein": "wng.policy_gradient.kernel:kernel",
        "wasserstein-exact": "wng.policy_gradient.geometry:wasserstein_exact",
        "wasserstein-auto": "wng.policy_gradient.kernel:auto",
    },
)
STEPS: "Registry[Step]" = Registry(
    "step",
    {
        "optimizer": "wng.policy_gradient.steps:minibatches",
        "trust_region": "wng.policy_gradient.trust_region:trust_region",
    },
)
