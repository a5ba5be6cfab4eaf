"""Episodes of populations against hand computation, and the evaluators against each other."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evolution.small_envs import HORIZON, mean_state
from wng import envs
from wng.behavior.embedding import EMBEDDINGS, Embedding, Trajectory
from wng.envs import workers
from wng.envs.moments import Moments
from wng.envs.walls.point import PointTask
from wng.envs.worker import episode_seed
from wng.evolution import evaluators, steppers
from wng.evolution.episodes import Episodes, Rows, Setup, behavior_size
from wng.evolution.evaluators import make_evaluator
from wng.evolution.policies import Policy

MODULE = "evolution.small_envs:"
COUNTER = "wng/ProbeCounter-v0"
POINT, QUADRUPED = "wng/PointWall-v0", "wng/QuadrupedWall-v0"
LINE_BACKENDS = ["jax", "gymnasium", "workers"]
# Constant actions on the line: ends after 3 steps, never, never, after 4.
ACTIONS = np.array([[0.9], [-0.5], [0.0], [0.6]])
LENGTHS = [3, 10, 10, 4]


def everything(t: Trajectory) -> jax.Array:
    """The embeddings of whole episodes one after the other."""
    names = ("reward-to-go", "trajectory-actions", "final-state")
    return jnp.concatenate([*(EMBEDDINGS[name].fn(t) for name in names), mean_state(t)])


EVERYTHING = Embedding(everything)


def policy_for(env_id: str, kind="dense", hidden=(3,)) -> Policy:
    spec = envs.resolve(env_id, "gymnasium").spec
    return Policy(
        spec.observation_size,
        spec.action_size,
        kind,
        hidden,
        spec.discrete,
        spec.action_low,
        spec.action_high,
    )


def constant(policy: Policy, actions: np.ndarray):
    """Members of a dense policy that take the same action in [−1, 1] in every state."""
    n, width = len(actions), policy.hidden[0]
    out = np.zeros((n, policy.action_size, width), np.float32)
    out[:, :, 0] = np.arctanh(actions) / np.tanh(1.0)
    bias = np.ones((n, width), np.float32)
    inputs = np.zeros((n, width, policy.observation_size), np.float32)
    return [{"weight": inputs, "bias": bias}, {"weight": out}]


def random_members(policy: Policy, number: int, scale: float = 1.0):
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    rng = np.random.default_rng(0)

    def draw(x) -> np.ndarray:
        return (scale * rng.normal(size=(30, *x.shape))).astype(np.float32)[:number]

    return jax.tree.map(draw, shapes)


def everyone(number: int) -> Rows:
    return Rows(0, number, center=number - 1)


def evaluate(
    env_id: str,
    members,
    backend: str = "auto",
    embedding: str | Embedding = "final-state",
    policy: Policy | None = None,
    horizon: int = HORIZON,
    noise: float = 0.0,
    seed: int = 0,
    generation: int = 0,
    moments: Moments | None = None,
) -> Episodes:
    chosen = embedding if isinstance(embedding, Embedding) else EMBEDDINGS[embedding]
    setup = Setup(policy or policy_for(env_id), chosen, horizon, noise, moments is not None)
    rows = everyone(len(jax.tree.leaves(members)[0]))
    evaluator = make_evaluator(envs.resolve(env_id, "gymnasium"), setup, rows, seed, backend)
    try:
        assert backend in ("auto", evaluator.backend)
        return evaluator(members, moments, generation)
    finally:
        evaluator.close()


def on_the_line(backend: str, env: str = "Line-v0", actions=ACTIONS, **settings) -> Episodes:
    members = constant(policy_for(f"{MODULE}{env}"), np.asarray(actions))
    return evaluate(f"{MODULE}{env}", members, backend, **settings)


def assert_same(a: Episodes, b: Episodes, rows: slice = slice(None)) -> None:
    for name in ("returns", "behaviors", "lengths", "final_observations"):
        np.testing.assert_array_equal(getattr(a, name)[rows], getattr(b, name)[rows], name)


@pytest.mark.parametrize("backend", LINE_BACKENDS)
def test_everything_by_hand(backend: str) -> None:
    """Nothing after the end of an episode counts, whatever the environment does there."""
    found = on_the_line(backend, embedding=EVERYTHING)
    np.testing.assert_array_equal(found.lengths, LENGTHS)
    to_go, taken = np.zeros((2, 4, HORIZON))
    for row, (a, n) in enumerate(zip(ACTIONS[:, 0], LENGTHS, strict=True)):
        rewards = a * np.arange(1, n + 1)
        to_go[row, :n] = [rewards[t:].sum() for t in range(n)]
        taken[row, :n] = a
    np.testing.assert_allclose(found.returns, to_go[:, 0], rtol=1e-5)
    final = np.stack([ACTIONS[:, 0] * LENGTHS, LENGTHS], axis=1)
    np.testing.assert_allclose(found.final_observations, final, rtol=1e-5)
    # A function that ignores the mask sees the last observation until the horizon.
    steps = np.minimum(np.arange(1, HORIZON + 1), np.array(LENGTHS)[:, None])
    means = np.stack([(ACTIONS * steps).mean(axis=1), steps.mean(axis=1)], axis=1)
    expected = np.hstack([to_go, taken, final, means])
    np.testing.assert_allclose(found.behaviors, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.path, [[0.6 * t, t] for t in range(1, 5)], rtol=1e-5)


@pytest.mark.parametrize("env", ["jax_tasks:Walk", "gymnax/Pendulum-v1"])
def test_jax_environments_that_are_not_gymnasiums(env: str) -> None:
    """Found by their names, they run as compiled programs, and in Gymnasium's interface too."""
    if env.startswith("gymnax"):
        pytest.importorskip("gymnax")
    members = random_members(policy_for(env), 4)
    found, stepped = (evaluate(env, members, backend) for backend in ("auto", "gymnasium"))
    assert np.isfinite(found.returns).all()
    assert (found.lengths <= HORIZON).all()
    assert found.behaviors.shape == stepped.behaviors.shape
    assert (evaluate(env, members, "jax").returns == found.returns).all()


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
def test_the_horizon_ends_an_episode(backend: str) -> None:
    found = on_the_line(backend, horizon=3)
    np.testing.assert_array_equal(found.lengths, 3)
    np.testing.assert_allclose(found.returns, 6 * ACTIONS[:, 0], rtol=1e-5)
    assert len(found.path) == 3


@pytest.mark.parametrize("horizon", [3, 8])
def test_random_lengths_and_ends_of_both_kinds(horizon: int) -> None:
    """Observations are [steps, length]; odd lengths terminate, even ones are truncated."""
    members = random_members(policy_for(COUNTER), 30)
    settings = {"backend": "gymnasium", "horizon": horizon, "seed": 4}
    found = evaluate(COUNTER, members, **settings)
    steps, lengths = found.final_observations.T
    assert set(lengths) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(steps, np.minimum(lengths, horizon))
    np.testing.assert_array_equal(found.lengths, steps)
    np.testing.assert_array_equal(found.returns, steps)
    later = evaluate(COUNTER, members, **settings, generation=1)
    assert not np.array_equal(later.lengths, found.lengths)  # another generation, other starts


def test_discrete_actions_are_one_hot_in_embeddings() -> None:
    env = "wng/ProbeDiscreteContextual-v0"
    members = random_members(policy_for(env), 12, scale=3.0)
    found = evaluate(env, members, "gymnasium", "trajectory-actions", horizon=2)
    actions = found.behaviors.reshape(12, 2, 2)
    np.testing.assert_array_equal(actions[:, 0].sum(axis=1), 1)
    np.testing.assert_array_equal(actions[:, 1], 0)  # after the end
    chosen, seen = actions[:, 0].argmax(axis=1), found.final_observations[:, 0]
    np.testing.assert_array_equal(found.returns, (chosen == 1) == (seen > 0))
    assert 0 < found.returns.mean() < 1


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_what_is_not_finite_stays_with_its_member(backend: str, what: str) -> None:
    actions = [[0.6], [-0.4], [-0.2], [0.1]]  # at −1.2 after 3 and after 6 steps
    found = on_the_line(backend, f"Line-{what}-v0", actions, embedding=EVERYTHING)
    sound = on_the_line(backend, "Line-v0", actions, embedding=EVERYTHING)
    assert np.isnan(found.returns[[1, 2]]).all()
    assert_same(found, sound, slice(0, 4, 3))
    if what == "observation":  # nothing can follow from there
        np.testing.assert_array_equal(found.lengths, [4, 3, 6, 10])
        assert np.isnan(found.final_observations[[1, 2], 0]).all()


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
def test_a_start_that_is_not_finite(backend: str) -> None:
    found = on_the_line(backend, "Line-start-v0")
    assert np.isnan(found.returns).all()
    np.testing.assert_array_equal(found.lengths, 1)


def test_a_reward_beyond_float32_is_not_finite() -> None:
    found = on_the_line("gymnasium", "Line-huge-v0", [[0.6], [-0.4]])
    np.testing.assert_array_equal(np.isfinite(found.returns), [True, False])


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
def test_free_flight_on_point_wall_is_the_closed_form(backend: str) -> None:
    """Sideways or back, where no wall is; starts differ by up to 0.1 m."""
    task, steps = PointTask(), 20
    actions = np.array([[-0.9, 0.3], [0.0, -0.8], [-0.2, 0.0]])
    found = evaluate(POINT, constant(policy_for(POINT), actions), backend, horizon=steps)
    n, h = np.arange(1, steps + 1) * task.substeps, task.step_seconds / task.substeps
    gain = actions * task.force / task.mass
    places = gain[:, None] * (h**2 * n * (n + 1) / 2)[:, None]  # from the origin
    ends = np.hstack([places[:, -1], gain * n[-1] * h])
    spread = np.array([0.1, 0.1, 0, 0])
    assert (np.abs(found.final_observations - ends) <= spread + 1e-3).all()
    assert len({tuple(np.round(x, 4)) for x in found.final_observations - ends}) == 3
    returns = -np.hypot(places[..., 0] - 25, places[..., 1]).sum(axis=1)
    np.testing.assert_allclose(found.returns, returns, atol=0.15 * steps)
    np.testing.assert_allclose(found.path[:, :2], places[-1], atol=0.101)


def by_hand(env_id: str, policy: Policy, members, seed: int, generation: int, horizon: int):
    """Returns and last observations by Gymnasium itself and a policy in NumPy."""
    env = gymnasium.make(env_id)
    returns, finals = [], []
    for member in range(len(members[0]["bias"])):
        (first, last) = (jax.tree.map(lambda x, m=member: x[m], layer) for layer in members)
        observation, _ = env.reset(seed=episode_seed(seed, member, generation))
        total, over, steps = 0.0, False, 0
        while not over and steps < horizon:
            hidden = np.tanh(first["weight"] @ observation + first["bias"])
            action = np.tanh(last["weight"] @ hidden).astype(np.float32)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over, steps = total + reward, terminated or truncated, steps + 1
        returns.append(total)
        finals.append(observation)
    env.close()
    return np.array(returns), np.array(finals)


@pytest.mark.parametrize(
    ("env", "backends", "horizon"),
    [(POINT, ("gymnasium", "workers"), 15), (QUADRUPED, ("gymnasium", "mujoco"), 6)],
)
def test_the_evaluators_do_what_gymnasium_does(monkeypatch, env, backends, horizon) -> None:
    monkeypatch.setattr(workers, "available_cores", lambda: 1)
    policy = policy_for(env)
    members = random_members(policy, 3, scale=0.3)
    one, other = (
        evaluate(env, members, backend, "reward-to-go", horizon=horizon, seed=3, generation=2)
        for backend in backends
    )
    assert_same(one, other)
    np.testing.assert_array_equal(one.path, other.path)
    returns, finals = by_hand(env, policy, members, 3, 2, horizon)
    np.testing.assert_allclose(one.returns, returns, rtol=1e-4)
    np.testing.assert_allclose(one.final_observations, finals, rtol=2e-3, atol=2e-3)


def test_the_number_of_threads_changes_nothing(monkeypatch) -> None:
    members = random_members(policy_for(QUADRUPED), 5, scale=0.3)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("WNG_THREADS", threads)
        found.append(evaluate(QUADRUPED, members, "mujoco", "reward-to-go", horizon=5, noise=0.1))
    assert_same(*found)


def test_the_number_of_processes_changes_nothing(monkeypatch) -> None:
    settings = {"actions": np.linspace(-0.8, 0.8, 5)[:, None], "noise": 0.1}
    here = on_the_line("gymnasium", **settings)
    for processes in (1, 2):
        monkeypatch.setattr(workers, "available_cores", lambda n=processes: n)
        assert_same(on_the_line("workers", **settings), here)


@pytest.mark.parametrize(
    ("env", "backend"),
    [(f"{MODULE}Line-v0", "jax"), (COUNTER, "gymnasium"), (QUADRUPED, "mujoco")],
)
def test_a_member_does_not_depend_on_the_size_of_the_population(env: str, backend: str) -> None:
    settings = {"embedding": Embedding(mean_state), "noise": 0.1, "horizon": 7}
    policy = policy_for(env)
    few, many = (
        evaluate(env, random_members(policy, n, scale=0.3), backend, **settings) for n in (4, 9)
    )
    for name in ("returns", "behaviors", "lengths", "final_observations"):
        np.testing.assert_allclose(
            getattr(few, name)[:3], getattr(many, name)[:3], rtol=1e-5, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize(("backend", "number"), [("jax", 2001), ("gymnasium", 6)])
def test_noise_moves_all_but_the_last(backend: str, number: int) -> None:
    """x after 10 steps is a sum of 10 actions: variance 10 · 0.1²."""
    settings = {"actions": np.full((number, 1), -0.3), "noise": 0.1}
    noisy = on_the_line(backend, **settings)
    x = noisy.final_observations[:-1, 0]
    assert x.mean() == pytest.approx(-3, abs=5 * (0.1 / number) ** 0.5)
    assert x.std() == pytest.approx(0.1**0.5, rel=5 / (2 * number) ** 0.5)
    np.testing.assert_allclose(noisy.returns[-1], -0.3 * 55, rtol=1e-5)
    # Noise follows from seed, generation and member.
    assert len(set(x.tolist())) > 0.9 * len(x)
    assert_same(on_the_line(backend, **settings), noisy)
    for change in ({"seed": 1}, {"generation": 1}):
        other = on_the_line(backend, **settings, **change).final_observations[:-1, 0]
        assert (other == x).mean() < 0.1


def test_a_stepper_may_be_used_again_for_an_earlier_generation() -> None:
    policy = policy_for(COUNTER)
    members = random_members(policy, 4)
    setup = Setup(policy, EMBEDDINGS["final-state"], 8, action_noise=0.1)
    evaluator = make_evaluator(envs.resolve(COUNTER), setup, everyone(4), 0, "gymnasium")
    first = [evaluator(members, None, generation) for generation in (0, 3, 5)]
    again = [evaluator(members, None, generation) for generation in (5, 3, 0)]
    evaluator.close()
    for one, other in zip(first, again[::-1], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(("chunk", "actions"), [(3, ACTIONS), (4, ACTIONS), (4, ACTIONS[[0, 0]])])
def test_compiled_episodes_are_played_until_all_are_over(monkeypatch, chunk: int, actions) -> None:
    """In chunks, of which the last is not full, or is not needed."""
    whole = on_the_line("jax", actions=actions, embedding=EVERYTHING, noise=0.1)
    monkeypatch.setattr(evaluators, "CHUNK", chunk)
    evaluators.compiled_episodes.cache_clear()
    parts = on_the_line("jax", actions=actions, embedding=EVERYTHING, noise=0.1)
    evaluators.compiled_episodes.cache_clear()
    assert_same(parts, whole)
    np.testing.assert_array_equal(parts.path, whole.path)


@pytest.mark.parametrize("backend", LINE_BACKENDS)
def test_policies_see_normalized_observations(backend: str) -> None:
    """A policy tanh(w·(x − m)/s) by hand, clipped at the end; the moments are of what was seen."""
    env_id = f"{MODULE}Line-v0"
    policy = policy_for(env_id, hidden=())
    weights = np.array([[[0.3, -0.2]], [[-0.6, 0.4]], [[0.0, 0.0]]], np.float32)
    moments = Moments(jnp.array([0.5, 2.0]), jnp.array([4.0, 0.25]), jnp.array(7.0))
    found = evaluate(env_id, [{"weight": weights}], backend, policy=policy, moments=moments)
    for member, (w,) in enumerate(weights):
        x, path = np.zeros(2), []
        for t in range(HORIZON):
            seen = np.clip((x - [0.5, 2]) / [2, 0.5], -10, 10)
            x = np.array([x[0] + np.tanh(w @ seen), t + 1])
            path.append(x)
            if x[0] >= 2:
                break
        assert found.lengths[member] == len(path)
        np.testing.assert_allclose(found.final_observations[member], x, rtol=1e-5)
        np.testing.assert_allclose(found.means[member], np.mean(path, axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.variances[member], np.var(path, axis=0), rtol=1e-4)


@pytest.mark.parametrize(
    ("env", "backend"),
    [(POINT, "jax"), (QUADRUPED, "mujoco"), (f"{MODULE}Endless-v0", "workers")],
)
def test_the_fastest_backend_is_chosen(env: str, backend: str) -> None:
    setup = Setup(policy_for(env), EMBEDDINGS["final-state"], 2, action_noise=0.0)
    evaluator = make_evaluator(envs.resolve(env, "gymnasium"), setup, everyone(2), 0)
    assert evaluator.backend == backend
    evaluator.close()


def test_members_meet_the_same_in_envpool_whoever_else_is_there() -> None:
    pytest.importorskip("envpool")
    env, members = "CartPole-v1", random_members(policy_for("CartPole-v1"), 5)
    setup = Setup(policy_for(env), EMBEDDINGS["final-state"], 60, action_noise=0.0)

    def run(first: int, number: int, generation: int) -> Episodes:
        rows = Rows(first, number, center=4)
        evaluator = make_evaluator(envs.resolve(env, "gymnasium"), setup, rows, 0)
        assert evaluator.backend == "envpool"
        some = jax.tree.map(lambda x: x[first : first + number], members)
        evaluator(some, None, generation + 1)
        found = evaluator(some, None, generation)
        evaluator.close()
        return found

    whole, part = run(0, 5, generation=7), run(2, 3, generation=7)
    for name in ("returns", "behaviors", "lengths", "final_observations"):
        np.testing.assert_array_equal(getattr(whole, name)[2:], getattr(part, name), name)
    later = run(0, 5, generation=8)
    assert (whole.final_observations != later.final_observations).any(axis=1).all()
    np.testing.assert_array_equal(whole.returns, whole.lengths)
    assert len(set(whole.lengths)) > 2  # some fall before others


@pytest.mark.parametrize(
    ("env", "backend", "attribute"),
    [("CartPole-v1", "jax", "jax_env"), (POINT, "mujoco", "mujoco_task")],
)
def test_a_backend_that_cannot_be_is_one_sentence(env, backend, attribute) -> None:
    members = random_members(policy_for(env), 2)
    sentence = f"'{env}' cannot run on backend '{backend}': its environment has no attribute "
    with pytest.raises(ValueError, match=f"{sentence}'{attribute}'; use backend 'auto'"):
        evaluate(env, members, backend)


def test_the_length_of_a_behavior() -> None:
    point, discrete = policy_for(POINT), policy_for("wng/ProbeDiscreteAction-v0")
    sizes = {"final-state": (4, 1), "reward-to-go": (7, 7), "trajectory-actions": (14, 14)}
    for name, expected in sizes.items():
        found = tuple(behavior_size(Setup(p, EMBEDDINGS[name], 7, 0.1)) for p in (point, discrete))
        assert found == expected
    matrix = Embedding(lambda t: t.observations[:2])  # is made a vector
    assert behavior_size(Setup(point, matrix, 7, 0.1)) == 8


def test_policies_of_members_that_have_finished_no_longer_act(monkeypatch) -> None:
    """Of 70 members, 35 or 17 act once no others are left, with the same results bit for bit."""
    policy = policy_for("CartPole-v1")
    chosen = np.arange(70) % 30
    members = jax.tree.map(lambda x: x[chosen], random_members(policy, 30, scale=2.0))
    setup = Setup(policy, EMBEDDINGS["trajectory-actions"], 60, action_noise=0.1)

    def run() -> tuple[Episodes, list[int]]:
        evaluator = make_evaluator(envs.resolve("CartPole-v1"), setup, everyone(70), 0, "gymnasium")
        rows: list[int] = []
        act = evaluator._act

        def counted(moments, layers, observations, noise):
            rows.append(len(observations))
            return act(moments, layers, observations, noise)

        monkeypatch.setattr(evaluator, "_act", counted)
        found = evaluator(members, None, 0)
        evaluator.close()
        return found, rows

    found, rows = run()
    assert rows[0] == 70
    assert rows[-1] == 17
    assert set(rows) <= {70, 35, 17}
    assert rows == sorted(rows, reverse=True)
    for t, number in enumerate(rows):
        assert number >= min(17, (found.lengths > t).sum())
    monkeypatch.setattr(steppers, "halved", lambda width, going: width)
    whole, rows = run()
    assert set(rows) == {70}
    assert_same(found, whole)
