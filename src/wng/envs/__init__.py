"""Vector environments: one interface to Gymnasium, worker processes and EnvPool."""

from wng.envs.base import EnvSpec, EnvState, Transition, VectorEnv
from wng.envs.make import check_env, make
from wng.envs.probes import PROBES, register_probes
from wng.envs.resolve import ResolvedEnv, resolve
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
    "check_env",
    "make",
    "resolve",
]
