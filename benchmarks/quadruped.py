"""What the options of the quadruped's model gain: steps of MuJoCo per second, one core.

    python benchmarks/quadruped.py

Random actions, each held for five steps, as in the task. The model as it is and versions with one
choice changed take turns; the best of `--rounds` counts, as a share of the model's own speed.
"""

import argparse
import copy
import time
from collections.abc import Callable

import mujoco
import numpy as np

from wng.envs.walls.quadruped import QuadrupedTask
from wng.experiments.output import markdown_table

FLAGS = mujoco.mjtDisableBit
EXTRAS = FLAGS.mjDSBL_ISLAND | FLAGS.mjDSBL_MIDPHASE | FLAGS.mjDSBL_WARMSTART


def changed(**options: int) -> Callable[[mujoco.MjOption], None]:
    """Set fields of the options."""

    def change(opt: mujoco.MjOption) -> None:
        for name, value in options.items():
            setattr(opt, name, int(value))

    return change


def with_extras(opt: mujoco.MjOption) -> None:
    """Islands, midphase and warm starts on, which are MuJoCo's defaults."""
    opt.disableflags &= ~int(EXTRAS)


CHANGES: dict[str, Callable[[mujoco.MjOption], None]] = {
    "as it is": changed(),
    "integrator RK4, Gym's choice": changed(integrator=mujoco.mjtIntegrator.mjINT_RK4),
    "integrator implicitfast": changed(integrator=mujoco.mjtIntegrator.mjINT_IMPLICITFAST),
    "solver CG": changed(solver=mujoco.mjtSolver.mjSOL_CG),
    "solver PGS": changed(solver=mujoco.mjtSolver.mjSOL_PGS),
    "elliptic friction cones": changed(cone=mujoco.mjtCone.mjCONE_ELLIPTIC),
    "islands, midphase, warm starts": with_extras,
}


def main() -> None:
    """Take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    task = QuadrupedTask()
    actions = np.random.default_rng(0).uniform(-1, 1, (args.steps // 5, task.action_size))
    best = dict.fromkeys(CHANGES, np.inf)
    for _ in range(args.rounds):
        for name, change in CHANGES.items():
            model = copy.copy(task.model)
            change(model.opt)
            data = mujoco.MjData(model)
            start = time.process_time()
            for action in actions:
                data.ctrl[:] = action
                mujoco.mj_step(model, data, 5)
            best[name] = min(best[name], time.process_time() - start)
    rows = [[name, f"{best['as it is'] / seconds:.2f}"] for name, seconds in best.items()]
    print(markdown_table(["options", "speed"], rows))


if __name__ == "__main__":
    main()
