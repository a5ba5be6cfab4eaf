"""PPO of rejax, for `benchmarks/compiled.py --rejax PYTHON`, in an environment of its own.

rejax 0.1.3 does not run with today's gymnax:

    python -m venv rejax && rejax/bin/pip install rejax 'gymnax<1'

Reads numbers of iterations, one per line, and answers each with the seconds that they took. Each is
a training run of its own, compiled before it is timed.
"""

import functools
import sys
import time
from typing import Any

import jax
import rejax

NUMBER, ROLLOUT = 256, 8192  # as in benchmarks/compiled.py


@functools.cache
def compiled(task: str, iterations: int) -> Any:
    """A run of so many iterations, compiled."""
    steps = iterations * ROLLOUT
    agent = rejax.PPO.create(
        env=task,
        num_envs=NUMBER,
        num_steps=ROLLOUT // NUMBER,
        num_epochs=4,
        num_minibatches=8,
        learning_rate=3e-4,
        normalize_observations=True,
        normalize_rewards=True,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda *_: ())
    return jax.jit(agent.train).lower(jax.random.key(0)).compile()


def main() -> None:
    """Answer until there are no more lines."""
    for line in sys.stdin:
        train = compiled(sys.argv[1], int(line))
        start = time.perf_counter()
        jax.block_until_ready(train(jax.random.key(0)))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
