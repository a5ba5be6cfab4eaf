"""What it saves that members whose episodes are over wait: a generation on CartPole-v1.

    python benchmarks/finished.py

ES with 100 members and dense policies, in Gymnasium in this process. Two evaluators play the same
episodes in turns: in one, all environments and policies go on until the last episode is over; in
the other, the one that wng uses, those of members that have finished wait. Both must find the same
returns. Prints mean seconds of a generation, for the first ones and for later, longer ones.
"""

import argparse
import time
from unittest import mock

import jax
import numpy as np

import wng
from wng import envs
from wng.evolution import steppers
from wng.evolution.episodes import Rows, Setup
from wng.evolution.steppers import Stepped, SteppedEvaluator, Stepper, gym_stepper
from wng.experiments.output import markdown_table

ENV, POPULATION = "CartPole-v1", 100
SETTINGS = {"policy": "dense", "hidden": (64, 64), "sigma": 0.1, "learning_rate": 0.05}


def restless(found: envs.ResolvedEnv, rows: Rows) -> Stepper:
    """Environments that start over when an episode ends."""
    env = envs.make(found, rows.number, 0, "gymnasium", offset=rows.first)

    def step(actions: np.ndarray) -> Stepped:
        after = env.step(actions)
        return after.final_observations, after.rewards, after.terminated | after.truncated

    return Stepper(env.reset, step, env.close)


def main() -> None:
    """Train, and play each generation with both evaluators."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=24)
    count = parser.parse_args().generations
    agent = wng.Agent(ENV, "es", 0, population=POPULATION, backend="gymnasium", **SETTINGS)
    found, strategy = envs.resolve(ENV, "gymnasium"), agent.trainer.strategy
    rows = Rows(0, POPULATION + 1, POPULATION)
    setup: Setup = agent.trainer._setup
    players = [
        SteppedEvaluator("gymnasium", make, rows, setup, 0)
        for make in (restless(found, rows), gym_stepper(found, rows, 0, "gymnasium"))
    ]
    seconds, lengths = np.zeros((count, 2)), np.zeros(count)
    for generation in range(count):
        state = agent.trainer.state.strategy
        members, _ = strategy.ask(state)
        both = (members, strategy.params(state))
        whole = jax.tree.map(lambda m, c: np.concatenate([m, c[None]]), *both)
        returns = []
        for number, player in enumerate(players):
            fewer = steppers.halved if number else lambda width, going: width
            with mock.patch.object(steppers, "halved", fewer):
                if generation == 0:
                    player(whole, None, 0)  # compiles
                start = time.perf_counter()
                episodes = player(whole, None, generation)
                seconds[generation, number] = time.perf_counter() - start
            returns.append(episodes.returns)
        np.testing.assert_array_equal(returns[0], returns[1])
        lengths[generation] = episodes.lengths.mean()
        agent.learn(1, progress=False)
    table = []
    for part in np.array_split(np.arange(count), 3):
        before, after = seconds[part].mean(axis=0)
        name = f"{part[0] + 1} to {part[-1] + 1}"
        shown = [f"{lengths[part].mean():.0f}", f"{before:.3f}", f"{after:.3f}"]
        table.append([name, *shown, f"{after / before:.2f}"])
    head = [
        "generations",
        "mean steps of an episode",
        "all go on [s]",
        "finished wait [s]",
        "ratio",
    ]
    print(markdown_table(head, table))


if __name__ == "__main__":
    main()
