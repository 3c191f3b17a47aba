"""Operators that keep state: what they give, how they are measured, and what cannot change."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import read_all
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Reallocate, RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Job, Parallelism
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 4
START_S = 1_700_000_000
RECORDS = 600
KEYS = 7
SECONDS = 60
COUNTED = """
    group_by: ["k % 7 AS k"]
    aggregate: {n: "count(*)", total: "sum(v)", largest: "max(v)", last: "last(v)"}
"""
TUMBLING = """
    watermark: {eventTime: at, delayThreshold: 1 hour}
    group_by: [k]
    window: {timeColumn: at, windowDuration: 10 seconds}
    aggregate: {n: "count(*)"}
"""
SLIDING = """
    watermark: {eventTime: at, delayThreshold: 1 hour}
    group_by: [k]
    window: {timeColumn: at, windowDuration: 10 seconds, slideDuration: 4 seconds}
    aggregate: {n: "count(*)", ratio: "sum(v) / count(*)"}
"""
DISTINCT = """
    watermark: {eventTime: at, delayThreshold: 1 hour}
    deduplicate: [k, at]
"""


def job_with(name: str, state: str, source: str = "state-in") -> Job:
    """Reader → pass → state → sink."""
    return parse_job(f"""
name: {name}
dead_letter_topic: {name}-dead
trigger: {{realTime: 10 minutes}}
sources:
  - name: in
    options: {{subscribe: {source}, startingOffsets: earliest}}
    schema: {{v: BIGINT, k: INT, at: TIMESTAMP}}
    partitions: 2
operators:
  - {{name: pass, input: in, where: v >= 0, parallelism: {{initial: 1, max: 1}}}}
  - name: state
    input: pass
    parallelism: {PARTITIONS}
{state}
sinks:
  - {{name: out, input: state, key: k, options: {{topic: {name}-out}}}}
""")


def record(v: int) -> str:
    at = datetime.fromtimestamp(START_S + v % SECONDS, UTC).isoformat()
    return json.dumps({"v": v, "k": v % KEYS, "at": at})


@pytest.fixture(scope="module")
def engine(
    spark: SparkSession, broker: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkEngine]:
    folder: Path = tmp_path_factory.mktemp("state")
    engine = SparkEngine(spark, broker, folder, tasks=lambda: max_tasks(spark), slots=40)
    yield engine
    for name in list(engine.jobs()):
        engine.cancel(name)


def values(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    return [row.value for row in read_all(kafka, topic)]


def ids(kafka: Kafka, topic: str) -> list[str]:
    return [row.id for row in read_all(kafka, topic)]


def starts(second: int, duration: int, slide: int) -> Iterator[int]:
    """The starts of all windows that hold a second since the start."""
    at = START_S + second
    last = at - at % slide
    yield from (start for start in range(last, at - duration, -slide) if start + duration > at)


def stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def test_each_kind_of_state_gives_what_sql_gives(
    engine: SparkEngine, broker: Kafka, topics: Topics
) -> None:
    kinds = {"totals": COUNTED, "tumbling": TUMBLING, "sliding": SLIDING, "distinct": DISTINCT}
    jobs = {name: job_with(name, state) for name, state in kinds.items()}
    create_topics(broker, list(jobs.values()))
    records = range(RECORDS)
    # One is not JSON, one has no event time, and copies of some rows are far apart.
    topics.write("state-in", [record(v) for v in records] + ["{broken", '{"v": 1, "k": 3}'])
    for job in jobs.values():
        assert engine.submit(job, initial(job)).status is Status.DONE

    rows = {"totals": RECORDS + 1, "tumbling": RECORDS, "distinct": KEYS * SECONDS}
    rows["sliding"] = sum(len([*starts(v % SECONDS, 10, 4)]) for v in records)
    letters = {name: 1 if name == "totals" else 2 for name in jobs}
    until(lambda: all(topics.count(f"{name}-out") >= count for name, count in rows.items()))
    until(lambda: all(topics.count(f"{name}-dead") >= count for name, count in letters.items()))
    for name, expected in rows.items():
        assert topics.count(f"{name}-out") == expected
        written = ids(broker, f"{name}-out")
        assert len(set(written)) == len(written)
    reasons = {letter["reason"] for letter in values(broker, "tumbling-dead")}
    assert reasons == {
        "the value is not JSON of the source's schema",
        "the event time 'at' is null",
    }

    by_key = {k: [v for v in records if v % KEYS == k] for k in range(KEYS)}
    by_key[3].append(1)
    last = {
        row["k"]: row for row in values(broker, "totals-out") if row["n"] == len(by_key[row["k"]])
    }
    assert {k: (r["n"], r["total"], r["largest"]) for k, r in last.items()} == {
        k: (len(vs), sum(vs), max(vs)) for k, vs in by_key.items()
    }
    # One row for each record, and each with the count after it.
    assert Counter((row["k"], row["n"]) for row in values(broker, "totals-out")) == Counter(
        (k, n + 1) for k, vs in by_key.items() for n in range(len(vs))
    )
    for name, slide in (("tumbling", 10), ("sliding", 4)):
        expected_windows = Counter(
            (v % KEYS, stamp(start)) for v in records for start in starts(v % SECONDS, 10, slide)
        )
        largest: Counter[tuple[int, str]] = Counter()
        for row in values(broker, f"{name}-out"):
            key = (row["k"], row["window"]["start"])
            largest[key] = max(largest[key], row["n"])
        assert largest == expected_windows
    assert Counter((row["k"], row["at"]) for row in values(broker, "distinct-out")) == Counter(
        (k, stamp(START_S + second)) for k in range(KEYS) for second in range(SECONDS)
    )


def test_an_operator_with_state_is_measured_like_any_other(engine: SparkEngine) -> None:
    job = engine.jobs()["default/totals"].job
    assembler = Assembler()
    assembler.expect(job, initial(job))

    def measured() -> list[dict[str, float | None]]:
        for report in engine.reports():
            assembler.take(report)
        view = assembler.snapshot(engine.clock()).job(job.id)
        return [view.instance("state", i) for i in range(PARTITIONS)]

    # With the dead letter: it passes, too.
    until(lambda: sum(row["taken"] or 0.0 for row in measured()) == RECORDS + 2)
    for row in measured():
        # The task that Spark chose is the one that the sender counted it for.
        assert row["sent"] == row["taken"]
        # A dead letter is no write of the operator.
        assert (row["taken"] or 0.0) - (row["write_waits"] or 0.0) in {0.0, 1.0}
        assert (row["busy_s"] or 0.0) > 0 or not row["taken"]
    assert sum(bool(row["taken"]) for row in measured()) >= 2
    assert engine.capabilities().fixed["default/totals"] == ("state",)


def test_no_table_moves_state_and_what_it_holds_cannot_change(engine: SparkEngine) -> None:
    job = engine.jobs()["default/totals"].job
    change, state = job.operators
    wanted = [
        Allocation(job.id, 50, {"pass": 1, "state": 2}),
        Allocation(job.id, 50, {"pass": 1, "state": 4}, weights={"state": (1.0, 1.0, 1.0, 2.0)}),
    ]
    for allocation in wanted:
        outcome = engine.apply(Reallocate(allocation))
        assert (outcome.status, outcome.code) == (Status.REFUSED, "STATE_IS_FIXED")
    other_keys = replace(state, work=replace(state.work, group_by=("k",)))
    other_values = replace(state, work=replace(state.work, aggregate=(("n", "count(*)"),)))
    for changed in (other_keys, other_values):
        version = replace(job, operators=(change, changed))
        outcome = engine.apply(RestartJob(repr(changed), job.id, version))
        assert (outcome.status, outcome.code) == (Status.REFUSED, "NEEDS_NEW_CHECKPOINT")
        assert "state" in outcome.message
    # Other operators may change; the state goes on.
    wider = replace(change, parallelism=Parallelism(1, 1, 2))
    version = replace(job, operators=(wider, state))
    assert engine.apply(RestartJob("wider", job.id, version)).status is Status.DONE


def test_state_goes_on_after_a_restart_and_after_a_query_that_died(
    engine: SparkEngine, broker: Kafka, topics: Topics
) -> None:
    for name in ("tumbling", "sliding", "distinct"):
        engine.cancel(f"default/{name}")
    before = topics.count("totals-out")
    managed = engine.managed["default/totals"]
    assert managed.running is not None
    topics.write("state-in", [record(v) for v in range(RECORDS, RECORDS + 70)])
    until(lambda: topics.count("totals-out") >= before + 70)
    managed.running.query.stop()  # behind the engine's back: the open batch is replayed
    engine.reports()
    until(lambda: engine.reports() is not None and managed.running is not None)
    topics.write("state-in", [record(v) for v in range(RECORDS + 70, RECORDS + 140)])
    expect_counts(broker, RECORDS + 140)


def expect_counts(broker: Kafka, records: int) -> None:
    """Waits until each record has its row, and expects the right counts."""
    until(lambda: len(set(ids(broker, "totals-out"))) >= records + 1)
    expected = Counter(v % KEYS for v in range(records))
    expected[3] += 1
    last, largest = dict[int, int](), Counter[int]()
    for row in values(broker, "totals-out"):
        last[row["k"]] = row["n"]
        largest[row["k"]] = max(largest[row["k"]], row["n"])
    assert last == expected
    assert largest == expected


def test_a_watermark_lets_go_of_state_and_drops_what_is_late(
    engine: SparkEngine, broker: Kafka, topics: Topics
) -> None:
    job = job_with("late", TUMBLING.replace("1 hour", "0 seconds"), "late-in")
    create_topics(broker, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    running = engine.managed[job.id].running
    assert running is not None

    def end_batch() -> None:
        batch = engine.control.batch(job.id)
        assert engine.boundaries.end(job.id)
        until(lambda: engine.control.batch(job.id) != batch)

    topics.write("late-in", [record(v) for v in (0, 10, 40)])
    until(lambda: topics.count("late-out") == 3)
    # The watermark moves between batches, and lets go of state one batch later.
    end_batch()
    end_batch()
    topics.write("late-in", [record(v) for v in (5, 41)])
    until(lambda: topics.count("late-out") == 4)
    end_batch()
    starts_at = [row["window"]["start"] for row in values(broker, "late-out")]
    assert sorted(starts_at) == [stamp(START_S + second) for second in (0, 10, 40, 40)]

    def groups() -> int:
        progress = running.query.lastProgress
        assert progress is not None
        return int(progress.stateOperators[0].numRowsTotal)

    # The window from 40 seconds on, of two keys.
    until(lambda: groups() == 2)
    assert topics.count("late-dead") == 0
    engine.cancel(job.id)


def test_state_is_divided_anew_at_a_restart(
    engine: SparkEngine, broker: Kafka, topics: Topics
) -> None:
    job = engine.jobs()["default/totals"].job
    change, state = job.operators
    records = RECORDS + 140
    for tasks in (8, 3):
        divided = replace(state, parallelism=Parallelism(tasks, 1, tasks))
        version = replace(job, operators=(change, divided))
        outcome = engine.apply(RestartJob(f"divided by {tasks}", job.id, version))
        assert outcome.status is Status.DONE, outcome
        topics.write("state-in", [record(v) for v in range(records, records + 70)])
        records += 70
        expect_counts(broker, records)
        assert engine.jobs()[job.id].allocation.parallelism["state"] == tasks
