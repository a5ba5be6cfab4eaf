"""Optimize a black box with ask and tell: `python examples/black_box.py [picture.png]`.

The black box is a simulator written in NumPy that nobody can differentiate: an arm with two joints
swings for half a second and lets go of a ball, which then flies over a wall, or hits it. The
parameters are the torques of both joints over time. The ball should land in a basket behind the
wall, and the score only says how far from it the ball hit the ground: a ball that drops just in
front of the wall looks better than one that flies too far.

A strategy is told two things about each candidate: how good it was (its return) and what it did
(its behavior). Here the behavior is where the ball was highest and where it came down. ES ignores
it. BGES adds the distance to the behaviors of earlier populations to the fitness, so it keeps
trying other throws when the score says to stay. BG-WNES also takes its steps in the Wasserstein
geometry, here (delta < 0) with more weight on directions that change the throw.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wng

BASKET, WALL, WALL_HEIGHT = 8.0, 6.0, 8.0  # meters
STEP, SWING, FLIGHT = 0.02, 25, 150  # seconds a step, steps of the swing and of the flight
KNOTS = 6


# --- the black box: any code, in any language ---------------------------------------------------
def simulate(torques: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Throw one ball for each row of torques [N, 2, KNOTS].

    Returns:
      The score of each throw, its behavior [N, 3] and the path of the ball [N, time, 2].
    """
    number = len(torques)
    angle = np.tile([-np.pi / 2, 0.0], (number, 1))  # shoulder, elbow: hanging down
    speed = np.zeros((number, 2))
    friction, strength = np.array([1.0, 1.0]), np.array([40.0, 60.0])
    for t in range(SWING):
        torque = np.tanh(torques[:, :, t * KNOTS // SWING])
        speed += STEP * (strength * torque - friction * speed)
        angle += STEP * speed
    total, total_speed = angle.cumsum(1), speed.cumsum(1)
    position = np.stack([np.cos(total).sum(1), 2 + np.sin(total).sum(1)], 1)
    velocity = np.stack(
        [-(np.sin(total) * total_speed).sum(1), (np.cos(total) * total_speed).sum(1)], 1
    )
    path = [position.copy()]
    for _ in range(FLIGHT):
        velocity[:, 1] -= 9.81 * STEP
        moved = position + STEP * velocity
        hits = ((position[:, 0] < WALL) != (moved[:, 0] < WALL)) & (moved[:, 1] < WALL_HEIGHT)
        velocity[hits, 0] *= -0.3
        moved[hits, 0] = position[hits, 0]
        flies = position[:, 1] > 0
        position = np.where(flies[:, None], moved, position)
        path.append(position.copy())
    paths = np.stack(path, 1)
    score = -np.abs(position[:, 0] - BASKET)
    highest = paths[np.arange(number), paths[:, :, 1].argmax(1)]
    return score, np.column_stack([highest, position[:, 0]]), paths


# --- the loop ---------------------------------------------------------------------------------
def optimize(strategy: wng.Strategy, seed: int, generations: int) -> tuple[np.ndarray, np.ndarray]:
    """Ask, evaluate, tell. Returns the best score so far by generation, and the best throw."""
    state = strategy.init(jax.random.key(seed))
    best, throw, history = -np.inf, np.zeros((FLIGHT + 1, 2)), []
    for _ in range(generations):
        candidates, state = strategy.ask(state)
        returns, behaviors, paths = simulate(np.asarray(candidates["torques"]))
        state, _ = strategy.tell(state, candidates, returns, behaviors)
        if returns.max() > best:
            best, throw = returns.max(), paths[returns.argmax()]
        history.append(best)
    return np.array(history), throw


def main() -> None:
    """Run each strategy, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("picture", nargs="?", default="black_box.png", help="PNG to write")
    parser.add_argument("--generations", type=int, default=60, help="generations of each run")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each strategy")
    options = parser.parse_args()

    params = {"torques": jnp.zeros((2, KNOTS))}  # any pytree
    settings: dict[str, Any] = {"population": 40, "sigma": 0.1, "learning_rate": 0.05}
    strategies = {
        "ES": wng.ES(params, **settings),
        "BGES": wng.BGES(params, beta=0.2, **settings),
        "BG-WNES": wng.BGWNES(params, beta=0.2, delta=-1.3, num_basis=10, **settings),
    }
    results = {
        name: [optimize(strategy, seed, options.generations) for seed in range(options.seeds)]
        for name, strategy in strategies.items()
    }
    print(f"Best throw of {options.generations} generations, {options.seeds} seeds:\n")
    for name, runs in results.items():
        misses = -np.array([history[-1] for history, _ in runs])
        print(
            f"{name:8} median distance from the basket {np.median(misses):.2f} m, "
            f"within 0.2 m: {(misses < 0.2).sum()} of {len(misses)}"
        )
    draw(results, options.picture)
    print(f"\nPicture: {options.picture}")


def draw(results: dict[str, list[tuple[np.ndarray, np.ndarray]]], path: str) -> None:
    """Draw the best throw of each run (left) and how far it misses by generation (right)."""
    colors = {"ES": "#8a8f98", "BGES": "#4c78a8", "BG-WNES": "#d1495b"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    for name, runs in results.items():
        for _, throw in runs:
            left.plot(*throw.T, color=colors[name], lw=1.2, alpha=0.6)
        misses = -np.array([history for history, _ in runs])
        right.plot(misses.T, color=colors[name], lw=0.8, alpha=0.35)
        right.plot(np.median(misses, axis=0), color=colors[name], lw=2.5, label=f"{name}, median")
    left.plot([WALL, WALL], [0, WALL_HEIGHT], color="#3b3f45", lw=6)
    left.plot([BASKET], [0], "*", color="#2a9d4b", markersize=18)
    left.set(title="Best throw of each run", xlabel="m", ylabel="m", ylim=(-0.5, None))
    right.set(title="Distance of the best throw so far", xlabel="generation", ylabel="m")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
