"""Steps per second where rollout and update are one compiled call, and how seeds add up.

    pip install -e '.[envpool,gymnax,peers]'
    python benchmarks/compiled.py                  # methods beside PPO of Stable-Baselines3
    python benchmarks/compiled.py --seeds 1 8 64   # blocks of seeds, compilation included
    python benchmarks/compiled.py --no-peers       # without the extra `peers`

Methods: 256 environments of gymnax, 8192 steps per iteration, 4 epochs of minibatches of 1024,
64×64 tanh networks, observations and rewards normalized, the same for all but those that say
`tuned`, which run with their own minibatches. Contenders take turns; the best of `--rounds` rounds
counts. Stable-Baselines3 steps Gymnasium's task of the same name.

Seeds: PPO with 8 environments and 2048 steps per iteration, `--iterations` iterations with what
compiling them takes (nothing is read from a cache), against as many runs one after the other.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from wng import envs
from wng.experiments.output import markdown_table
from wng.policy_gradient.block import TrainerBlock
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import Trainer

TASKS = ("Pendulum-v1", "CartPole-v1")
SAME: dict[str, Any] = {
    "num_envs": 256,
    "rollout": 8192,
    "epochs": 4,
    "minibatch": 1024,
    "value_epochs": 4,
    "value_minibatch": 1024,
}
Run = Callable[[int], None]  # so many iterations


def make_trainer(env: str, method: str, seed: int = 0, **settings: Any) -> Trainer:
    """A trainer of wng."""
    config = preset(method, **settings)
    return Trainer(envs.resolve(env, config.backend), config, seed)


def ours(env: str, method: str, **settings: Any) -> Run:
    """Iterations of a method of wng."""
    trainer = make_trainer(env, method, **settings)

    def run(iterations: int) -> None:
        for _ in range(iterations):
            trainer.iterate()

    return run


def stable_baselines(task: str) -> Run:
    """Iterations of PPO of Stable-Baselines3."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(2)
    number, rollout = SAME["num_envs"], SAME["rollout"]
    env = VecNormalize(make_vec_env(task, n_envs=number, seed=0), gamma=0.99)
    sizes = {"n_steps": rollout // number, "batch_size": SAME["minibatch"], "n_epochs": 4}
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **sizes)

    def run(iterations: int) -> None:
        model.learn(iterations * rollout, reset_num_timesteps=False)

    return run


def compare(rounds: int, iterations: int, peers: bool) -> None:
    """Print the steps per second of each method on each task."""
    for task in TASKS:
        found: dict[str, Run] = {
            "wng PPO": ours(f"gymnax/{task}", "ppo", **SAME),
            "wng WNPG": ours(f"gymnax/{task}", "wnpg", **SAME, num_basis=5, metric_samples=64),
            "wng WNPG tuned": ours(f"gymnax/{task}", "wnpg", num_envs=256, rollout=8192),
            "wng WTRPO tuned": ours(f"gymnax/{task}", "wtrpo", num_envs=256, rollout=8192),
            "wng PPO, EnvPool": ours(task, "ppo", backend="envpool", **SAME),
        }
        if peers:
            found["SB3 PPO"] = stable_baselines(task)
        for run in found.values():
            run(1)
        best = dict.fromkeys(found, 0.0)
        for _ in range(rounds):
            for name, run in found.items():
                start = time.perf_counter()
                run(iterations)
                speed = iterations * SAME["rollout"] / (time.perf_counter() - start)
                best[name] = max(best[name], speed)
        base = best["wng PPO"]
        rows = [[name, f"{speed:.0f}", f"{speed / base:.3f}"] for name, speed in best.items()]
        print(markdown_table([task, "steps/s", "ratio to wng PPO"], rows), flush=True)


def time_block(env: str, number: int, iterations: int) -> float:
    """Seconds for a block of seeds, with compilation; 1 seed is trained alone."""
    start = time.perf_counter()
    trainers = [make_trainer(env, "ppo", seed, num_envs=8) for seed in range(number)]
    if number == 1:
        for _ in range(iterations):
            trainers[0].iterate()
    else:
        block = TrainerBlock(trainers)
        for _ in range(iterations):
            block.iterate(range(number))
    return time.perf_counter() - start


def main() -> None:
    """Compare methods, or time blocks of seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--env", default="gymnax/Pendulum-v1", help="of the blocks of seeds")
    parser.add_argument("--seeds", type=int, nargs="+", help="sizes of the blocks to time")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # time one block, print seconds
    args = parser.parse_args()
    if args.one:
        print(time_block(args.env, args.one, args.iterations))
        return
    if not args.seeds:
        compare(args.rounds, args.iterations, not args.no_peers)
        return
    seconds = {}
    for number in dict.fromkeys([1, *args.seeds]):  # each in a process that has compiled nothing
        command = [sys.executable, __file__, "--env", args.env, "--one", str(number)]
        command += ["--iterations", str(args.iterations)]
        seconds[number] = float(subprocess.check_output(command))
    rows = [
        [n, f"{s:.1f}", f"{n * args.iterations * 2048 / s:.0f}", f"{s / (n * seconds[1]):.3f}"]
        for n, s in seconds.items()
    ]
    print(markdown_table(["seeds", "seconds", "steps/s", "ratio to runs one by one"], rows))


if __name__ == "__main__":
    main()
