"""Batches that end early: restarts without replay, exact counters, keys in order."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.proofs.hops import Hops
from tests.engines.spark.conftest import until
from tests.engines.spark.flow import PARTITIONS, Flow, NoPacing, Scene, job_named
from tests.engines.spark.sink_latency import SinkLatency
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Reallocate, RestartJob, Status
from trilithon.engines.spark import frame_sources, queries, start
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.flush_time import FLUSH_MS, LINGER, MOST_FLUSH_MS
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.pacing import QUIET_S
from trilithon.errors import NotObservable
from trilithon.model.allocation import carried_over, initial
from trilithon.model.groups import KEY_GROUPS, SPREAD
from trilithon.model.job import Bounds, HeldTasks, Job, Parallelism

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def run(
    spark: SparkSession, broker: Kafka, tmp_path: Path
) -> Iterator[Callable[[Job, float], Any]]:
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)

    @contextmanager
    def running(job: Job, rate_per_s: float, fed: int = PARTITIONS) -> Iterator[Scene]:
        create_topics(broker, [job])
        outcome = engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome
        flow = Flow(broker, job.name, rate_per_s, fed)
        try:
            yield Scene(engine, job, flow)
        finally:
            flow.end()
            engine.cancel(job.id)

    yield running
    assert not spark.streams.active


def changed(job: Job, number: int) -> Job:
    """Each restart changes something else: the plan, the tasks, the length of a batch."""
    first, second = job.operators
    if number == 1:
        return replace(job, batch_s=60.0)
    if number == 2:
        return replace(job, operators=(first, replace(second, parallelism=Parallelism(2, 1, 6))))
    if number == 3:
        work = replace(second.work, select=("n", "k", "n * 2 AS twice"))
        return replace(job, operators=(first, replace(second, work=work)))
    if number == 4:
        return replace(job, operators=(replace(first, parallelism=Parallelism(1, 1, 2)), second))
    return job


def test_five_restarts_with_other_plans_lose_nothing_and_do_nothing_twice(run: Any) -> None:
    """One of the four partitions is empty: its reader waits for records all the time."""
    job = job_named("restarted", 4)
    with run(job, 800.0, 3) as on:
        outcomes = []
        for number in range(5):
            on.flowing()
            spec = changed(job, number)
            # As the controller restarts a new version: with its allocation and checkpoint.
            wanted = carried_over(on.engine.jobs()[job.id].allocation, spec).next_generation()
            action = RestartJob(f"r{number}", job.id, spec, wanted, "")
            outcomes.append(on.engine.apply(action))
            found = on.engine.jobs()[job.id]
            assert (found.job, found.allocation) == (spec, wanted)
        until(lambda: on.polled() and on.flow.sent >= 20_000)
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert [(outcome.status, outcome.code) for outcome in outcomes] == [(Status.DONE, "")] * 5
        assert on.flow.doubled == 0


def test_a_restart_of_a_job_without_records_replays_nothing(run: Any) -> None:
    job = job_named("idle")
    with run(job, 300.0) as on:
        on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        time.sleep(1)  # its readers wait for records
        outcome = on.engine.apply(RestartJob("once", job.id))
        assert (outcome.status, outcome.code) == (Status.DONE, "")
        assert outcome.took_s < 300  # not the ten minutes of the batch, however busy the machine is
        time.sleep(3)
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert on.flow.doubled == 0


def test_a_pause_replays_nothing_though_one_partition_is_empty(run: Any) -> None:
    job = job_named("paused", 4)
    with run(job, 500.0, 3) as on:
        for _ in range(2):
            on.flowing()
            began = time.monotonic()
            assert on.engine.cancel(job.id, keep=True).status is Status.DONE
            assert time.monotonic() - began < 300  # of a batch of ten minutes
            assert on.engine.submit(job, initial(job)).status is Status.DONE
        on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert on.flow.doubled == 0


def test_a_checkpoint_fits_the_plain_connector_and_the_other_way_round(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_named("crossed")
    own = frame_sources.KAFKA_SOURCE

    def restarted_with(source: str, number: int) -> None:
        monkeypatch.setattr(frame_sources, "KAFKA_SOURCE", source)
        on.engine.apply(RestartJob(f"{source}-{number}", job.id, replace(job, batch_s=5.0)))

    with run(job, 300.0) as on:
        for number in range(2):
            on.flowing()
            restarted_with("kafka", number)
            assert on.flow.doubled == 0
            on.flowing()
            # The connector's own batch ends by itself; without records nothing is in the next one.
            on.flow.pause()
            on.flow.await_all()
            ended = on.engine.control.batch(job.id)
            until(partial(lambda ended: on.engine.control.batch(job.id) != ended, ended))
            restarted_with(own, number)
            on.flow.resume()
        on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert on.flow.doubled == 0


def test_the_lag_is_what_waits_in_the_log_in_every_life(run: Any) -> None:
    job = job_named("lagging")
    with run(job, 300.0) as on:
        on.engine.pacer = NoPacing()
        assembler = Assembler()
        assembler.expect(job, initial(job))

        def source() -> tuple[float, float]:
            """What waits in the log, and what arrived in this life."""
            for report in on.engine.reports():
                assembler.take(report)
            found = assembler.snapshot(time.time())
            return found.job(job.id).lag("in") or 0.0, float(found.sources.arrived[0])

        on.flowing()
        assert on.engine.apply(RestartJob("once", job.id)).code == ""
        on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        until(lambda: source()[0] == 0 and source()[1] > 0)
        arrived = source()[1]
        assert 0 < arrived < sent  # what came before the restart was read before it
        # An open batch that is replayed is in the log again: its query died.
        on.engine.managed[job.id].running.stop()
        until(lambda: on.polled() and on.flow.doubled >= arrived)
        # A replayed record carries the id that it had the first time.
        assert len({one.id for one in on.flow.got}) == sent
        until(lambda: source() == (0, arrived))


def test_a_spec_that_cannot_run_leaves_the_job_as_it_was(run: Any) -> None:
    job = job_named("kept")
    with run(job, 200.0) as on:
        on.flowing()
        first, second = job.operators
        broken = replace(second, work=replace(second.work, select=("no_such_column",)))
        refused = on.engine.apply(RestartJob("a", job.id, replace(job, operators=(first, broken))))
        assert refused.status is Status.REFUSED
        assert "no_such_column" in refused.message
        huge = replace(first, parallelism=Parallelism(1, 1, 200, HeldTasks.ALL))
        refused = on.engine.apply(RestartJob("b", job.id, replace(job, operators=(huge, second))))
        assert (refused.status, refused.code) == (Status.REFUSED, "DOES_NOT_FIT")
        elsewhere = replace(job.sources[0], options=(("subscribe", "kept-out"),))
        refused = on.engine.apply(RestartJob("c", job.id, replace(job, sources=(elsewhere,))))
        assert (refused.status, refused.code) == (Status.REFUSED, "NEEDS_NEW_CHECKPOINT")
        assert on.engine.jobs()[job.id].job == job
        on.flowing()
        assert on.flow.doubled == 0
        # From a checkpoint of its own it reads everything from the beginning.
        assert on.engine.apply(RestartJob("d", job.id, job, None, "anew")).status is Status.DONE
        until(lambda: on.polled() and on.flow.doubled > 100)


def test_counters_are_exact_over_twenty_boundaries_and_another_jobs_batch_goes_on(run: Any) -> None:
    counted, other = job_named("counted"), job_named("undisturbed")
    with run(other, 50.0) as beside, run(counted, 200.0) as on:
        on.engine.pacer = NoPacing()
        control, assembler = on.engine.control, Assembler()
        assembler.expect(counted, initial(counted))
        beside.flowing()
        besides_batch = control.batch(other.id)

        def snapshot() -> Any:
            for report in on.engine.reports():
                assembler.take(report)
            return assembler.snapshot(time.time())

        for _ in range(20):
            before = control.batch(counted.id)
            snapshot()
            assert on.engine.boundaries.end(counted.id)
            until(partial(lambda before: control.batch(counted.id) != before, before))
            until(lambda: control.running_tasks(counted.id, "keyed") == 4)
        sent = on.flow.stop_sending()
        on.flow.await_all()

        def taken() -> list[float]:
            view = snapshot().job(counted.id)
            return [
                sum(view.instance(name, i)["taken"] or 0 for i in (0, 1))
                for name in ("spread", "keyed")
            ]

        until(lambda: taken() == [sent, sent])
        # The ends of the topics are asked for once in a while: they may be a moment older.
        until(lambda: snapshot().sources.arrived.tolist() == [sent])
        until(lambda: snapshot().sinks.written.tolist() == [sent])
        found = snapshot()
        assert found.sources.taken.tolist() == [sent]
        assert found.sources.arrived.tolist() == [sent]
        assert found.sinks.written.tolist() == [sent]
        assert on.undisturbed()
        assert control.batch(other.id) == besides_batch


def test_the_latency_at_the_sink_is_what_the_times_of_the_records_say(
    run: Any, spark: SparkSession, broker: Kafka
) -> None:
    job = job_named("timed")
    with run(job, 200.0) as on:
        assembler = Assembler()
        assembler.expect(job, initial(job))

        def snapshot() -> Any:
            for report in on.engine.reports():
                assembler.take(report)
            return assembler.snapshot(time.time())

        sink = (job.id, "out")
        latency = SinkLatency(spark, broker, on.flow, snapshot, sink, f"{job.name}-in")
        on.flowing()
        time.sleep(15)  # the JVM warms up
        # What is reported is up to a second older than the span: one calm span of eight must do.
        assert any(latency.agrees() for _ in range(8)), latency.compared


def test_the_engine_ends_batches_one_job_at_a_time(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would end them after twice the time."""
    first, second = (replace(job_named(name, 4), batch_s=8.0) for name in ("pace-a", "pace-b"))
    with run(first, 100.0, 3) as on, run(second, 100.0, 3) as beside:
        control, end = on.engine.control, on.engine.boundaries.end
        ended_by_engine = set[tuple[str, str]]()

        def noted(job: str) -> bool:
            ended_by_engine.add((job, control.batch(job)))
            return bool(end(job))

        monkeypatch.setattr(on.engine.boundaries, "end", noted)
        on.flowing()
        beside.flowing()
        asked_s, seen = time.monotonic(), control.batches()
        # Of each change: when the look before it began, when it was seen, the job and its batch
        # that ended.
        changes: list[tuple[float, float, str, str]] = []

        def three_each() -> bool:
            """Whether the engine, not Spark, has ended three batches of each job."""
            nonlocal asked_s, seen
            on.polled()
            before_s, asked_s = asked_s, time.monotonic()
            now = control.batches()
            at_s = time.monotonic()
            changes.extend((before_s, at_s, job, seen[job]) for job in now if now[job] != seen[job])
            seen = now
            ended = [job for *_, job, batch in changes if (job, batch) in ended_by_engine]
            return min(ended.count(first.id), ended.count(second.id)) >= 3

        until(three_each, 360)
        assert all(b_s - a_s >= QUIET_S for (a_s, *_), (_, b_s, *_) in pairwise(changes))
        for scene in (on, beside):
            sent = scene.flow.stop_sending()
            scene.flow.await_all()
            assert {one.number for one in scene.flow.got} == set(range(sent))
            assert scene.undisturbed()


def test_groups_move_live_and_only_those_keys_go_elsewhere(run: Any) -> None:
    job = job_named("moved")
    with run(job, 200.0) as on:
        on.flowing()
        control = on.engine.control

        def taken() -> Counter[int]:
            return Counter(
                {
                    one["index"]: one["taken"]
                    for one in control.totals(job.id)
                    if one["operator"] == "keyed"
                }
            )

        now = on.engine.jobs()[job.id].allocation
        all_to_one = replace(now, generation=2, groups={"keyed": (1,) * KEY_GROUPS})
        assert on.engine.apply(Reallocate(all_to_one)).status is Status.DONE
        before = taken()

        def settled() -> bool:
            """Whether a report came in which only the second has taken records."""
            nonlocal before
            last, before = before, taken()
            return before[1] > last[1] and before[0] == last[0]

        until(settled)
        time.sleep(3)
        until(lambda: taken()[1] > before[1])
        after = taken()
        assert after[0] == before[0]
        spread = replace(now, generation=3, groups={"keyed": (SPREAD,) * KEY_GROUPS})
        assert on.engine.apply(Reallocate(spread)).status is Status.DONE
        until(lambda: taken()[0] > after[0])
        before = taken()
        until(lambda: sum(taken().values()) >= sum(before.values()) + 1200)
        dealt = [count - before[index] for index, count in sorted(taken().items())[:2]]
        assert min(dealt) > 0.8 * max(dealt) > 0  # before, one had all
        batch = control.batch(job.id)
        on.flow.stop_sending()
        on.flow.await_all()
        assert on.undisturbed()
        assert control.batch(job.id) == batch  # no boundary was needed


def test_where_order_matters_a_key_changes_its_instance_between_two_batches(run: Any) -> None:
    """The records of a key come out in the order in which they came in, whatever is rescaled."""
    job = replace(job_named("ordered", 4), bounds=Bounds(preserve_order=True))
    first, second = job.operators
    # One instance before the keyed one: more would put a key's records out of order by themselves.
    slow = replace(
        second.work, select=("n", "k", "wait(CASE WHEN k % 2 = 0 THEN 4 ELSE 0 END) AS w")
    )
    job = replace(
        job,
        operators=(replace(first, parallelism=Parallelism(1, 1, 1)), replace(second, work=slow)),
    )
    with run(job, 200.0, 3) as on:
        on.flowing()
        batches = {on.engine.control.batch(job.id)}
        for count in (4, 1, 3):
            now = on.engine.jobs()[job.id].allocation
            outcome = on.engine.apply(Reallocate(now.rescaled({"keyed": count}).next_generation()))
            assert (outcome.status, outcome.code) == (Status.DONE, "AT_BOUNDARY")
            until(lambda: on.engine.control.batch(job.id) not in batches)
            batches.add(on.engine.control.batch(job.id))
            on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        by_key: dict[int, list[int]] = defaultdict(list)
        for one in sorted(on.flow.got, key=lambda one: one.at_s):
            by_key[one.key].append(one.number)
        assert len(by_key) == 50
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        spread = {
            one["index"]: one["taken"]
            for one in on.engine.control.totals(job.id)
            if one["operator"] == "keyed"
        }
        assert sum(count > 0 for count in spread.values()) == 4


def test_a_flush_time_holds_from_the_next_batch_on_and_a_linger_from_the_next_start(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_named("flushed")
    started: list[dict[str, str]] = []
    starts = start.start_frame

    def start_frame(*arguments: Any, **more: Any) -> Any:
        started.append(more["waits"])
        return starts(*arguments, **more)

    monkeypatch.setattr(queries, "start_frame", start_frame)
    with run(job, 200.0) as on:
        control, operators = on.engine.control, [operator.name for operator in job.operators]
        on.engine.pacer = NoPacing()

        def hops() -> Hops:
            return Hops.into(control.totals(job.id), operators)

        def span_ms() -> float:
            before = hops()
            until(lambda: hops().records >= before.records + 800)
            mean_ms = hops().mean_ms_since(before)
            assert mean_ms is not None
            return mean_ms

        def hop_ms() -> float:
            """The least of three spans: a pause of the machine lengthens one of them, not all."""
            time.sleep(2)  # reports that are on their way
            return min(span_ms() for _ in range(3))

        on.flowing()
        assert control.flush_times() == {"driver": FLUSH_MS}
        gathered = dict.fromkeys((edge.name for edge in job.edges), float(MOST_FLUSH_MS))
        wanted = replace(initial(job), batching_ms=gathered).next_generation()
        batch, outcome = control.batch(job.id), on.engine.apply(Reallocate(wanted))
        assert (outcome.status, outcome.code) == (Status.DONE, "AT_BOUNDARY")
        until(lambda: control.flush_times() == {"driver": MOST_FLUSH_MS})
        running_ms = hop_ms()
        assert control.batch(job.id) == batch
        on.engine.boundaries.end(job.id)
        until(lambda: control.batch(job.id) != batch)
        on.flowing()
        assert hop_ms() > running_ms + 1.5  # of 5 more
        outcome = on.engine.apply(RestartJob("lingering", job.id))
        assert outcome.status is Status.DONE, outcome
        assert started == [{}, {LINGER: str(MOST_FLUSH_MS)}]
        on.flowing()
    until(lambda: control.flush_times() == {"driver": FLUSH_MS})


def test_records_between_two_operators_of_a_query_are_shown_to_whoever_looks(run: Any) -> None:
    job = job_named("looked-at")
    with run(job, 200.0) as on:
        on.flowing()

        def looked(count: int) -> list[dict[str, Any]]:
            """What a look shows that sees five records at least: it waits for two seconds only."""
            found: list[dict[str, Any]] = []

            def enough() -> bool:
                found[:] = on.engine.edge_records(job.id, "spread->keyed", count)
                return len(found) >= 5

            until(enough)
            return found

        seen, again = looked(5), looked(50)
        assert len(seen) == 5
        assert all(record["value"].keys() == {"n", "k"} for record in seen)
        tasks = {record["value"]["k"]: record["instance"] for record in seen}
        assert set(tasks.values()) <= {0, 1}
        assert all(tasks.get(r["value"]["k"], r["instance"]) == r["instance"] for r in again)
        assert max(r["value"]["n"] for r in again) > max(r["value"]["n"] for r in seen)
        with pytest.raises(NotObservable):
            on.engine.edge_records("default/no-such", "spread->keyed", 5)
        on.flow.stop_sending()
        on.flow.await_all()
        assert on.engine.edge_records(job.id, "spread->keyed", 5) == []  # nothing passes
        assert on.flow.doubled == 0
