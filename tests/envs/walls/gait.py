"""A scripted policy for the quadruped: a trot in any direction, and walks along waypoints.

A leg sits at the angle φ of the body, and its phase is p: diagonal legs together, neighbors half a
period apart. To walk at an angle ψ of the body, its joints follow

    hip = HIP·sin(ψ − φ)·cos(p)
    knee = BEND + LIFT·cos(p + LAG) + REACH·cos(ψ − φ)·cos(p + DELAY)

(the hip moves a foot sideways to its leg, the knee lifts it and moves it along the leg). The
numbers are the rounded outcome of a cross-entropy search for speed over six directions.
"""

import numpy as np

FREQUENCY, STIFFNESS, DAMPING = 1.7, 4.0, 0.5
HIP, BEND, LIFT, LAG, REACH, DELAY = 0.87, -0.33, 0.42, 3.5, 0.34, 2.6
LEGS = np.pi / 4 + np.pi / 2 * np.arange(4)
NEAR = 1.0  # a waypoint is reached at this distance

STRAIGHT = ((5.0, 0.0),)  # on the line to the goal; near enough to hold that line
DETOUR = ((2.5, 3.5), (6.5, 3.5), (15.0, 0.0))


class Walk:
    """Walk along waypoints [(x, y), …] with `number` quadrupeds at once."""

    def __init__(self, waypoints: tuple[tuple[float, float], ...], number: int) -> None:
        self.waypoints = np.array(waypoints)
        self.stage, self.steps = np.zeros(number, int), 0

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        target = self.waypoints[self.stage] - observations[:, :2]
        self.stage += (np.hypot(*target.T) < NEAR) & (self.stage < len(self.waypoints) - 1)
        w, x, y, z = observations[:, 3:7].T
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        angle = (np.arctan2(target[:, 1], target[:, 0]) - yaw)[:, None] - LEGS
        phase = 2 * np.pi * FREQUENCY * 0.05 * self.steps + np.pi * np.array([0, 1, 0, 1])
        self.steps += 1
        hips = HIP * np.sin(angle) * np.cos(phase)
        knees = BEND + LIFT * np.cos(phase + LAG) + REACH * np.cos(angle) * np.cos(phase + DELAY)
        joints = np.stack([hips, knees], axis=-1).reshape(-1, 8)
        return STIFFNESS * (joints - observations[:, 7:15]) - DAMPING * observations[:, 21:29]
