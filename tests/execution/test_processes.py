import os
import signal
import time
from pathlib import Path

import deadly
import numpy as np
import pytest

from wng.agents.run import Job, Outcome, Status
from wng.execution.processes import KILLED, Worker, cores, progress_of, run_jobs
from wng.execution.ray import RayExecutor
from wng.policy_gradient.methods import preset
from wng.runs.directory import lock
from wng.runs.executor import RETRIES, LocalExecutor
from wng.runs.metrics import DETERMINISTIC, MetricsWriter, read_metrics

PROBE, DEADLY = "wng/ProbeContextual-v0", "deadly:Deadly-v0"
STEPS = 64 * 40
FINISHED, STOPPED = Outcome(Status.FINISHED), Status.STOPPED
TINY = preset(
    "pg", num_envs=2, rollout=64, minibatch=32, value_minibatch=32, hidden=(4,), backend="gymnasium"
)


def training(root: Path, steps: int, seed: int = 0, env: str = PROBE) -> Job:
    return Job(env, "pg", seed, steps, TINY, root)


def nobody(job: Job, outcome: Outcome | None) -> None:
    """Look at nothing."""


def owner(job: Job) -> int:
    """The process that has the run: its lock says."""
    return int((job.folder / "lock").read_text())


def test_each_has_its_own_outcome_and_log(tmp_path: Path) -> None:
    jobs = [
        training(tmp_path, 64),
        training(tmp_path, 64, env="Hoper-v5"),
        training(tmp_path, 64, seed=1),
        training(tmp_path, 64, seed=2),
    ]
    jobs[2].folder.mkdir(parents=True)
    seen = []
    with lock(jobs[2].folder):
        outcomes = run_jobs(jobs, lambda: False, lambda job, outcome: seen.append((job, outcome)))
    good, bad, taken, again = (outcomes[job.folder] for job in jobs)
    assert good == again == FINISHED
    assert bad.status is Status.FAILED
    assert bad.message.startswith("there is no environment 'Hoper-v5': did you mean 'Hopper-v5'")
    assert taken.status is Status.TAKEN
    assert taken.message == (
        f"{jobs[2].folder} is in use by process {os.getpid()}: wait for it to end, or stop it."
    )
    ended = {job.folder: outcome for job, outcome in seen if outcome is not None}
    assert ended == outcomes
    assert [progress_of(job.folder)[0] for job in jobs] == [64, 0, 0, 64]
    assert set(progress_of(jobs[0].folder)[1]) == {"return", "KL"}
    assert progress_of(jobs[1].folder) == (0, {})
    logs = [(job.folder / "log.txt").read_text() for job in jobs]
    assert [logs[0], logs[3]] == ["", ""]
    assert logs[1] == f"wng: {bad.message}\n"


def test_progress_shows_the_latest_evaluation(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        for k, evaluated in enumerate([np.nan, 4.0, 3.0, np.nan], start=1):
            row = {"iteration": k, "steps": 10 * k, "return_recent": 1.0, "kl": 0.5}
            writer.write(row | {DETERMINISTIC: evaluated})
            fields = progress_of(tmp_path)[1]
            assert list(fields) == ["return", "evaluated", "KL"]
            assert fields["evaluated"] == 3.0 if k > 2 else 4.0 if k == 2 else np.isnan(evaluated)


def test_an_error_of_another_kind_is_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise LookupError('no\\nluck')\n")
    job = training(tmp_path, 64, env="broken:Any-v0")
    where = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    (outcome,) = run_jobs([job], lambda: False, nobody, environment=where).values()
    assert outcome.status is Status.FAILED
    assert "no luck" in outcome.message
    assert "\n" not in outcome.message


def test_a_worker_takes_one_job_after_another(tmp_path: Path) -> None:
    """Also a run that is there already, which it continues or refuses as the job says."""
    worker = Worker(str(tmp_path), None, {})

    def outcome_of(job: Job) -> Outcome:
        worker.start(job)
        while (outcome := worker.outcome()) is None:
            time.sleep(0.05)
        return outcome

    try:
        job = training(Path("runs"), 64)  # relative to the worker's folder
        assert outcome_of(job) == FINISHED
        process = owner(training(tmp_path / "runs", 64))
        refused = outcome_of(job)
        assert refused.status is Status.FAILED
        assert "already holds a run: add --resume" in refused.message
        longer = Job(PROBE, "pg", 0, 128, TINY, Path("runs"), resume=True)
        assert outcome_of(longer) == FINISHED
        folder = tmp_path / longer.folder
        assert progress_of(folder)[0] == 128
        assert "Resuming at step 64." in (folder / "log.txt").read_text()
        assert int((folder / "lock").read_text()) == process != os.getpid()
    finally:
        worker.close()


def test_a_worker_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist on .*: keep runs on a disk that all"):
        Worker(str(tmp_path / "none"), None, {}).start(training(tmp_path, 64))


def test_a_worker_that_ends_with_its_job_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "leaver.py").write_text("import os\n\nos._exit(3)\n")  # as a simulator might
    leavers = [training(tmp_path, 64, seed, "leaver:Any-v0") for seed in cores()]
    others = [training(tmp_path, 64, seed) for seed in cores()]
    where = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    outcomes = run_jobs([*leavers, *others], lambda: False, nobody, environment=where)
    left = Outcome(Status.FAILED, "its process ended with exit code 3")
    expected = {job.folder: left for job in leavers} | {job.folder: FINISHED for job in others}
    assert outcomes == expected


def marked(mark: Path, victim: str = "self") -> dict[str, str]:
    """Variables for the environment of `deadly`."""
    path = f"{Path(deadly.__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    return {"PYTHONPATH": path, deadly.MARK: str(mark), deadly.VICTIM: victim}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    root = tmp_path_factory.mktemp("whole")
    (root / "mark").touch()
    whole = training(root, STEPS, env=DEADLY)
    outcomes = run_jobs([whole], lambda: False, nobody, environment=marked(root / "mark"))
    assert outcomes == {whole.folder: FINISHED}
    return read_metrics(whole.folder)


@pytest.mark.parametrize("where", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_run_whose_worker_is_killed_resumes(
    tmp_path: Path, undisturbed: dict[str, np.ndarray], where: str
) -> None:
    """On Ray the worker of the cluster is killed, and what it had started ends by itself."""
    mark = tmp_path / "mark"
    environment = marked(mark, "parent" if where == "ray" else "self")
    job = training(tmp_path, STEPS, env=DEADLY)
    executor = RayExecutor(cores=2) if where == "ray" else LocalExecutor()
    try:
        outcomes = run_jobs(
            [job], lambda: False, nobody, executor=executor, environment=environment
        )
    finally:
        executor.close()
    assert outcomes == {job.folder: FINISHED}
    assert int(mark.read_text()) != os.getpid()
    disturbed = read_metrics(job.folder)
    np.testing.assert_array_equal(disturbed["iteration"], np.arange(1, 41))
    for name in ("steps", "return", "kl"):
        np.testing.assert_array_equal(disturbed[name], undisturbed[name], name)


@pytest.mark.slow
def test_a_run_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    deadly, last = training(tmp_path, 10**9), training(tmp_path, 64, 99)
    killed = []

    def kill(job: Job, outcome: Outcome | None) -> None:
        if job.folder == deadly.folder and outcome is None and owner_lives(job):
            killed.append(owner(job))
            os.kill(killed[-1], signal.SIGKILL)

    def owner_lives(job: Job) -> bool:
        held = job.folder / "lock"
        return held.exists() and bool(held.read_text()) and owner(job) not in killed

    outcomes = run_jobs([deadly, last], lambda: False, kill, pinned=True)
    assert outcomes == {deadly.folder: KILLED, last.folder: FINISHED}
    assert Outcome(Status.DIED, "killed by SIGKILL") == KILLED
    assert len(killed) == RETRIES + 1  # as it is killed before it gets anywhere
    assert progress_of(last.folder)[0] == 64


@pytest.mark.slow  # tests/cli has the same with `wng train --seeds`
def test_told_to_stop_they_save_and_no_more_start(tmp_path: Path) -> None:
    jobs = [training(tmp_path, 10**9, seed) for seed in range(len(cores()) + 1)]
    outcomes = run_jobs(jobs, lambda: progress_of(jobs[0].folder)[0] > 0, nobody)
    assert {outcome.status for outcome in outcomes.values()} == {STOPPED}
    assert jobs[-1].folder not in outcomes
    assert list((jobs[0].folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_on_ray_they_are_stopped_as_well(tmp_path: Path) -> None:
    jobs = [training(tmp_path, 10**9, seed) for seed in range(2)]
    executor = RayExecutor(cores=1)
    try:
        outcomes = run_jobs(
            jobs, lambda: progress_of(jobs[0].folder)[0] > 0, nobody, executor=executor
        )
    finally:
        executor.close()
    assert list(outcomes) == [jobs[0].folder]
    assert outcomes[jobs[0].folder].status is STOPPED
    assert list((jobs[0].folder / "checkpoints").iterdir())
