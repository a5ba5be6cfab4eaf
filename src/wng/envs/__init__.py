"""Vector environments: one interface; Gymnasium, worker processes and EnvPool behind it."""

from wng.envs.base import EnvSpec, EnvState, Transition, VectorEnv
from wng.envs.make import check_env, make
from wng.envs.probes import PROBES, register_probes
from wng.envs.walls import register_walls

register_probes()
register_walls()

__all__ = ["PROBES", "EnvSpec", "EnvState", "Transition", "VectorEnv", "check_env", "make"]
