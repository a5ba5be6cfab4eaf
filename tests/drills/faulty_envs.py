"""Environments with one fault each, of Pendulum's sizes. Registered on import, as a user's."""

import itertools
import os
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box

LIMIT = 20  # steps of an episode
LATE = {"step": 30, "reset": 2}  # calls of an environment that go well, if not at once
MARK = "WNG_DRILL_MARK"  # names a file where whoever hangs writes the number of its process
GOOD = np.zeros(3, np.float32)
OBSERVATIONS = {
    "nan": np.full(3, np.nan, np.float32),
    "longer": np.zeros(4, np.float32),
    "shorter": np.zeros(1, np.float32),
    "scalar": 0.5,
    "row": np.zeros((1, 3), np.float32),
    "text": "zero",
    "none": None,
    "mapping": {"x": GOOD},
}
REWARDS = {"nan-reward": np.nan, "text-reward": "zero", "none-reward": None}
EXCEPTIONS = {
    "raise": ArithmeticError("bad luck"),
    "raise-lines": RuntimeError("bad luck,\nand at length:\n  of all kinds"),
    "exit": SystemExit(0),
}
FAULTS = (*EXCEPTIONS, *OBSERVATIONS, *REWARDS, "old-interface")
CASES = [
    (fault, where, when)
    for fault, where, when in itertools.product((*FAULTS, "hang"), LATE, ("now", "later"))
    if not (fault in REWARDS and where == "reset")
]


class Faulty(gymnasium.Env):
    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Box(-2, 2, (1,), np.float32)

    def __init__(self, fault: str, where: str, when: str):
        self.fault, self.where = fault, where
        self.left = LATE[where] if when == "later" else 0
        self.calls = 0

    def _strikes(self, where: str) -> bool:
        self.calls += where == self.where
        return where == self.where and self.calls > self.left

    def _observe(self):
        """What the fault makes of an observation."""
        if self.fault in EXCEPTIONS:
            raise EXCEPTIONS[self.fault]
        if self.fault == "hang":
            with Path(os.environ[MARK]).open("a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(3600)
        return OBSERVATIONS.get(self.fault, GOOD)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if not self._strikes("reset"):
            return GOOD, {}
        observation = self._observe()
        return observation if self.fault == "old-interface" else (observation, {})

    def step(self, action):
        if not self._strikes("step"):
            return GOOD, float(action[0]), False, False, {}
        observation, reward = self._observe(), REWARDS.get(self.fault, 0.0)
        if self.fault == "old-interface":
            return observation, reward, False, {}
        return observation, reward, False, False, {}


def name(fault: str, where: str, when: str) -> str:
    return f"Faulty-{fault}-{where}-{when}-v0"


for case in CASES:
    gymnasium.register(
        name(*case),
        entry_point=f"{__name__}:Faulty",
        max_episode_steps=LIMIT,
        kwargs=dict(zip(("fault", "where", "when"), case, strict=True)),
    )
