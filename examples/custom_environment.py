"""Train on an environment and an embedding of your own.

    python examples/custom_environment.py [picture.png]

The environment is a boat that crosses a river. The current is strongest in the middle, the boat
can push itself with a small force, and it should land at the jetty on the other side. Any class
with Gymnasium's interface works, as long as observations are a Box and actions a Box or Discrete.

The embedding says what counts as behavior, and so what a natural gradient measures a step by. Here
it is the force next to the position: two policies that push the same way at the same place count
as equal, whatever the speed of the boat.
"""

import argparse
from typing import Any

import gymnasium
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wng

WIDTH, JETTY, LIMIT = 10.0, 0.0, 60


# --- the environment --------------------------------------------------------------------------
class River(gymnasium.Env):
    """A boat on a river: cross it and land at the jetty."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Put the boat at rest on the near bank. All randomness comes from `self.np_random`."""
        super().reset(seed=seed)
        self.position = np.array([0.0, self.np_random.uniform(-2, 2)])
        self.velocity = np.zeros(2)
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Push for 0.2 s. The episode terminates when the boat reaches the other bank."""
        across = self.position[0] / WIDTH
        current = np.array([0.0, -6.0 * across * (1 - across)])
        force = 3.0 * np.clip(action, -1, 1)
        self.velocity += 0.2 * (force - (self.velocity - current))
        self.position += 0.2 * self.velocity
        self.position[0] = max(self.position[0], 0.0)
        landed = bool(self.position[0] >= WIDTH)
        reward = -0.1 - 0.02 * float(force @ force)
        if landed:
            reward += 10.0 - 2.0 * abs(self.position[1] - JETTY)
        return self._observe(), reward, landed, False, {}

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.position / 5, self.velocity]).astype(np.float32)


gymnasium.register("River-v0", entry_point=River, max_episode_steps=LIMIT)  # type: ignore[arg-type]


# --- the embedding ----------------------------------------------------------------------------
def force_by_position(t: wng.Trajectory) -> Any:
    """Return the position and the force of one step; the velocity does not count."""
    return jnp.concatenate([t.observations[0, :2], t.actions[0]])


# whole=False: look at single steps. of_actions=True: the policy moves it through actions alone.
EMBEDDING = wng.Embedding(force_by_position, whole=False, of_actions=True)


# --- training ---------------------------------------------------------------------------------
def paths(agent: wng.Agent, number: int, seed: int) -> list[np.ndarray]:
    """Return the positions of the boat in episodes of the most likely action."""
    env = gymnasium.make("River-v0")
    found = []
    for episode in range(number):
        observation, _ = env.reset(seed=seed + episode)
        path, over = [observation[:2] * 5], False
        while not over:
            observation, _, terminated, truncated, _ = env.step(agent.predict(observation))
            path.append(observation[:2] * 5)
            over = terminated or truncated
        found.append(np.array(path))
    return found


def main() -> None:
    """Train, evaluate, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("picture", nargs="?", default="custom_environment.png", help="PNG to write")
    parser.add_argument("--steps", type=int, default=45_000, help="environment steps")
    options = parser.parse_args()

    agent = wng.Agent("River-v0", "wnpg", seed=0, embedding=EMBEDDING)
    curve: list[tuple[float, float]] = []
    stages: dict[int, list[np.ndarray]] = {}

    def watch(agent: wng.Agent, row: dict[str, float]) -> None:
        """Called after every iteration with its metrics; returning False would stop training."""
        curve.append((row["steps"], row["return"]))
        if row["steps"] >= options.steps * (len(stages) + 2) / 4:  # after 1/2, 3/4 and the end
            stages[int(row["steps"])] = paths(agent, 6, seed=0)

    before = agent.evaluate(20).mean()
    agent.learn(options.steps, callback=watch, progress=False)
    after = agent.evaluate(20).mean()
    print(f"Mean return of 20 episodes: {before:.2f} before training, {after:.2f} after.")
    agent.close()
    draw(stages, curve, options.picture)
    print(f"Picture: {options.picture}")


def draw(stages: dict[int, list[np.ndarray]], curve: list[tuple[float, float]], path: str) -> None:
    """Draw paths in three stages of training (left) and the learning curve (right)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    left.axvspan(0, WIDTH, color="#dcebf5")
    colors = ("#8a8f98", "#e9a03b", "#d1495b")
    for color, (steps, found) in zip(colors, stages.items(), strict=False):
        for number, line in enumerate(found):
            label = f"after {steps:,} steps" if number == 0 else None
            left.plot(*line.T, color=color, lw=1.8, label=label)
    left.plot([WIDTH], [JETTY], "*", color="#2a9d4b", markersize=18)
    left.set(title="Crossing the river", xlabel="across [m]", ylabel="upstream [m]")
    left.legend(frameon=False)
    right.plot(*np.array(curve).T, color="#d1495b", lw=2)
    right.set(title="WNPG", xlabel="environment steps", ylabel="mean return of an iteration")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
