"""Steps per second where rollout and update are one compiled call, and how seeds add up.

    pip install -e '.[brax,envpool,gymnax,peers]'
    python benchmarks/compiled.py                  # methods beside PPO of Stable-Baselines3
    python benchmarks/compiled.py --rejax PYTHON   # and of rejax (see benchmarks/rejax_ppo.py)
    python benchmarks/compiled.py --brax PYTHON    # beside brax (see benchmarks/brax_ppo.py) only
    python benchmarks/compiled.py --seeds 1 8 64   # blocks of seeds, compilation included
    python benchmarks/compiled.py --no-peers       # without the extra `peers`
    python benchmarks/compiled.py --host           # share of time between the compiled calls

Methods: 256 environments of gymnax, 8192 steps per iteration, 4 epochs of minibatches of 1024,
64×64 tanh networks, observations and rewards normalized, the same for all but those that say
`tuned`, which run with their own minibatches. (brax does not normalize rewards.) WNPG has the
paper's metric: 5 basis functions, 64 samples, estimated for every second minibatch. Contenders take
turns; the best of `--rounds` rounds counts. Stable-Baselines3 steps Gymnasium's task of the same
name.

Host: how much longer iterations take than their compiled calls alone, which is what several
iterations per call could save.

Seeds: PPO with 8 environments and 2048 steps per iteration (or with `--num-envs`, and 32 steps of
each), `--iterations` iterations with what compiling them takes (nothing is read from a cache),
against as many runs one after the other.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wng import envs
from wng.experiments.output import markdown_table
from wng.policy_gradient.block import TrainerBlock
from wng.policy_gradient.compiled import CompiledRollouts
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import Trainer
from wng.runs import setup

TASKS, BRAX_TASK = ("Pendulum-v1", "CartPole-v1"), "inverted_double_pendulum"
SAME: dict[str, Any] = {
    "num_envs": 256,
    "rollout": 8192,
    "epochs": 4,
    "minibatch": 1024,
    "value_epochs": 4,
    "value_minibatch": 1024,
}
ESTIMATE: dict[str, Any] = {
    "geometry": "wasserstein",
    "basis": "kernel",
    "num_basis": 5,
    "metric_samples": 64,
    "refresh_every": 2,
}
Run = Callable[[int], float]  # seconds of so many iterations


def make_trainer(env: str, method: str, seed: int = 0, **settings: Any) -> Trainer:
    """A trainer of wng."""
    config = preset(method, **settings)
    return Trainer(envs.resolve(env, config.backend), config, seed)


def ours(env: str, method: str, **settings: Any) -> Run:
    """Iterations of a method of wng."""
    trainer = make_trainer(env, method, **settings)
    return lambda iterations: timed(lambda: [trainer.iterate() for _ in range(iterations)])


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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
    return lambda iterations: timed(
        lambda: model.learn(iterations * rollout, reset_num_timesteps=False)
    )


def peer(python: str, script: str, *words: str) -> Run:
    """Iterations of a peer's PPO, in a process of its own."""
    process = subprocess.Popen(
        [python, str(Path(__file__).with_name(script)), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(iterations: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{iterations}\n")
        process.stdin.flush()
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # what its packages print
                return float(line)
        raise SystemExit(f"{script} ended early.")

    return run


def show(task: str, best: dict[str, float]) -> None:
    """Print a table of steps per second."""
    base = best["wng PPO"]
    rows = [[name, f"{speed:.0f}", f"{speed / base:.3f}"] for name, speed in best.items()]
    print(markdown_table([task, "steps/s", "ratio to wng PPO"], rows), flush=True)


def compare(args: argparse.Namespace) -> None:
    """Print the steps per second of each method on each task."""
    iterations = args.iterations
    for task in [f"brax/{BRAX_TASK}"] if args.brax else [f"gymnax/{task}" for task in TASKS]:
        package, name = task.split("/")
        found: dict[str, Run] = {
            "wng PPO": ours(task, "ppo", **SAME),
            "wng WNPG": ours(task, "wnpg", **SAME, **ESTIMATE),
            "wng WTRPO": ours(task, "wtrpo", **SAME),
            "wng WNPG tuned": ours(task, "wnpg", num_envs=256, rollout=8192),
            "wng WTRPO tuned": ours(task, "wtrpo", num_envs=256, rollout=8192),
        }
        if package == "brax":
            found["brax PPO"] = peer(args.brax, "brax_ppo.py", name, str(iterations))
        else:
            found["wng PPO, EnvPool"] = ours(name, "ppo", backend="envpool", **SAME)
        if package == "gymnax" and not args.no_peers:
            found["SB3 PPO"] = stable_baselines(name)
        if package == "gymnax" and args.rejax:
            found["rejax PPO"] = peer(args.rejax, "rejax_ppo.py", name)
        for run in found.values():
            run(iterations)
        best = dict.fromkeys(found, 0.0)
        for _ in range(args.rounds):
            for name, run in found.items():
                best[name] = max(best[name], iterations * SAME["rollout"] / run(iterations))
        show(task, best)


def time_host(env: str, iterations: int, rounds: int) -> None:
    """Print the share of time that iterations of PPO spend outside their compiled calls."""
    import jax

    rows = []
    for number, rollout in ((8, 256), (8, 2048), (256, 8192)):
        sizes = {"num_envs": number, "rollout": rollout, "minibatch": 64, "value_minibatch": 64}
        trainer = make_trainer(env, "ppo", **sizes)
        source = trainer.rollouts
        assert isinstance(source, CompiledRollouts)

        def calls(trainer: Trainer = trainer, source: CompiledRollouts = source) -> None:
            state, at, keys, _ = trainer.begin()
            for _ in range(iterations):
                state, at, *rest = source.program.iterate(state, at, source.key, keys)
                jax.block_until_ready(rest)

        def whole(trainer: Trainer = trainer) -> None:
            for _ in range(iterations):
                trainer.iterate()

        whole()
        alone, all_of_it = float("inf"), float("inf")
        for _ in range(rounds):
            alone, all_of_it = min(alone, timed(calls)), min(all_of_it, timed(whole))
        each = f"{1000 * all_of_it / iterations:.1f}"
        rows.append([number, rollout, each, f"{max(0.0, 1 - alone / all_of_it):.1%}"])
    header = ["environments", "steps per iteration", "milliseconds", "outside the compiled call"]
    print(markdown_table(header, rows))


def steps_of(num_envs: int) -> int:
    """Steps per iteration of the blocks."""
    return max(2048, 32 * num_envs)


def time_block(env: str, number: int, iterations: int, num_envs: int) -> float:
    """Seconds for a block of seeds, with compilation; 1 seed is trained alone."""
    start = time.perf_counter()
    sizes = {"num_envs": num_envs, "rollout": steps_of(num_envs)}
    trainers = [make_trainer(env, "ppo", seed, **sizes) for seed in range(number)]
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
    parser.add_argument("--num-envs", type=int, default=8, help="of each seed of a block")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--rejax", metavar="PYTHON", help="interpreter that has rejax")
    parser.add_argument("--brax", metavar="PYTHON", help="interpreter whose brax can train")
    parser.add_argument("--host", action="store_true", help="time what is around the calls")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # time one block, print seconds
    args = parser.parse_args()
    if args.one:
        print(time_block(args.env, args.one, args.iterations, args.num_envs))
        return
    if args.host:
        setup.own_process = True
        setup.set_up_jax()  # as `wng train` does
        time_host(args.env, args.iterations, args.rounds)
        return
    if not args.seeds:
        compare(args)
        return
    seconds = {}
    for number in dict.fromkeys([1, *args.seeds]):  # each in a process that has compiled nothing
        command = [sys.executable, __file__, "--env", args.env, "--one", str(number)]
        command += ["--iterations", str(args.iterations), "--num-envs", str(args.num_envs)]
        seconds[number] = float(subprocess.check_output(command))
    steps = args.iterations * steps_of(args.num_envs)
    rows = [
        [n, f"{s:.1f}", f"{n * steps / s:.0f}", f"{s / (n * seconds[1]):.3f}"]
        for n, s in seconds.items()
    ]
    print(markdown_table(["seeds", "seconds", "steps/s", "ratio to runs one by one"], rows))


if __name__ == "__main__":
    main()
