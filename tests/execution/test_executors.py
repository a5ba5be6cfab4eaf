"""A Ray cluster of two cores on this machine, beside this process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from placed import Counter, Faulty, Mortal

from wng.execution.ray import RayExecutor, make_executor
from wng.runs.executor import LocalExecutor, LostError


def test_what_is_closed_stays_closed(tmp_path: Path) -> None:
    """And Ray, imported by somebody else before, is kept to the loopback interface as well."""
    script = """
import ray, os, signal
before = dict(os.environ)
from wng.execution.ray import RayExecutor
executor = RayExecutor(cores=1)
assert ray.util.get_node_ip_address() == "127.0.0.1"
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
placed = executor.place(dict, [()])
executor.close()
executor.release(placed)
assert not ray.is_initialized()
assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'wng\[ray\]'"):
        make_executor("ray")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "ConnectionRefusedError"),
        ("127.0.0.1:nine", "ValueError"),
        ("nonsense", "Invalid address format"),
    ],
)
def test_a_cluster_that_is_not_there(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"no Ray cluster can be reached at {address} .*{reason}"):
        make_executor("ray", address)


def test_an_address_needs_the_executor() -> None:
    assert isinstance(make_executor("local"), LocalExecutor)
    with pytest.raises(ValueError, match="needs --executor ray: add it"):
        make_executor("local", "auto")


@pytest.fixture(scope="module")
def ray() -> Iterator[RayExecutor]:
    executor = RayExecutor(cores=2)
    yield executor
    executor.close()


def test_both_executors_do_the_same(ray: RayExecutor) -> None:
    assert ray.cores() == 2
    for executor in (LocalExecutor(), ray):
        counters = executor.place(Counter, [(10,), (20,)])
        assert executor.call(counters, "add", 3) == [13, 23]
        assert counters[1].add(4) == 27
        there = {pid for pid, _ in executor.call(counters, "where")}
        assert (len(there) == 2 and os.getpid() not in there) == executor.remote
        if executor.remote:
            assert counters[0].where()[1] == "1"  # thread: they share the machine
        executor.release(counters)


def test_one_that_is_lost(ray: RayExecutor, tmp_path: Path) -> None:
    both = ray.place(Mortal, [(str(tmp_path),)] * 2)
    assert ray.call(both, "survive", 0, "a") == ["a after 0 deaths"] * 2
    with pytest.raises(LostError, match="lost: memory may have run out, the simulator may have"):
        both[0].survive(1, "b")
    found = ray.call(both, "survive", 0, "c")  # the other is as it was
    assert isinstance(found[0], LostError)
    assert found[1] == "c after 0 deaths"
    ray.release(both)
    (again,) = ray.place(Mortal, [(str(tmp_path),)])
    assert again.survive(1, "b") == "b after 1 deaths"
    ray.release([again])


@pytest.mark.parametrize("fault", ["making", "working", "odd"])
def test_errors_come_back_as_they_are(ray: RayExecutor, fault: str) -> None:
    (faulty,) = ray.place(Faulty, [(fault,)])
    kind, message = {
        "making": (ValueError, "this cannot be made: make another."),
        "working": (RuntimeError, "environment 3 failed."),
        "odd": (RuntimeError, "OddError: odd at 3"),
    }[fault]
    with pytest.raises(kind) as found:
        faulty.work()
    assert str(found.value) == message
    assert type(found.value) is kind
    ray.release([faulty])


def test_cores_are_counted_at_once(ray: RayExecutor) -> None:
    """Ray itself says with a delay who has them."""
    both = ray.place(Counter, [(0,)] * 2)
    assert ray.cores() == 0
    with pytest.raises(LostError, match="has no free core for 1 workers: wait, or add"):
        ray.place(Counter, [(0,)])
    ray.release(both)
    assert ray.cores() == 2


def test_one_cluster_at_a_time(ray: RayExecutor) -> None:
    with pytest.raises(ValueError, match="already connected to a Ray cluster: close"):
        RayExecutor()


def test_nobody_else_can_reach_it(ray: RayExecutor) -> None:
    """All sockets that Ray's processes listen on are bound to the loopback interface."""
    ours = {pid for pid, command in _processes().items() if "ray" in command}
    inodes = {inode for pid in ours for inode in _sockets(pid)}
    assert inodes
    addresses = [address for inode, address in _listening() if inode in inodes]
    assert len(addresses) >= 3  # the store of the cluster's state, a raylet, workers
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert set(addresses) <= loopback


def _processes() -> dict[int, str]:
    """Command lines of our descendants."""
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            commands[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has just ended
            continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return {pid: commands[pid] for pid in commands if pid != os.getpid() and is_ours(pid)}


def _sockets(pid: int) -> list[str]:
    try:
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
    return [link[8:-1] for link in links if link.startswith("socket:[")]


def _listening() -> list[tuple[str, str]]:
    rows = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                rows.append((words[9], words[1].partition(":")[0]))
    return rows
