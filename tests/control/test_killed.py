"""The daemon is killed with `kill -9` at every failpoint, and nothing
is lost and nothing done twice.

The host, with the jobs, goes on in the process of the test, as it does in reality.
"""

import multiprocessing
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import FakeCluster
from tests.control import daemon
from trilithon.control.failpoints import POINTS
from trilithon.control.journal import FILE, Journal
from trilithon.engines.host import Host
from trilithon.model.action import Reallocate, RestartJob

SEEDS = (0, 1, 2)
PATIENCE_S = 240.0
# A life comes to most places often, and to these only so many times.
TIMES = {
    "replace": 1,
    "cancel": 1,
    "recover": 1,
    "mode": 1,
    "request": 1,
    "gone": 1,
    "trim": 1,
    "wish": 2,
    "cost": 2,
    "adopt": 1,
}


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.ForkServerContext:
    """Processes that are forked from one which has everything
    imported: a start costs milliseconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.control.daemon"])
    return context


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[FakeCluster, Host]]:
    cluster = FakeCluster(slots=14, auto_s=10.0)
    cluster.rates = {"ads/a": 150.0, "ads/b": 60.0, "search/c": 250.0}
    host = Host(cluster, tmp_path / "host.sock")
    serving = threading.Thread(target=host.serve, daemon=True)
    serving.start()
    yield cluster, host
    host.close()
    serving.join(timeout=PATIENCE_S)


def test_there_are_enough_places_to_die_at() -> None:
    assert len(POINTS) >= 25
    assert len(set(POINTS)) == len(POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", POINTS)
def test_what_was_accepted_survives_and_nothing_is_done_twice(
    point: str,
    seed: int,
    tmp_path: Path,
    host: tuple[FakeCluster, Host],
    processes: multiprocessing.context.ForkServerContext,
) -> None:
    cluster, served = host
    where = (str(tmp_path), str(served.path))
    # Not always at the first time: by then the journal is nearly empty.
    nth = min(1 + seed, TIMES.get(point.split(".")[1], 3))
    life = processes.Process(target=daemon.live, args=(*where, cluster.now_s, seed, point, nth))
    life.start()
    life.join(timeout=PATIENCE_S)
    assert life.exitcode == -signal.SIGKILL, f"{point} was not reached"
    before = {
        name: (job, dict(cluster.checkpoints[name])) for name, job in cluster.jobs_by_name.items()
    }
    answer = processes.Queue()
    after = processes.Process(target=daemon.recover, args=(*where, cluster.now_s, answer))
    after.start()
    jobs = answer.get(timeout=PATIENCE_S)
    after.join(timeout=PATIENCE_S)
    assert after.exitcode == 0
    _nothing_accepted_is_lost(tmp_path, jobs, cluster)
    _nothing_is_done_twice(tmp_path, cluster)
    wanted = {name for name, (wish, _, _) in jobs.items() if wish == "run"}
    assert wanted == set(cluster.jobs())
    # The death of the daemon neither ended nor restarted a job that is wanted as it is.
    for name, (job, lives) in before.items():
        if name in wanted and cluster.jobs_by_name[name] == job:
            assert cluster.checkpoints[name] == lives
    assert all(settled for wish, _, settled in jobs.values() if wish == "run")
    for name in wanted:
        allocation = cluster.allocations[name]
        assert all(1 <= count <= 4 for count in allocation.parallelism.values())


def _nothing_accepted_is_lost(
    folder: Path, jobs: dict[str, tuple[str, str, bool]], cluster: FakeCluster
) -> None:
    path = folder / daemon.ACCEPTED
    lines = path.read_text().splitlines() if path.exists() else []
    state: dict[str, str] = {}
    for line in lines:
        what, name = line.split()
        if what == "request":
            _request_is_kept(folder, name)
            continue
        state[name] = {"apply": "run", "version": "run"}.get(what, what)
    for name, last in state.items():
        wish = jobs.get(daemon.job(name).id)
        if last == "delete":
            assert wish is None
            continue
        if f"version {name}" in lines:
            assert cluster.jobs_by_name[daemon.job(name).id].operators[0].work.where == "v >= 1"
        # What came after the last answer may have been written, too; it was not promised.
        assert wish is not None or "delete" in _next(name, lines)
        if wish is not None and last in {"pause", "advise"}:
            assert wish[1] == "advise"
        if wish is not None and last == "pause":
            assert wish[0] == "pause"


def _request_is_kept(folder: Path, name: str) -> None:
    journal = Journal(folder / FILE)
    try:
        assert [request.id for request in journal.open_requests()] == [name]
    finally:
        journal.close()


def _next(name: str, lines: list[str]) -> set[str]:
    """What the owner asked for and was not told yet."""
    done = {line.split()[0] for line in lines if line.split()[1] == name}
    return (
        {"delete"}
        if "pause" in {line.split()[0] for line in lines} and "delete" not in done
        else set()
    )


def _nothing_is_done_twice(folder: Path, cluster: FakeCluster) -> None:
    assert all(count == 1 for count in Counter(cluster.asked).values())
    # Another version of a job is wanted state, and written down as that.
    shots = [a for a in cluster.done if not isinstance(a, Reallocate | RestartJob)]
    journal = Journal(folder / FILE)
    try:
        rows = journal.database.all(
            "SELECT body, status, ended_s FROM action WHERE kind != 'reallocate'"
        )
        assert all(row["ended_s"] is not None for row in rows)
        statuses = {row["status"] for row in rows}
        assert statuses <= {"done", "unknown", "refused"}
        # No more was done than was written down before.
        assert len(shots) <= len(rows)
    finally:
        journal.close()
