"""Environment steps per second of training, ours beside Stable-Baselines3 and SBX, in one run.

    pip install -e '.[envpool,peers]'
    python benchmarks/policy_gradient.py

Hopper-v5, 8 environments, 2048 steps per iteration, 10 epochs of minibatches of 64, 64×64 tanh
networks, observations and rewards normalized: the same for all but the two that say `tuned`, which
run with their own minibatches. Each contender takes turns for
`--rounds` rounds of `--iterations` iterations after a first one that compiles; the best round
counts. The machine's absolute speed does not matter, the ratios do.
"""

import argparse
import dataclasses
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from wng import envs
from wng.experiments.output import markdown_table
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import Trainer
from wng.runs import setup

ENV, ENVS, ROLLOUT = "Hopper-v5", 8, 2048
EPOCHS: dict[str, Any] = {"epochs": 10, "minibatch": 64}
ESTIMATE: dict[str, Any] = {
    "geometry": "wasserstein",
    "basis": "kernel",
    "num_basis": 5,
    "metric_samples": 64,
    "refresh_every": 5,
}


@dataclasses.dataclass
class Contender:
    """Somebody who can do iterations; `run` returns the seconds in environment, policy, update."""

    name: str
    run: Callable[[int], tuple[float, float, float]]
    best: float = 0.0
    share: tuple[float, float, float] = (0.0, 0.0, 0.0)


def ours(name: str, **settings: Any) -> Contender:
    """A method of wng."""
    config = preset(name.split()[0].lower(), num_envs=ENVS, rollout=ROLLOUT, **settings)
    trainer = Trainer(envs.resolve(ENV, config.backend), config, 0)

    def run(iterations: int) -> tuple[float, float, float]:
        rows = [trainer.iterate() for _ in range(iterations)]
        seconds = [sum(r[f"seconds_{part}"] for r in rows) for part in ("env", "policy", "update")]
        return seconds[0], seconds[1], seconds[2]

    return Contender(f"wng {name} ({trainer.rollouts.backend})", run)


def bare() -> Contender:
    """The environments with nothing around them: what no training can exceed.

    They take the actions of PPO in training, from the same seed, so they meet the same states: how
    long a step takes depends on them.
    """
    config = preset("ppo", num_envs=ENVS, rollout=ROLLOUT, **EPOCHS)
    resolved = envs.resolve(ENV, config.backend)
    trainer = Trainer(resolved, config, 0)
    env = envs.make(resolved, ENVS, 0)
    env.reset()
    taken: list[np.ndarray] = []
    rollouts: Any = trainer.rollouts
    source = rollouts.env
    step = source.step

    def record(actions: np.ndarray) -> Any:
        taken.append(actions.copy())
        return step(actions)

    source.step = record

    def run(iterations: int) -> tuple[float, float, float]:
        taken.clear()
        for _ in range(iterations):
            trainer.iterate()
        start = time.perf_counter()
        for action in taken:
            env.step(action)
        return time.perf_counter() - start, 0.0, 0.0

    return Contender(f"no training ({env.spec.backend})", run)


def peer(name: str) -> Contender:
    """PPO of Stable-Baselines3 or of SBX, its environments and its update timed."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    extra: dict[str, Any] = {}
    if name == "SB3":
        import torch

        torch.set_num_threads(2)
        extra = {"device": "cpu"}
    algorithms: Any = importlib.import_module({"SB3": "stable_baselines3", "SBX": "sbx"}[name])
    env: Any = VecNormalize(make_vec_env(ENV, n_envs=ENVS, seed=0), gamma=0.99)
    model: Any = algorithms.PPO(
        "MlpPolicy", env, n_steps=ROLLOUT // ENVS, batch_size=64, n_epochs=10, seed=0, **extra
    )
    spent = {"env": 0.0, "update": 0.0}
    step_wait, train = env.step_wait, model.train

    def timed(part: str, fn: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            start = time.perf_counter()
            result = fn()
            spent[part] += time.perf_counter() - start
            return result

        return call

    env.step_wait, model.train = timed("env", step_wait), timed("update", train)

    def run(iterations: int) -> tuple[float, float, float]:
        spent.update(env=0.0, update=0.0)
        start = time.perf_counter()
        model.learn(iterations * ROLLOUT, reset_num_timesteps=False)
        total = time.perf_counter() - start
        return spent["env"], total - spent["env"] - spent["update"], spent["update"]

    return Contender(f"{name} PPO", run)


def main() -> None:
    """Take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    setup.own_process = True
    setup.set_up_jax()  # as `wng train` does
    contenders = [
        ours("PPO", **EPOCHS),
        ours("WNPG", **ESTIMATE, **EPOCHS),
        ours("WNPG tuned"),
        ours("WTRPO tuned"),
        ours("PPO", backend="gymnasium", **EPOCHS),
        ours("PPO", backend="workers", **EPOCHS),
        bare(),
    ]
    if not args.no_peers:
        contenders += [peer("SB3"), peer("SBX")]
    for contender in contenders:
        contender.run(2)
    for _ in range(args.rounds):
        for contender in contenders:
            parts = contender.run(args.iterations)
            speed = args.iterations * ROLLOUT / sum(parts)
            if speed > contender.best:
                contender.best = speed
                contender.share = tuple(np.array(parts) / sum(parts))
    base = next((c.best for c in contenders if c.name.startswith("SB3")), contenders[0].best)
    alone = next(c.best for c in contenders if c.name.startswith("no training"))
    rows = [
        [
            c.name,
            f"{c.best:.0f}",
            f"{c.best / base:.2f}",
            f"{c.best / alone:.2f}",
            *(f"{100 * s:.0f}%" for s in c.share),
        ]
        for c in contenders
    ]
    header = ["", "steps/s", "÷ SB3", "÷ no training", "environments", "policy", "update"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
