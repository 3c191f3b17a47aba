"""The journal: on the disk when it is committed, migrated by number, and
never longer than its age limit.
"""

import json
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from tests.cluster import FakeCluster, chain
from tests.control.scene import World, rules
from tests.strategies import jobs
from trilithon.control.compact import CompactSeries
from trilithon.control.encoding import request_from_json, request_to_json, text
from trilithon.control.explain import explain_one
from trilithon.control.journal import FILE, Journal
from trilithon.control.journal.database import Database, migrations
from trilithon.control.state import load
from trilithon.errors import JournalUnusable
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.recording.snapshots import job_from_json, job_to_json

JOB = chain()


def test_the_journal_is_written_ahead_and_synced_in_full(tmp_path: Path) -> None:
    database = Database(tmp_path / FILE)
    assert database.all("PRAGMA journal_mode")[0][0] == "wal"
    assert database.all("PRAGMA synchronous")[0][0] == 2
    assert database.all("PRAGMA user_version")[0][0] == max(migrations())
    database.close()


def test_a_journal_without_a_path_is_as_complete_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal(None)
    assert journal.database.all("PRAGMA user_version")[0][0] == max(migrations())
    journal.adopt(JOB, 1, initial(JOB), Mode.AUTO, 0.0)
    assert load(journal, 0.0).jobs[JOB.id].job == JOB
    journal.close()
    assert not list(tmp_path.iterdir())


def test_the_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert sorted(migrations()) == list(range(1, len(migrations()) + 1))


def test_a_journal_is_brought_to_the_newest_version_step_by_step(tmp_path: Path) -> None:
    first = {1: "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (7);"}
    Database(tmp_path / "j", first).close()
    both = {**first, 2: "ALTER TABLE a ADD COLUMN y TEXT; UPDATE a SET y = 'new';"}
    database = Database(tmp_path / "j", both)
    assert [tuple(row) for row in database.all("SELECT * FROM a")] == [(7, "new")]
    database.close()
    again = Database(tmp_path / "j", both)
    assert again.all("PRAGMA user_version")[0][0] == 2
    again.close()


def test_requests_of_an_older_journal_name_no_machines(tmp_path: Path) -> None:
    """Version 4 had the number of machines only."""
    old = {number: step for number, step in migrations().items() if number <= 4}
    database = Database(tmp_path / FILE, old)
    with database.transaction("request") as db:
        db.insert("request", id="scale-in-1", kind="scale_in", machines=2, asked_s=5.0)
    database.close()
    journal = Journal(tmp_path / FILE)
    (request,) = journal.open_requests()
    assert request == ScalingRequest("scale-in-1", ScalingKind.IN, 2, None, 5.0)
    assert request.machine_names == ()
    journal.close()


@pytest.mark.parametrize("names", [(), ("host/1", "hôte,2")])
def test_a_request_comes_back_from_the_journal_and_a_recording_as_it_was(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    request = ScalingRequest("scale-in-1", ScalingKind.IN, 2, None, 5.0, names)
    journal = Journal(tmp_path / FILE)
    journal.request(request)
    journal.close()
    journal = Journal(tmp_path / FILE)
    assert load(journal, 0.0).requests == [request]
    assert [row.request for row in journal.requests(10)] == [request]
    journal.close()
    data = json.loads(text(request_to_json(request)))
    assert request_from_json(data) == request
    del data["machine_names"]
    assert request_from_json(data) == replace(request, machine_names=())


def test_a_step_that_fails_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    first = {1: "CREATE TABLE a (x INTEGER) STRICT;"}
    Database(tmp_path / "j", first).close()
    with pytest.raises(JournalUnusable):
        Database(tmp_path / "j", {**first, 2: "CREATE TABLE b (x INTEGER) STRICT; SELECT nothing;"})
    database = Database(tmp_path / "j", first)
    assert database.all("PRAGMA user_version")[0][0] == 1
    assert database.all("SELECT name FROM sqlite_master WHERE name = 'b'") == []
    database.close()


def test_a_journal_of_a_newer_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    Database(tmp_path / "j", {1: "SELECT 1;", 2: "SELECT 1;"}).close()
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(JournalUnusable, match="version 2"):
        Database(tmp_path / "j", {1: "SELECT 1;"})
    assert (tmp_path / "j").read_bytes() == before


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(
        "This is a letter, and long enough to be mistaken for a page." * 100
    )
    with pytest.raises(JournalUnusable, match="cannot be used"):
        Database(tmp_path / "j")


def test_what_fails_inside_a_transaction_is_not_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE)

    def write() -> None:
        with journal.database.transaction("wish") as database:
            database.insert("event", time_s=1.0, kind="a", text="first")
            database.insert("cost", job="no/body", ability="weights", gap_s=1.0, times=1)

    with pytest.raises(sqlite3.IntegrityError):
        write()
    assert journal.events() == ()
    journal.close()


def test_what_is_older_than_its_age_limit_is_forgotten_and_what_is_in_force_is_not(
    tmp_path: Path,
) -> None:
    world = World(
        tmp_path, FakeCluster(), rules(keep_series_s=300, keep_history_s=600, series_every_s=20)
    )
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(40)
    wanted = world.controller.state.jobs[JOB.id].wanted
    world.rounds(160)
    now_s = world.cluster.now_s
    for table, column, limit_s in (
        ("series", "time_s", 300),
        ("decision", "last_s", 600),
        ("event", "time_s", 600),
        ("action", "ended_s", 600),
    ):
        [(oldest,)] = world.rows(f"SELECT min({column}) FROM {table}")  # noqa: S608
        # What is due is forgotten every ten minutes.
        assert oldest is None or oldest >= now_s - limit_s - 600
    world.start()
    held = world.controller.state.jobs[JOB.id]
    assert held.wanted.generation >= wanted.generation
    assert held.wanted == world.cluster.allocations[JOB.id]


def test_the_compact_series_gives_back_what_was_measured(tmp_path: Path) -> None:
    world = World(tmp_path, FakeCluster(), rules(series_every_s=20))
    other = chain("other", "search", operators=3)
    world.commands.apply(JOB)
    world.commands.apply(other)
    world.cluster.rates = {JOB.id: 20.0, other.id: 40.0}
    world.rounds(12)
    assert world.journal is not None
    points = list(CompactSeries(world.journal).read(other.id))
    assert len(points) >= 4
    last = points[-1]
    assert last.numbers["throughput"] == pytest.approx(40.0, rel=1e-3)
    assert set(last.operators) == {"o0", "o1", "o2"}
    assert last.operators["o1"]["capacity"] == pytest.approx(0.4, rel=1e-3)
    assert last.operators["o1"]["parallelism"] == 1
    assert list(CompactSeries(world.journal).read("no/body")) == []


def test_the_shape_of_the_series_is_written_only_when_it_changes(tmp_path: Path) -> None:
    world = World(tmp_path, FakeCluster(), rules(series_every_s=10))
    world.commands.apply(JOB)
    world.rounds(20)
    assert world.rows("SELECT count(*) FROM layout") == [(1,)]
    world.commands.apply(chain("other"))
    world.rounds(5)
    assert world.rows("SELECT count(*) FROM layout") == [(2,)]


@given(jobs())
def test_a_job_comes_back_from_the_journal_as_it_was(job: Job) -> None:
    """To the order of its columns: a daemon that took over found
    another one and restarted the job.
    """
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        journal.adopt(job, 1, initial(job), Mode.AUTO, 1.0)
        assert load(journal, 0.0).jobs[job.id].job == job_from_json(job_to_json(job))
        journal.close()


def test_the_series_goes_on_after_all_of_it_has_become_too_old(tmp_path: Path) -> None:
    world = World(tmp_path, rules=rules(keep_series_s=600.0))
    world.commands.apply(chain())
    world.rounds(20)
    world.cluster.advance(5000.0)
    world.rounds(3)
    assert world.journal is not None
    world.journal.trim(world.cluster.now_s + 1, 0.0)
    assert world.rows("SELECT count(*) FROM series") == [(0,)]
    world.rounds(20)
    assert world.rows("SELECT count(*) FROM series")[0][0] > 0


def test_a_quiet_cluster_leaves_the_journal_alone(tmp_path: Path) -> None:
    """A round in which nothing happens writes nothing, but for once a minute."""
    world = World(tmp_path, FakeCluster())
    world.commands.apply(chain(p95_ms=None))
    world.rounds(5)
    assert world.journal is not None
    written: list[str] = []
    transaction = world.journal.database.transaction

    def counted(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
        written.append(name)
        return transaction(name)

    world.journal.database.transaction = counted  # type: ignore[method-assign]
    world.rounds(30)
    assert len(written) <= 12
    assert set(written) <= {"round", "series", "trim"}


def test_what_version_0_1_wrote_is_explained_and_told_to_policies(tmp_path: Path) -> None:
    """Its rows have actions instead of changes, and expectations without a direction."""
    path = tmp_path / "journal.sqlite"
    old = Database(path, {1: migrations()[1]})
    allocation = {"job": "t/j", "generation": 2, "parallelism": {"a": 4}}
    allocation |= {"weights": {}, "placement": {}, "batching_ms": {}}
    action = json.dumps({"do": "reallocate", "allocation": allocation})
    expects = json.dumps({"metric": "latency.p95", "value": 100.0, "by_s": 60.0})
    clip = {"code": "STEP", "operator": "a", "asked": 8, "granted": 4}
    with old.transaction("round"):
        old.insert(
            "decision",
            id="1:t/j",
            round=1,
            time_s=10.0,
            last_s=10.0,
            job="t/j",
            policy="threshold",
            reason="LATENCY_MISSED",
            sentence="It is missed.",
            numbers="{}",
            causes="[]",
            expects=expects,
            asked=f"[{action}]",
            granted=f"[{action}]",
            clips=json.dumps([clip]),
        )
        old.insert(
            "action",
            id="1:t/j#0",
            decision="1:t/j",
            job="t/j",
            kind="reallocate",
            body=action,
            wanted_s=10.0,
            started_s=10.0,
            ended_s=11.0,
            status="done",
            code="",
            message="",
        )
    old.close()
    journal = Journal(path)
    [row] = journal.decisions()
    said = " ".join(explain_one(row, journal.actions(row.id))["sentences"])
    assert "a ×4" in said
    assert "asked 8, granted 4" in said
    assert "It expected latency.p95 of at most 100" in said
    [(feedback, _)] = journal.feedback(0)
    assert feedback.applied
    assert [clip.code for clip in feedback.clips] == ["STEP"]
    journal.close()
