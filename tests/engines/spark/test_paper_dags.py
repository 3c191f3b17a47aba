"""The papers' Star, Diamond and Network on Spark write what the same SQL gives in batch, and so do
log processing with a fan-out and, for comparison, a line of operators. TwitterSentiment, whose hot
list is what has arrived by then, writes what a replay of its steps gives.
"""

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import read_all
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Reallocate, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job
from trilithon.workloads.paper_jobs import spark_job_text

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
RECORDS = 60


@pytest.fixture
def engine(spark_engine: SparkEngine) -> SparkEngine:
    return spark_engine


def in_batch(spark: SparkSession, job: Job, records: list[str]) -> dict[str, Counter[str]]:
    """What each sink gets, by the same expressions in batch."""
    frames: dict[str, DataFrame] = {}
    for source in job.sources:
        schema = ", ".join(f"`{field.name}` {field.type}" for field in source.schema)
        rows = spark.createDataFrame([(record,) for record in records], "value STRING")
        frames[source.name] = rows.select(F.from_json("value", schema).alias("r")).select("r.*")
    for name in [name for name in job.order if name not in frames]:
        inputs = [frames[edge.source] for edge in job.parents[name]]
        frame = inputs[0]
        for other in inputs[1:]:
            frame = frame.unionByName(other)
        if name in {operator.name for operator in job.operators}:
            work = job.operator(name).work
            frame = frame.where(work.where) if work.where else frame
            # No sink has its result.
            chosen = [re.sub(r"wait\(\d+\)", "0.0D", text) for text in work.select]
            frames[name] = frame.selectExpr(*chosen) if chosen else frame
        else:
            frames[name] = frame
    return {
        sink.name: Counter(
            row.value
            for row in frames[sink.name].select(F.to_json(F.struct("*")).alias("value")).collect()
        )
        for sink in job.sinks
    }


@pytest.mark.parametrize("name", ["diamond", "star", "network", "logs", "linear"])
def test_a_papers_graph_writes_what_batch_gives(
    engine: SparkEngine, topics: Topics, spark: SparkSession, name: str
) -> None:
    text = spark_job_text(name).replace("{subscribe: ", "{startingOffsets: earliest, subscribe: ")
    job = parse_job(text.encode())
    create_topics(engine.kafka, [job])
    records = [
        json.dumps(
            {
                "user": f"user{i % 7}" if i % 11 else None,
                "url": f"/page/{i % 13}",
                "at": f"2026-01-01T00:00:{i % 60:02}.123456Z",
                "seq": i,
            }
        )
        for i in range(RECORDS)
    ]
    for source in job.sources:
        topics.write(source.topics[0], records)
    outcome = engine.submit(job, initial(job))
    assert outcome.status is Status.DONE, outcome.message
    expected = in_batch(spark, job, records)

    def complete() -> bool:
        engine.reports()
        return all(topics.count(s.topic) >= expected[s.name].total() for s in job.sinks)

    until(complete)
    for sink in job.sinks:
        assert expected[sink.name]
        assert Counter(row.value for row in topics.read(sink.topic)) == expected[sink.name]


def test_a_record_that_fails_in_one_branch_of_a_papers_graph_passes_the_other(
    engine: SparkEngine, topics: Topics
) -> None:
    text = spark_job_text("diamond").replace("diamond", "dead")
    text = text.replace("{subscribe: ", "{startingOffsets: earliest, subscribe: ")
    text = text.replace("sha2(url, 256) AS url", "CAST(100 / (seq - 3) AS STRING) AS url")
    text = text.replace("{name: out, ", "{name: out, key: side, ")
    job = parse_job(f"{text}\ndead_letter_topic: dead-letters\n".encode())
    create_topics(engine.kafka, [job])
    at = "2026-01-01T00:00:00Z"
    records = [json.dumps({"user": "u", "url": "/", "at": at, "seq": i}) for i in range(10)]
    topics.write("dead-events", [*records, "not JSON"])
    assert engine.submit(job, initial(job)).status is Status.DONE

    def complete() -> bool:
        engine.reports()
        return topics.count("dead-out") >= 29 and topics.count("dead-letters") >= 2

    until(complete)
    letters = {json.loads(row.value)["at"]: row for row in topics.read("dead-letters")}
    assert letters.keys() == {"events", "right"}
    failed = json.loads(letters["right"].value)
    assert "DIVIDE_BY_ZERO" in failed["error"]
    # The id says which copy of the record it was.
    assert failed["source"].endswith(">right")
    assert letters["right"].headers[0].value.decode() == failed["source"]
    rows = [json.loads(row.value) for row in topics.read("dead-out")]
    sides = Counter(row["side"] for row in rows)
    assert sides == {"left": 10, "middle": 10, "right": 9}


WINDOW_MS, HOT_FROM = 200, 3


@dataclass
class Tweets:
    """The steps of TwitterSentiment, replayed tweet by tweet over the times that Kafka has."""

    windows: Counter[tuple[str, int]] = field(default_factory=Counter)
    # The entries of the hot list in their order, and until when a topic is hot.
    entries: list[tuple[str, int, int]] = field(default_factory=list)
    until_ms: dict[str, int] = field(default_factory=dict)

    def count(self, topic: str, at_ms: int) -> None:
        window = at_ms - at_ms % WINDOW_MS
        self.windows[topic, window] += 1
        if (tweets := self.windows[topic, window]) >= HOT_FROM:
            until_ms = window + 2 * WINDOW_MS
            self.entries.append((topic, tweets, until_ms))
            self.until_ms[topic] = max(until_ms, self.until_ms.get(topic, 0))

    def lets_pass(self, topic: str, at_ms: int) -> bool:
        return at_ms < self.until_ms.get(topic, 0)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_twittersentiment_lets_those_tweets_pass_whose_topic_was_hot_by_then(
    engine: SparkEngine, topics: Topics
) -> None:
    text = spark_job_text("twittersentiment").replace(
        "{subscribe: ", "{startingOffsets: earliest, subscribe: "
    )
    job = parse_job(text.encode())
    create_topics(engine.kafka, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    (hot_topic,) = engine.dags.accepted[job.id].planned.topics
    assembler, replay = Assembler(), Tweets()
    assembler.expect(job, initial(job))
    producer = Producer({**engine.kafka.client, "log_level": 0})
    start_ms = int(time.time()) * 1000
    sent, must, may, copies = 0, set[int](), set[int](), 0

    def view() -> Any:
        for report in engine.reports():
            assembler.take(report)
        return assembler.snapshot(engine.clock()).job(job.id)

    def out() -> list[dict[str, Any]]:
        return [row.value for row in read_all(engine.kafka, "twittersentiment-sentiments")]

    def phase(number: int, tweets: list[str]) -> None:
        """Sends tweets of one window, and waits for all that comes of them. Those that go to the
        filter race with the entries that they themselves make; earlier entries have arrived.
        """
        nonlocal sent, copies
        before, at_ms = len(replay.entries), start_ms + number * WINDOW_MS
        numbered = list(enumerate(tweets, sent))
        must.update(seq for seq, topic in numbered if replay.lets_pass(topic, at_ms + seq))
        for seq, topic in numbered:
            tweet = {"user": topic, "url": "/", "at": "2026-01-01T00:00:00Z", "seq": seq}
            producer.produce(
                "twittersentiment-tweets",
                json.dumps(tweet),
                timestamp=at_ms + seq,
                partition=seq % 2,
            )
            replay.count(topic, at_ms + seq)
        assert producer.flush(120) == 0
        sent += len(tweets)
        may.update(seq for seq, topic in numbered if replay.lets_pass(topic, at_ms + seq))
        instances = engine.jobs()[job.id].allocation.parallelism["filter"]
        copies += (len(replay.entries) - before) * instances

        def settled() -> bool:
            edges = view()
            taken = {
                name: edges.edge(*name.split(">"))["taken"]
                for name in ("tweets>filter", "hot>filter")
            }
            return taken == {"tweets>filter": sent, "hot>filter": copies}

        until(settled)
        until(lambda: must <= {row["seq"] for row in out()})

    phase(0, ["a", "a", "a", "b", "b", "c"])  # a is hot, until the end of the next window
    phase(1, ["a", "b", "b", "b", "a", "c"])
    assert replay.until_ms.keys() == {"a", "b"}
    assert len(must) == 2
    # One more instance: it knows the list, too.
    wanted = initial(job).rescaled({"filter": 3}).next_generation()
    assert engine.apply(Reallocate(wanted)).status is Status.DONE
    assembler.expect(job, wanted)
    time.sleep(2)
    phase(2, ["b"] * 9 + ["c", "a"])
    assert view().instance("filter", 2)["taken"]
    # The next life of the filter begins behind the rows of the list: they are read once more.
    part = f"{job.id}~filter"
    batch, running = engine.control.batch(part), engine.managed[part].running
    assert running is not None
    assert engine.boundaries.end(part)
    until(lambda: engine.control.batch(part) != batch)
    running.query.stop()

    def runs_again() -> bool:
        view()
        return engine.managed[part].running not in (None, running)

    until(runs_again)
    time.sleep(3)
    phase(3, ["b"] * 6 + ["c", "a"])

    written = [row.value for row in read_all(engine.kafka, hot_topic)]
    listed = [(row["user"], row["tweets"], ms(row["until"])) for row in written]
    for topic in replay.until_ms:
        assert [e for e in listed if e[0] == topic] == [e for e in replay.entries if e[0] == topic]
    rows = out()
    assert must <= {row["seq"] for row in rows} <= may
    assert len(must) == 17
    assert {(row["user"], row["tweets"], ms(row["until"])) for row in rows} <= {*replay.entries}
    edge = view().edge("hot", "filter")
    assert edge["emitted"] == edge["taken"]


def test_what_is_broadcast_alone_is_worked_on_by_each_instance(
    engine: SparkEngine, topics: Topics
) -> None:
    job = parse_job("""
name: copied
sources:
  - name: in
    options: {subscribe: copied-in, startingOffsets: earliest}
    schema: {n: BIGINT}
    partitions: 1
operators:
  - {name: pass, input: in, where: n >= 0, parallelism: {max: 1}}
  - name: each
    input: {from: pass, grouping: broadcast}
    select: [n]
    parallelism: {initial: 2, max: 3}
sinks: [{name: out, input: each, options: {topic: copied-out}}]
dead_letter_topic: copied-dead
""")
    create_topics(engine.kafka, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    topics.write("copied-in", [*(json.dumps({"n": n}) for n in range(20)), "not JSON"])
    until(lambda: topics.count("copied-out") >= 40)
    until(lambda: topics.count("copied-dead") >= 1)
    rows = read_all(engine.kafka, "copied-out")
    assert Counter(row.value["n"] for row in rows) == dict.fromkeys(range(20), 2)
    assert len({row.id for row in rows}) == 40
    assert topics.count("copied-dead") == 1
