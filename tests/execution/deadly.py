"""A probe that kills a process once, so that no test has to hit the right moment."""

import os
import signal
from pathlib import Path

import gymnasium

from wng.envs.probes import Probe

VICTIM = "WNG_TEST_VICTIM"  # `self` or `parent`
MARK = "WNG_TEST_MARK"  # a file for the number of the process killed; nobody is, if it is there
STEPS = 500  # of one environment, before it kills


class Deadly(Probe):
    taken = 0

    def step(self, action):
        self.taken += 1
        mark = Path(os.environ[MARK])
        if self.taken == STEPS and not mark.exists():
            victim = os.getpid() if os.environ[VICTIM] == "self" else os.getppid()
            mark.write_text(str(victim))
            os.kill(victim, signal.SIGKILL)
        return super().step(action)


gymnasium.register(
    "Deadly-v0", entry_point=f"{__name__}:Deadly", kwargs={"name": "wng/ProbeContextual-v0"}
)
