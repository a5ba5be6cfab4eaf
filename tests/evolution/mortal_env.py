"""An environment that kills its process once in mid-episode. Registered on import."""

import os
import signal
from pathlib import Path

import gymnasium

from evolution.small_envs import Line


class MortalLine(Line):
    def step(self, action):
        found = super().step(action)
        mark = Path(os.environ["WNG_MORTAL"])
        if self.steps == 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found


gymnasium.register("Mortal-v0", "evolution.mortal_env:MortalLine", max_episode_steps=10)
