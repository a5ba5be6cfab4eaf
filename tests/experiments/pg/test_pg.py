from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fabricate import fabricate

from wng.experiments.comparison import compare
from wng.experiments.conditioning import report as conditioning_report
from wng.experiments.conditioning.spectrum import Spectrum
from wng.experiments.efficiency import report as efficiency
from wng.experiments.es import report as es_report
from wng.experiments.es import study as es
from wng.experiments.pg import report as pg_report
from wng.experiments.pg import study as pg
from wng.experiments.report import FAILS, HOLDS, PART, UNDECIDED
from wng.experiments.study import TUNING_SEED, Run, only, read_runs

TASKS = (pg.Task(pg.PENDULUM, 5, 1000), pg.Task(pg.HOPPER, 5, 1000))
SCALE = pg.GradientScale(TASKS, TASKS[:1], about="A test.")
LEVELS = {"pg": 10.0, "ppo": 20.0, "bgpg": 30.0, "wnpg": 40.0, "bgwnpg": 50.0}


def test_every_method_has_the_same_tuning_budget_and_tuning_seeds_are_never_evaluated(
    tmp_path: Path,
) -> None:
    for scale in pg.SCALES.values():
        candidates = pg.sweep(scale, scale.released)
        assert {key[1] for key in candidates} == set(pg.PAPER_METHODS)
        steps = {task.env: task.steps for task in scale.released}
        for (env, _), trials in candidates.items():
            # The budget of the evaluation: the fastest start need not be the best end.
            assert [trial.steps for trial in trials] == [steps[env]] * len(scale.rates)
        assert all(trial.seed >= TUNING_SEED for trials in candidates.values() for trial in trials)
        assert all(task.seeds < TUNING_SEED for task in (*scale.released, *scale.tuned))
    assert pg.SCALES["paper"].rates == (1e-5, 5e-5, 1e-4, 3e-4)  # the paper's appendix
    assert {task.env for task in pg.SCALES["paper"].released} == set(pg.TABLE)


def test_the_settings_of_every_scale_make_sense() -> None:
    for gradient in pg.SCALES.values():
        swept = [
            trial for trials in pg.sweep(gradient, gradient.released).values() for trial in trials
        ]
        for trial in (*swept, *pg.tuned(gradient, gradient.tuned)):
            assert trial.record["steps"] == trial.steps
    for evolution in es.SCALES.values():
        for trial in es.trials(evolution.tasks):
            assert trial.record["steps"] == trial.steps


@pytest.fixture
def plan(tmp_path: Path) -> pg.Plan:
    """The paper's order of methods, and everyone's best rate 1e-4."""
    candidates = pg.sweep(SCALE, TASKS)
    fabricate(
        [trial for trials in candidates.values() for trial in trials],
        tmp_path,
        lambda trial: -abs(np.log(trial.overrides["learning_rate"] / 1e-4)),
    )
    found = pg.run(SCALE, tmp_path, execute=False)
    assert found is not None
    fabricate(found.evaluation, tmp_path, lambda trial: LEVELS.get(trial.method, 60.0))
    return found


def test_the_evaluation_takes_the_best_rate(plan: pg.Plan) -> None:
    released = [trial for trial in plan.evaluation if trial.settings == "released"]
    assert len(released) == 2 * 5 * 5
    assert {trial.overrides["learning_rate"] for trial in released} == {1e-4}
    assert {trial.overrides["value_learning_rate"] for trial in released} == {1e-4}
    tuned = {trial.method for trial in plan.evaluation if trial.settings == "tuned"}
    assert tuned == {*pg.PAPER_METHODS, *pg.BEYOND}


def test_report_of_planted_runs(plan: pg.Plan, tmp_path: Path) -> None:
    runs, missing = read_runs(plan.evaluation, tmp_path)
    out = tmp_path / "out"
    claims = pg_report.write(SCALE, runs, plan, missing, tmp_path, "wng x", out)
    assert [claim.verdict for claim in claims] == [HOLDS] * 7 + [UNDECIDED]
    text = (out / "report.md").read_text()
    assert "| InvertedDoublePendulum-v5 | here | 5 | 10.00 ± 0.0" in text
    assert "**50.00 ± " in text  # BG-WNPG has the best mean
    assert "|  | paper | 5 | 3964.51 | 4401.24 | 6526.48 | 6740.96 | 7254.98 |" in text
    assert "| Hopper-v5 | PG | -2.3" in text  # of the sweep
    assert "- ReacherBulletEnv-v0, settings released: no method was run" in text
    assert "wng x" in text
    for name in ("curves_released", "curves_tuned", "aggregates_released", "aggregates_tuned"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 20_000
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert len((out / "data" / "final.csv").read_text().splitlines()) == 1 + len(runs)


def test_verdicts_follow_the_data() -> None:
    judge = partial(compare, "claim", "paper")
    rng = np.random.default_rng(0)
    worse, same, better = rng.normal(size=(3, 5)) + np.array([[-50.0], [0.0], [50.0]])
    near = same + rng.normal(size=5)
    ends = {"X-v0": {"A": better, "B": worse, "C": same, "D": near}}
    assert judge(ends, ["A"], ["B"]).verdict == HOLDS
    assert judge(ends, ["B"], ["A"]).verdict == FAILS
    assert judge(ends, ["C"], ["D"]).verdict == UNDECIDED
    assert judge(ends, ["A"], ["B", "C", "nobody"]).here.startswith("X-v0: A − C +")
    close = {"X-v0": {"A": 100 + rng.normal(size=5), "B": 101 + rng.normal(size=5)}}
    assert judge(close, ["A"], ["B"]).verdict != HOLDS
    assert judge(close, ["A"], ["B"], margin=0.05).verdict == HOLDS  # it matches
    assert judge(ends, ["A"], ["nobody"])[2:] == ("not run", UNDECIDED)


def test_normalized_by_the_papers_table(plan: pg.Plan, tmp_path: Path) -> None:
    run = plan.evaluation[0].read(tmp_path)
    assert run is not None
    low, high = pg.TABLE[pg.PENDULUM]["pg"], pg.TABLE[pg.PENDULUM]["bgwnpg"]
    assert pg.normalized(run) == pytest.approx((run.final - low) / (high - low))


def test_only_some_tasks() -> None:
    chosen = only(SCALE.released, [pg.HOPPER, "Ant-v5"])
    assert [task.env for task in chosen] == [pg.HOPPER, "Ant-v5"]
    assert chosen[1].steps == TASKS[0].steps


# Efficiency


def test_the_cost_of_a_run_by_hand(plan: pg.Plan, tmp_path: Path) -> None:
    trial = plan.evaluation[0]
    rows = {
        "steps": np.array([50.0, 100.0, 150.0, 1000.0]),
        "return": np.array([1.0, np.nan, 3.0, 5.0]),
        "episodes": np.array([2.0, 2.0, 3.0, 7.0]),
        "seconds": np.array([30.0, 6.0, 6.0, 6.0]),  # the first one compiles
        "seconds_env": np.array([3.0, 3.0, 3.0, 3.0]),
        "seconds_policy": np.array([1.5, 1.5, 1.5, 1.5]),
        "seconds_update": np.array([25.5, 1.5, 1.5, 1.5]),
        "seconds_cpu": np.array([6.0, 3.0, 3.0, 3.0]),
    }
    found = efficiency.cost(Run(trial, rows))
    assert found.minutes == pytest.approx(0.4)
    assert found.reward_per_minute == pytest.approx((2 * 1 + 1 * 3 + 4 * 5) / 0.4)
    assert found.gain_per_minute == pytest.approx((5 - 1) / 0.4)
    assert found.shares == pytest.approx({"environment": 0.5, "policy": 0.25, "update": 0.25})
    assert found.cpu == pytest.approx(0.5)
    assert efficiency.cost(Run(trial, rows), "cpu").minutes == pytest.approx(0.2)


def test_report_of_efficiency(plan: pg.Plan, tmp_path: Path) -> None:
    trials = es.trials((es.EvolutionTask(es.POINT, 3, 1000, ("tuned",)),))
    fabricate(trials, tmp_path, lambda trial: -2.0 if trial.method == "wnes" else -1.0)
    runs, missing = read_runs([*plan.evaluation, *trials], tmp_path)
    claims = efficiency.write(runs, missing, "wall", "wng x", tmp_path / "out")
    assert [claim.verdict for claim in claims] == [HOLDS, PART, FAILS]  # all take the same time
    assert "wng/PointWall-v0, tuned: excluded, rewards are negative" in claims[0].here
    text = (tmp_path / "out" / "report.md").read_text()
    assert "### wng/PointWall-v0, tuned" in text
    assert "| 50% | 25% | 25% | 0.90 |" in text
    assert "| 75% | 0% | 25% | 0.90 |" in text


# Evolution strategies


def es_run(past: list[float], returns: list[float] | None = None) -> Run:
    rows = {"steps": np.arange(1.0, len(past) + 1), "past_wall": np.array(past)}
    rows["return"] = np.array(returns if returns is not None else past)
    return Run(es.trials(es.SCALES["smoke"].tasks)[0], rows)


def test_steps_until_past_the_wall() -> None:
    assert es.steps_until_past(es_run([0.0, 1.0, 0.0, 1.0, 1.0])) == 4
    slip = [0.0] + [1.0] * 15 + [0.0] + [1.0] * 3
    assert es.steps_until_past(es_run(slip)) == 2  # one in twenty is forgiven
    assert es.steps_until_past(es_run([1.0, 1.0, 0.0])) == np.inf


def test_overcoming_the_wall_is_more_than_being_beyond_it() -> None:
    assert -850 < es.stuck_return(es.POINT) < -700  # straight ahead, into the cup
    good, bad = [-600.0] * 10, [-900.0] * 10
    assert es.overcomes_wall(es_run([0.0] * 8 + [1.0, 1.0], good))
    assert not es.overcomes_wall(es_run([1.0] * 8 + [0.0, 0.0], good))
    assert not es.overcomes_wall(es_run([1.0] * 10, bad))  # it has run away
    assert es.stuck_return(es.QUADRUPED) == -np.inf


def test_shares_of_seeds_by_fishers_exact_test() -> None:
    ten, none = np.ones(10), np.zeros(10)
    assert es_report.chance(ten, none) == pytest.approx(2 / 184756)  # of 20 choose 10
    assert es_report.chance(ten, ten) == 1


def test_report_of_evolution_strategies(tmp_path: Path) -> None:
    trials = es.trials((es.EvolutionTask(es.POINT, 3, 1000, ("released", "tuned")),))
    assert {trial.title for trial in trials} >= {
        "BGES β=0.5",
        "BGES β=0.75",
        "BGES",
        "NSR-ES",
        "ES-clip",
    }
    fabricate(trials[1:], tmp_path, lambda trial: float("wn" in trial.method) * 9)
    runs, missing = read_runs(trials, tmp_path)
    out = tmp_path / "out"
    claims = es_report.write(es.SCALES["short"], runs, missing, tmp_path, "wng x", out)
    better, few_seeds, same = [HOLDS] * 2, [UNDECIDED] * 2, [UNDECIDED]
    assert [claim.verdict for claim in claims] == 2 * [*better, *few_seeds, *same, HOLDS]
    text = (out / "report.md").read_text()
    assert "| WNES | 3/3 | 0k |" in text
    assert "| ES | 0/2 | – |" in text
    assert "- ES released wng/PointWall-v0: not run (seed 0)" in text
    assert (out / "report.html").read_text().count("data:image/png;base64,") == 6


# Conditioning


def test_report_of_conditioning(plan: pg.Plan, tmp_path: Path) -> None:
    runs, missing = read_runs(plan.evaluation, tmp_path)
    spectra = [
        Spectrum(env, "WNPG", seed, 1000, 512, 99, worst / np.arange(1, 21) ** power, 0.1)
        for env, power in ((pg.PENDULUM, 1), (pg.HOPPER, 2))
        for seed, worst in ((0, 1.0), (1, -3.0))
    ]
    claims = conditioning_report.write(spectra, runs, missing, "wng x", tmp_path / "out")
    assert [claim.verdict for claim in claims] == [UNDECIDED] * 2  # of two tasks
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| Hopper-v5 | 2 | 4 | (25) | (100) | (400) | 50% | 4.0 | +300% | +400% |" in text


def test_a_rank_correlation_over_enough_tasks_decides() -> None:
    rising = {f"T{k}": {"WNPG": float(k)} for k in range(6)}
    also = {f"T{k}": 2.0**k for k in range(6)}
    assert conditioning_report.claim(also, rising, "x").verdict == HOLDS
    assert conditioning_report.claim(also, rising, "x", ["T0"]).verdict == UNDECIDED  # noise
    falling = {f"T{k}": 2.0**-k for k in range(6)}
    assert conditioning_report.claim(falling, rising, "x").verdict == FAILS
    few = {f"T{k}": 2.0**k for k in range(4)}
    assert conditioning_report.claim(few, rising, "x").verdict == UNDECIDED
