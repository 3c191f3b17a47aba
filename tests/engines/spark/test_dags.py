"""A job that fans out and merges runs as several queries: nothing is lost, nothing is doubled, and
a part is rescaled, restarted and replaced while the others run.
"""

import json
import time
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.diamond import Scene, diamond, topics_of
from tests.engines.spark.flow import read_all
from tests.engines.spark.sink_latency import SinkLatency
from trilithon.contract.engine import Reallocate, RestartJob, Status
from trilithon.engines.spark import cut_records
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.cut_lags import BOUND_RECORDS
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def engine(spark_engine: SparkEngine) -> SparkEngine:
    return spark_engine


def test_every_record_of_a_diamond_comes_out_once_on_each_side_and_is_counted(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("dia"))
    assert set(engine.jobs()) == {scene.job.id}
    assert engine.jobs()[scene.job.id].health == "running"
    assert len(scene.incarnations()) == 4
    # Readers and operators: 2 + 2, 2 + 2, 2 + 2 and, of both branches, 2 + 2 + 2.
    assert sum(entry.tasks for entry in engine.ledger.entries.values()) == 18
    assert sum(entry.slots for entry in engine.ledger.entries.values()) == scene.job.instances
    scene.send(500)
    scene.await_all()

    cuts = (("split", "left"), ("split", "right"), ("left", "merge"))

    def settled() -> bool:
        snapshot = scene.snapshot()
        view, sent = snapshot.job(scene.job.id), scene.sent
        return (
            float(snapshot.sinks.written.sum()) == 3 * sent
            and list(snapshot.sources.taken) == list(snapshot.sources.arrived) == [sent]
            and all(view.edge(*cut)["transfers"] == sent for cut in cuts)
        )

    until(settled)
    snapshot, sent = scene.snapshot(), scene.sent
    view = snapshot.job(scene.job.id)
    assert scene.rows() == dict.fromkeys(scene.expected(), 1)
    assert topics.count("dia-lefts") == sent
    sinks, written = snapshot.layout.sink_row, snapshot.sinks.written
    assert written[sinks[scene.job.id, "out"]] == 2 * sent
    assert written[sinks[scene.job.id, "lefts"]] == sent  # only what belongs to it
    assert list(snapshot.sources.taken) == list(snapshot.sources.arrived) == [sent]
    for cut in cuts:
        edge = view.edge(*cut)
        assert edge["emitted"] == edge["taken"] == edge["transfers"] == sent
        assert (edge["channel_s"] or 0) > 0
        assert edge["idle_transport_s"] is not None
    taken = {
        name: sum(view.instance(name, i)["taken"] or 0 for i in range(count))
        for name, count in initial(scene.job).parallelism.items()
    }
    assert taken == {"split": sent, "left": sent, "right": sent, "merge": 2 * sent}
    # A timestamp keeps its microseconds through two cuts: the engine's default JSON drops them.
    names = scene.engine.dags.accepted[scene.job.id].planned.topics
    edges = engine.jobs()[scene.job.id].edge_topics
    assert set(edges) == {"split->left", "split->right", "left->merge", "right->merge"}
    assert set(edges.values()) == names
    values = [json.loads(row.value)["at"] for name in names for row in topics.read(name)]
    assert set(values) == {"2026-01-01T00:00:00.123456Z"}


def test_the_latency_at_a_sink_behind_two_cuts_is_what_the_times_of_the_records_say(
    engine: SparkEngine, spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("timed-graph"))
    with scene.under_load(200.0) as flow:
        until(lambda: scene.polled() and flow.arrived > 3000)  # the JVM warms up
        sink = (scene.job.id, "out")
        latency = SinkLatency(spark, broker, flow, scene.snapshot, sink, "timed-graph-in")
        # What is reported is up to a second older than the span: one calm span of eight must do.
        assert any(latency.agrees() for _ in range(8)), latency.compared
        sides = Counter(one.value["side"] for one in list(flow.got))
        assert sides.keys() == {"left", "right"}


def test_what_a_part_writes_again_after_a_restart_does_not_come_out_twice(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("rewritten"))
    scene.send(300)
    scene.await_all()
    names = scene.engine.dags.accepted[scene.job.id].planned.topics
    before = {name: topics.count(name) for name in names}
    assert set(before.values()) == {300}
    for part in ("split", "left"):
        managed = engine.managed[f"{scene.job.id}~{part}"]
        assert managed.running is not None
        managed.running.query.stop()  # in the middle of a batch, behind the engine's back
    scene.send(100)
    scene.await_running()
    until(lambda: scene.polled() and engine.jobs()[scene.job.id].health == "running")
    scene.await_all()
    written = sum(topics.count(name) for name in names)
    assert written > 4 * 400  # some were written again ...
    time.sleep(1)
    assert scene.rows() == dict.fromkeys(scene.expected(), 1)  # ... and left out behind the cut


def test_one_part_is_rescaled_while_the_others_run(engine: SparkEngine, topics: Topics) -> None:
    scene = Scene(engine, topics, diamond("scaled"))
    before = scene.incarnations()
    wanted = initial(scene.job).rescaled({"merge": 2}).next_generation()
    assert engine.apply(Reallocate(wanted)).status is Status.DONE
    assert engine.apply(Reallocate(wanted)).status is Status.UNCHANGED
    assert engine.jobs()[scene.job.id].allocation == wanted
    scene.assembler.expect(scene.job, wanted)
    scene.send(200)
    scene.await_all()

    def both() -> bool:
        view = scene.snapshot().job(scene.job.id)
        return sum(view.instance("merge", i)["taken"] or 0 for i in (0, 1)) == 2 * scene.sent

    until(both)
    view = scene.snapshot().job(scene.job.id)
    assert all(view.instance("merge", i)["taken"] for i in (0, 1))
    assert scene.incarnations() == before
    too_many = wanted.rescaled({"left": 2, "split": 2}).next_generation()
    engine.ledger.slots = wanted.instances + 1
    refused = engine.apply(Reallocate(too_many))
    assert (refused.status, refused.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert engine.jobs()[scene.job.id].allocation == wanted


def test_a_new_version_restarts_the_parts_that_it_changes(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("versions"))
    scene.send(100)
    scene.await_all()
    before = scene.incarnations()
    version = diamond("versions", merge='[n, side, "1 AS v"]')
    outcome = engine.apply(RestartJob("v2", version.id, version))
    assert (outcome.status, outcome.message) == (Status.DONE, "")
    after = scene.incarnations()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {f"{version.id}~merge"}
    assert engine.jobs()[version.id].job == version
    scene.send(100)
    scene.await_all()
    assert scene.rows() == dict.fromkeys(scene.expected(), 1)
    assert engine.apply(RestartJob("v2", version.id, version)).status is Status.UNCHANGED


def test_a_version_with_other_columns_in_a_cut_empties_it_first(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("linked"))
    scene.send(100)
    job = scene.job
    wider = tuple(
        replace(o, work=replace(o.work, select=("n", "at", f"'{o.name}' AS side", "n + 1 AS m")))
        if o.name in ("left", "right")
        else o
        for o in job.operators
    )
    version = replace(job, operators=wider)
    old_topics = engine.dags.accepted[job.id].planned.topics
    outcome = engine.apply(RestartJob("wider", job.id, version))
    assert (outcome.status, outcome.message) == (Status.DONE, "")
    scene.send(100)
    scene.await_all()
    assert scene.rows() == dict.fromkeys(scene.expected(), 1)
    new_topics = engine.dags.accepted[job.id].planned.topics
    assert len(new_topics) == len(old_topics)
    assert len(new_topics & old_topics) == 2  # from split to its readers nothing changed
    until(lambda: not (set(topics_of(topics, engine, job)) - new_topics))


def test_a_part_that_is_down_holds_the_source_back_and_loses_nothing(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("held"))
    scene.send(10)
    scene.await_all()
    down = engine.managed[f"{scene.job.id}~right"]
    with down.lock:  # nobody restarts it
        assert down.running is not None
        down.running.query.stop()
        count = 0
        deadline = time.monotonic() + 240
        view = scene.snapshot().job(scene.job.id)
        while not (view.edge("split", "right")["parked_s"] or 0) > 2:
            assert time.monotonic() < deadline, "the source is not held back"
            scene.send(BOUND_RECORDS)
            count += BOUND_RECORDS
            time.sleep(1)
            view = scene.snapshot().job(scene.job.id)
        assert (view.lag("in") or 0) > 0  # the backlog is in the source's topic
        waiting = [view.instance("right", i) for i in range(1)]
        queue = sum((row["sent"] or 0) - (row["taken"] or 0) for row in waiting)
        assert queue >= BOUND_RECORDS  # and what waits in the cut is the operator's queue
    scene.await_running()
    scene.await_all()
    assert scene.rows() == dict.fromkeys(scene.expected(), 1)


def test_another_host_goes_on_where_the_last_one_stopped_in_the_middle_of_a_batch(
    engine: SparkEngine, spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("host"))
    scene.send(200)
    scene.await_all()
    scene.send(200)
    engine.close()  # all queries at once, without a commit
    names = topics_of(topics, engine, scene.job)
    scene.engine = SparkEngine(
        spark, broker, engine.folder, tasks=lambda: max_tasks(spark), slots=20
    )
    try:
        outcome = scene.engine.submit(scene.job, initial(scene.job))
        assert outcome.status is Status.DONE, outcome.message
        assert sorted(topics_of(topics, scene.engine, scene.job)) == sorted(names)
        scene.send(100)

        def complete() -> bool:
            scene.snapshot()
            return scene.rows().keys() == scene.expected()

        until(complete)
        # Everything was replayed. Behind each cut it was left out; what merge itself had written
        # before it was stopped comes out twice, at most.
        assert sum(topics.count(name) for name in names) > 4 * scene.sent
        assert max(scene.rows().values()) <= 2
    finally:
        scene.engine.cancel(scene.job.id)


def test_a_job_leaves_no_topic_and_no_checkpoint_behind(
    engine: SparkEngine, topics: Topics
) -> None:
    scene = Scene(engine, topics, diamond("gone"))
    job = scene.job
    assert len(topics_of(topics, engine, job)) == 4
    assert engine.cancel(job.id, keep=True).status is Status.DONE
    assert len(topics_of(topics, engine, job)) == 4
    scene.send(20)
    assert engine.submit(job, initial(job)).status is Status.DONE
    scene.await_all()
    assert engine.cancel(job.id).status is Status.DONE
    until(lambda: topics_of(topics, engine, job) == [])
    assert not list((engine.folder / "checkpoints").rglob("offsets"))
    assert not engine.ledger.entries


def test_a_job_that_does_not_fit_starts_no_part(engine: SparkEngine, topics: Topics) -> None:
    job = diamond("too-large")
    create_topics(engine.kafka, [job])
    engine.ledger.slots = 3
    outcome = engine.submit(job, initial(job))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert not engine.managed
    assert not engine.ledger.entries
    until(lambda: topics_of(topics, engine, job) == [])


def test_branches_with_different_types_are_refused_before_anything_is_created(
    engine: SparkEngine, topics: Topics
) -> None:
    job = diamond("types")
    create_topics(engine.kafka, [job])
    left = next(o for o in job.operators if o.name == "left")
    typed = replace(left, work=replace(left.work, select=("n", "at", "7 AS side")))
    mixed = replace(job, operators=tuple(typed if o is left else o for o in job.operators))
    outcome = engine.submit(mixed, initial(mixed))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "COLUMNS_DIFFER")
    assert "side int" in outcome.message
    assert topics_of(topics, engine, job) == []


def test_every_type_passes_a_cut_unchanged(spark: SparkSession) -> None:
    frame = spark.sql("""
        SELECT 'ü "x"' AS s, 1Y AS tiny, 9223372036854775807 AS big, 0.1D AS d,
            CAST('NaN' AS DOUBLE) AS nan, CAST('Infinity' AS FLOAT) AS inf, 1.10BD AS money,
            true AS b, DATE'2026-02-03' AS day, X'00FF' AS bytes,
            TIMESTAMP'2026-02-03 04:05:06.123456Z' AS at,
            TIMESTAMP_NTZ'2026-02-03 04:05:06.123456' AS local,
            array(1, NULL) AS list, map('k', 1L) AS named,
            named_struct('a b', 1, 'c', array(named_struct('d', 2.5D))) AS nested,
            CAST(NULL AS STRING) AS missing
    """)
    columns = cut_records.sql_types(frame.schema.fields)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    written = frame.select(F.to_json(F.struct("*"), dict(cut_records.JSON)).alias("v"))
    options = {"mode": "FAILFAST", **cut_records.JSON}
    read = written.select(F.from_json("v", schema, options).alias("r")).select("r.*")
    assert cut_records.sql_types(read.schema.fields) == columns
    assert str(read.collect()) == str(frame.collect())


def test_what_json_does_not_have_is_refused_before_a_cut(
    engine: SparkEngine, topics: Topics
) -> None:
    job = diamond("maps", merge='["n", "side"]')
    create_topics(engine.kafka, [job])
    mapped = tuple(
        replace(o, work=replace(o.work, select=("n", "at", "'x' AS side", "map(n, 1) AS m")))
        if o.name in ("left", "right")
        else o
        for o in job.operators
    )
    outcome = engine.submit(replace(job, operators=mapped), initial(job))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "SPARK_REFUSED")
    assert topics_of(topics, engine, job) == []


KEYS = 5
TALLY = """
name: tally
trigger: {realTime: 10 minutes}
sources:
  - name: in
    options: {subscribe: tally-in, startingOffsets: earliest}
    schema: {n: BIGINT}
    partitions: 2
operators:
  - {name: split, input: in, select: ["n % 5 AS k", n], parallelism: {max: 1}}
  - name: count
    input: split
    group_by: [k]
    aggregate: {n: "count(*)"}
    parallelism: 2
  - {name: copy, input: split, select: [k, "-n AS n"], parallelism: {max: 1}}
  - {name: last, input: {from: count, grouping: by_key, key: [k]}, parallelism: {max: 1}}
  - {name: label, input: {from: count, grouping: by_key, key: [k]}, parallelism: {max: 1}}
  - {name: merge, inputs: [label, copy], parallelism: {max: 1}}
sinks:
  - {name: counts, input: last, key: k, options: {topic: tally-counts}}
  - {name: out, input: merge, options: {topic: tally-out}}
"""


def test_counts_between_cuts_are_right_after_parts_died_in_the_middle_of_a_batch(
    engine: SparkEngine, topics: Topics
) -> None:
    job = parse_job(TALLY)
    create_topics(engine.kafka, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        values = [json.dumps({"n": n}) for n in range(sent, sent + count)]
        topics.write("tally-in", values)
        sent += count

    def rows() -> list[dict[str, int]]:
        engine.reports()
        return [row.value for row in read_all(engine.kafka, "tally-counts")]

    def complete() -> bool:
        last = {row["k"]: row["n"] for row in rows()}
        merged = {r.id for r in read_all(engine.kafka, "tally-out") if r.value["n"] <= 0}
        return last == expected() and len(merged) == sent

    def expected() -> Counter[int]:
        return Counter(n % KEYS for n in range(sent))

    send(500)
    until(complete)
    # What comes before the count, the count itself and what reads it, each with an open batch.
    for parts in (("split", "count"), ("label",)):
        send(250)
        for part in parts:
            running = engine.managed[f"{job.id}~{part}"].running
            assert running is not None
            running.query.stop()
        until(complete)
    assert max(row["n"] for row in rows()) == sent // KEYS  # no record was counted twice
    # The count's replay gave rows again, and they all passed the cut: the last one is right.
    planned = engine.dags.accepted[job.id].planned
    topic = {sink.name: sink.topic for part in planned.parts for sink in part.sinks}
    written = topics.count(topic["count.label"])
    assert written > sent
    # Behind it each has an id of its own, by which the doubles of the part that reads it are known.
    until(lambda: rows() and topics.count("tally-out") >= written + sent)
    assert topics.count(topic["label.merge"]) > written
    out = read_all(engine.kafka, "tally-out")
    assert len([row for row in out if row.value["n"] > 0]) == written
    assert len({row.id for row in out}) == len(out) == written + sent
    assert engine.capabilities().fixed[job.id] == ("count",)

    count = job.operator("count")
    other = replace(count, work=replace(count.work, aggregate=(("n", "count(n)"),)))
    version = replace(job, operators=tuple(other if o is count else o for o in job.operators))
    outcome = engine.apply(RestartJob("other", job.id, version))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "NEEDS_NEW_CHECKPOINT")
