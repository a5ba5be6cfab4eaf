"""Vector environments: one interface to Gymnasium, worker processes and EnvPool."""

import gymnasium

from wng.envs.base import EnvSpec, EnvState, Transition
from wng.envs.make import make
from wng.envs.probes import PROBES
from wng.envs.resolve import ResolvedEnv, resolve
from wng.envs.vector import ReplayError, VectorEnv
from wng.envs.walls import WALLS

for _id in PROBES:
    gymnasium.register(_id, entry_point="wng.envs.probes:Probe", kwargs={"name": _id})
for _id, (_entry_point, _limit) in WALLS.items():
    gymnasium.register(_id, entry_point=_entry_point, max_episode_steps=_limit)

__all__ = [
    "PROBES",
    "EnvSpec",
    "EnvState",
    "ReplayError",
    "ResolvedEnv",
    "Transition",
    "VectorEnv",
    "make",
    "resolve",
]
