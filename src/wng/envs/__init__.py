"""Vector environments: one interface to Gymnasium, worker processes and EnvPool."""

from wng.envs.base import EnvSpec, EnvState, Transition
from wng.envs.make import make
from wng.envs.probes import PROBES, register_probes
from wng.envs.resolve import ResolvedEnv, resolve
from wng.envs.vector import VectorEnv
from wng.envs.walls import register_walls

register_probes()
register_walls()

__all__ = [
    "PROBES",
    "EnvSpec",
    "EnvState",
    "ResolvedEnv",
    "Transition",
    "VectorEnv",
    "make",
    "resolve",
]
