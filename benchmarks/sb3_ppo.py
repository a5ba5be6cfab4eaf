"""Learning curves of Stable-Baselines3's PPO, to hold ours against.

    pip install -e '.[peers]'
    python benchmarks/sb3_ppo.py --env InvertedDoublePendulum-v5 --steps 1000000 --seeds 0 1 2 3 4

The hyperparameters are those of `wng train ppo --settings released --num-envs 8` with both learning
rates 3e-4: 8 environments, 2048 steps an iteration, 10 epochs of minibatches of 64, observations
and rewards normalized.
Each episode's return is appended to OUT/seed<k>.csv as it ends; the deterministic policy is
evaluated over 20 episodes at the end (OUT/final.csv).
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize


class EpisodeWriter(BaseCallback):
    """Appends (environment steps, return) of every finished episode to a CSV file."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path

    def _on_training_start(self) -> None:
        self.path.write_text("steps,return\n")

    def _on_step(self) -> bool:
        with self.path.open("a", newline="") as file:
            for info in self.locals["infos"]:
                if "episode" in info:
                    csv.writer(file).writerow([self.num_timesteps, info["episode"]["r"]])
        return True


def normalized(env: str, seed: int, num_envs: int) -> VecNormalize:
    """`num_envs` environments with running normalization of observations and rewards."""
    return VecNormalize(make_vec_env(env, n_envs=num_envs, seed=seed), gamma=0.99)


def make_ppo(env: VecEnv, seed: int) -> PPO:
    """PPO with the paper's released hyperparameters."""
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=3e-4,
        n_steps=2048 // env.num_envs,
        batch_size=64,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        seed=seed,
        device="cpu",
    )


def main() -> None:
    """Train and evaluate every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="InvertedDoublePendulum-v5")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient/sb3_ppo"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds:
        env = normalized(args.env, seed, 8)
        model = make_ppo(env, seed)
        model.learn(args.steps, callback=EpisodeWriter(args.out / f"seed{seed}.csv"))
        evaluation = normalized(args.env, 10_000 + seed, 1)
        evaluation.obs_rms, evaluation.training, evaluation.norm_reward = env.obs_rms, False, False
        returns, _ = evaluate_policy(
            model, evaluation, n_eval_episodes=20, return_episode_rewards=True
        )
        with (args.out / "final.csv").open("a", newline="") as file:
            csv.writer(file).writerow([seed, np.mean(returns), np.std(returns)])
        print(f"seed {seed}: {np.mean(returns):.1f} ± {np.std(returns):.1f}", flush=True)


if __name__ == "__main__":
    main()
