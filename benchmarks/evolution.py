"""Speed of evolution strategies: the point, the quadruped, and a peer, in one run.

    pip install -e '.[peers]'
    python benchmarks/evolution.py

1. wng/PointWall-v0: environment steps per second of whole generations (ask, episodes, tell).
2. wng/QuadrupedWall-v0: the same, in steps of MuJoCo, beside bare `mujoco.rollout` of the same
   model on all cores, with the controls of the first generation. (Later ones are much like it.)
3. A quadruped generation of evosax's OpenAI-ES on a Gymnasium vector environment (`make_vec` and
   its default, which steps one copy after the other; a process for each of so many copies does not
   fit), with the same policy network called once for each step.

Contenders take turns, the best of `--rounds` counts: a shared machine's noise only ever slows.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import gymnasium
import jax
import mujoco
import numpy as np
from mujoco.rollout import Rollout

import wng
from wng.envs.mujoco_batch import MujocoBatch, default_threads
from wng.experiments.output import markdown_table

POINT, QUADRUPED = "wng/PointWall-v0", "wng/QuadrupedWall-v0"


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def generation(env: str, method: str, steps: int, **settings: Any) -> tuple[Any, Callable, int]:
    """An agent, its generation, and the environment steps in it."""
    agent = wng.Agent(env, method, horizon=steps, **settings)
    return agent, agent.trainer.iterate, agent.config.population * steps


def bare_mujoco(steps: int, population: int) -> Callable[[], Any]:
    """The steps of MuJoCo in a generation of the quadruped on all cores, and nothing else.

    From the same initial states with the same controls: how long a step takes depends on them.
    """
    step = MujocoBatch.step
    taken: list[tuple[MujocoBatch, np.ndarray, np.ndarray]] = []

    def record(batch: MujocoBatch, actions: np.ndarray) -> Any:
        taken.append((batch, batch.states.copy(), actions))
        return step(batch, actions)

    with mock.patch.object(MujocoBatch, "step", record):
        agent, iterate, _ = generation(QUADRUPED, "es", steps, population=population)
        iterate()
        agent.close()
    batch, states, _ = taken[0]
    controls = np.stack([actions for *_, actions in taken], axis=1).astype(float)
    controls = controls.repeat(batch.task.frame_skip, axis=1)
    model, threads = batch.task.model, default_threads()
    data = [mujoco.MjData(model) for _ in range(threads)]
    pool = Rollout(nthread=threads)
    members, steps, _ = controls.shape
    out = np.zeros((members, steps, states.shape[1])), np.zeros((members, steps, model.nsensordata))
    return lambda: pool.rollout(
        [model] * members, data, states, controls, state=out[0], sensordata=out[1]
    )


def peer_generation(members: int, steps: int, policy: Any) -> Callable[[], Any]:
    """ask, episodes and tell of evosax's OpenAI-ES, environments by Gymnasium."""
    from evosax.algorithms import Open_ES

    envs = gymnasium.make_vec(QUADRUPED, num_envs=members)
    strategy = Open_ES(population_size=members, solution=policy.init(jax.random.key(0)))
    params = strategy.default_params
    state = strategy.init(jax.random.key(1), policy.init(jax.random.key(0)), params)
    layers, act = jax.jit(jax.vmap(policy.layers)), jax.jit(jax.vmap(policy.act))
    noise = np.zeros((members, policy.action_size), np.float32)
    envs.reset(seed=0)

    def run() -> None:
        nonlocal state
        candidates, state = strategy.ask(jax.random.key(2), state, params)
        matrices = layers(candidates)
        observations, _ = envs.reset(seed=0)
        total = np.zeros(members)
        for _ in range(steps):
            action = np.asarray(act(matrices, observations.astype(np.float32), noise))
            observations, reward, *_ = envs.step(action)
            total += reward
        state, _ = strategy.tell(jax.random.key(3), candidates, -total, state, params)

    return run


def main() -> None:
    """Take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=200, help="of the quadruped's population")
    parser.add_argument("--steps", type=int, default=100, help="of a quadruped's episode")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as `wng train` has it
    agents, work = [], {}
    for method in ("es", "wnes", "bgwnes"):
        agent, run, steps = generation(POINT, method, 50, population=1000)
        agents.append(agent)
        work[f"PointWall {method}, 1000 members"] = (run, steps)
    agent, run, steps = generation(QUADRUPED, "es", args.steps, population=args.members)
    agents.append(agent)
    work["QuadrupedWall es"] = (run, 5 * steps)
    work["bare mujoco.rollout"] = (
        bare_mujoco(args.steps, args.members),
        5 * (args.members + 1) * args.steps,
    )
    if not args.no_peers:
        peer = peer_generation(args.members, args.steps, agent.trainer.policy)
        work["QuadrupedWall evosax + Gymnasium"] = (peer, 5 * steps)
    for run, _ in work.values():
        run()  # compiles
    best = dict.fromkeys(work, np.inf)
    for _ in range(args.rounds):
        for name, (run, _) in work.items():
            best[name] = min(best[name], seconds(run))
    speed = {name: work[name][1] / best[name] for name in work}
    for each in agents:
        each.close()
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{rate / speed['bare mujoco.rollout']:.2f}" if "Quad" in name else "",
        ]
        for name, rate in speed.items()
    ]
    print(markdown_table(["", "steps/s (MuJoCo's for the quadruped)", "÷ bare rollout"], rows))
    if not args.no_peers:
        ratio = speed["QuadrupedWall es"] / speed["QuadrupedWall evosax + Gymnasium"]
        print(f"\nThe quadruped's generation is {ratio:.1f} times as fast as the peer's.")


if __name__ == "__main__":
    main()
