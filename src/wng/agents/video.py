"""Videos of an agent."""

import os
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np

from wng.agents.agent import Agent
from wng.envs.base import check_arguments
from wng.envs.lookup import find
from wng.runs.files import one_sentence
from wng.runs.settings import EVALUATION_SEED

FORMATS = (".mp4", ".gif")


def film(
    agent: Agent,
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int = EVALUATION_SEED,
    deterministic: bool = True,
    most_frames: int = 2000,
) -> list[float]:
    """Write an .mp4 or .gif of whole episodes, or of their first frames; returns their returns."""
    import imageio.v3 as imageio

    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a video is an .mp4 or .gif file, got '{path.name}'.")
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}.")
    check_arguments(1, seed)
    if "rgb_array" not in agent.trainer.resolved.render_modes:
        raise ValueError(f"{agent.env} cannot be recorded: it has no render mode 'rgb_array'.")
    if sys.platform == "linux" and "DISPLAY" not in os.environ:  # no screen, for both renderers
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env, _ = find(agent.env, render_mode="rgb_array")
    try:
        frames, returns = _play(env, agent, episodes, seed, deterministic, most_frames)
        fps = int(env.metadata.get("render_fps") or 30)
    finally:
        env.close()
    with one_sentence(path):  # before FFmpeg fails with many words
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    if path.suffix.lower() == ".mp4":
        even = [f[: f.shape[0] // 2 * 2, : f.shape[1] // 2 * 2] for f in frames]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX dislikes forks; this one execs
            imageio.imwrite(
                path, np.stack(even), plugin="FFMPEG", fps=fps, codec="libx264", macro_block_size=2
            )
    else:
        every = max(1, fps // 25)  # a gif cannot be faster
        small = np.stack([f[::2, ::2] for f in frames[::every]])
        imageio.imwrite(path, small, plugin="pillow", duration=1000 * every / fps, loop=0)
    return returns


def _play(
    env: gymnasium.Env, agent: Agent, episodes: int, seed: int, deterministic: bool, most: int
) -> tuple[list[np.ndarray], list[float]]:
    frames: list[np.ndarray] = []
    returns: list[float] = []
    for episode in range(episodes):
        if len(frames) >= most:
            break
        observation, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over and len(frames) < most:
            frame = env.render()
            assert isinstance(frame, np.ndarray)
            frames.append(frame)
            action = agent.predict(np.ravel(observation), deterministic=deterministic)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return frames, returns
