"""PPO of brax, for `benchmarks/compiled.py --brax PYTHON`, in an environment of its own.

The PPO of brax 0.14.2 does not run with JAX 0.10:

    python -m venv brax && brax/bin/pip install 'brax==0.14.2' 'jax<0.9'

Takes a task and a number of iterations. Trains so many for each line it reads, and answers with the
seconds that they took.
"""

import sys
import time
from functools import partial
from typing import Any

from brax import envs
from brax.training.agents.ppo import networks, train
from jax.numpy import tanh

NUMBER, ROLLOUT, MINIBATCH, EPOCHS = 256, 8192, 1024, 4  # as in benchmarks/compiled.py
MANY = 1000  # more rounds than anyone asks for


def main() -> None:
    """Answer until there are no more lines."""
    task, iterations = sys.argv[1], int(sys.argv[2])
    sys.stdin.readline()
    start = time.perf_counter()

    def answer(step: int, metrics: Any) -> None:
        nonlocal start
        if step == 0:
            return
        print(time.perf_counter() - start, flush=True)
        if not sys.stdin.readline():
            sys.exit()
        start = time.perf_counter()

    unroll = ROLLOUT // NUMBER
    train.train(
        envs.get_environment(task),
        num_timesteps=MANY * iterations * ROLLOUT,
        num_evals=MANY + 1,
        run_evals=False,
        num_envs=NUMBER,
        episode_length=1000,
        unroll_length=unroll,
        batch_size=MINIBATCH // unroll,
        num_minibatches=ROLLOUT // MINIBATCH,
        num_updates_per_batch=EPOCHS,
        normalize_observations=True,
        network_factory=partial(
            networks.make_ppo_networks,
            policy_hidden_layer_sizes=(64, 64),
            value_hidden_layer_sizes=(64, 64),
            activation=tanh,
        ),
        progress_fn=answer,
    )


if __name__ == "__main__":
    main()
