"""Each benchmark query gives on the engine what its SQL gives in a batch over the same records.

The SQL is the benchmarks' own, in Spark's dialect. All jobs run at once on one session.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import read_all
from trilithon.cli.job_files import jobs_in
from trilithon.contract.engine import Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import Job, Parallelism
from trilithon.workloads import ad_events, nexmark
from trilithon.workloads.ad_events import AdEvents, campaigns
from trilithon.workloads.nexmark import NexmarkEvents

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

JOBS = Path(str(resources.files("trilithon.workloads") / "jobs"))
EVENTS = 3000
START_S = 1_700_000_000.0
PROJECTED = {
    "nexmark-q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "nexmark-q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "nexmark-q13": """SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN side_input ON MOD(auction, 500) = key""",
    "nexmark-q14": """SELECT auction, bidder, 0.908 * price AS price,
        CASE WHEN HOUR(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
             WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
             ELSE 'otherTime' END AS bidTimeType,
        dateTime, extra, REGEXP_COUNT(extra, 'c') AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "nexmark-q21": """SELECT * FROM (SELECT auction, bidder, price, channel,
        CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
             WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
             ELSE NULLIF(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
        FROM bid) WHERE channel_id IS NOT NULL""",
    "nexmark-q22": """SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1,
        split(url, '/')[4] AS dir2, split(url, '/')[5] AS dir3 FROM bid""",
}
# With the columns that say which of a group's rows is its last.
GROUPED = {
    "nexmark-q12": (
        """SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
        FROM (SELECT bidder, window(arrived, '10 seconds') AS window FROM bid)
        GROUP BY bidder, window""",
        ("bidder", "starttime"),
    ),
    "nexmark-q17": (
        """SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
        count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
        sum(price) AS sum_price FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')""",
        ("auction", "day"),
    ),
    "ysb": (
        """SELECT window, campaign_id, count(*) AS views FROM
        (SELECT window(timestamp_millis(event_time), '10 seconds') AS window, campaign_id
        FROM ad_event JOIN ads USING (ad_id) WHERE event_type = 'view')
        GROUP BY window, campaign_id""",
        ("campaign_id", "window"),
    ),
}


def shipped(name: str) -> Job:
    """A job as it ships, but with few idle tasks: nine jobs share a small machine."""
    stem = name.replace("-", "_")
    file = JOBS / f"{stem}.py"
    ((loaded),) = jobs_in(file if file.exists() else JOBS / f"{name}.yaml")
    operators = tuple(
        operator if operator.work.stateful else replace(operator, parallelism=Parallelism(1, 1, 1))
        for operator in loaded.job.operators
    )
    return replace(loaded.job, operators=operators)


@pytest.fixture(scope="module")
def engine(
    spark: SparkSession, broker: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkEngine]:
    folder = tmp_path_factory.mktemp("workloads")
    engine = SparkEngine(spark, broker, folder, tasks=lambda: max_tasks(spark), slots=40)
    yield engine
    for name in list(engine.jobs()):
        engine.cancel(name)


@pytest.fixture(scope="module")
def views(spark: SparkSession, broker: Kafka, topics: Topics) -> None:
    """Writes the events of both benchmarks, and makes their tables of what is in Kafka."""
    topics.create(**{"nexmark": 1, "ad-events": 1})
    nexmark_events, ads = NexmarkEvents(seed=11), AdEvents(seed=11)
    producer = Producer({**broker.client, "log_level": 0})
    for part in range(3):
        # Three windows' worth of event time, and two days.
        at_s, count = START_S + part * 6 * 3600, EVENTS // 3
        for topic, maker in (("nexmark", nexmark_events), ("ad-events", ads)):
            for _, value in maker.make(part * count, count, at_s):
                producer.produce(topic, value)
        assert producer.flush(120) == 0
        time.sleep(0.5)

    def read(topic: str, schema: str) -> DataFrame:
        options = {**broker.options, "subscribe": topic}
        raw = spark.read.format("kafka").options(**options).load()
        text = raw.selectExpr("CAST(value AS STRING) AS value", "timestamp AS arrived")
        # A literal of the schema: its commas are no separators of arguments.
        return text.selectExpr(f"from_json(value, '{schema}') AS row", "arrived").selectExpr(
            "row.*", "arrived"
        )

    events = read("nexmark", nexmark.SCHEMA)
    events.where("event_type = 2").selectExpr("bid.*", "arrived").createOrReplaceTempView("bid")
    read("ad-events", ad_events.SCHEMA).createOrReplaceTempView("ad_event")
    rows = [(key, f"side input {key}") for key in range(500)]
    side = spark.createDataFrame(rows, "key BIGINT, value STRING")
    side.createOrReplaceTempView("side_input")
    spark.createDataFrame(
        list(campaigns()), "ad_id STRING, campaign_id STRING"
    ).createOrReplaceTempView("ads")


def sql(spark: SparkSession, query: str) -> list[str]:
    """The rows of a batch query as a sink writes them."""
    rows = spark.sql(query).selectExpr("to_json(struct(*))").collect()
    return [json.dumps(json.loads(row[0])) for row in rows]


@pytest.mark.usefixtures("views")
def test_every_benchmark_query_gives_what_its_sql_gives_in_a_batch(
    spark: SparkSession, engine: SparkEngine, broker: Kafka, topics: Topics
) -> None:
    jobs = {name: shipped(name) for name in (*PROJECTED, *GROUPED)}
    create_topics(broker, list(jobs.values()))
    for job in jobs.values():
        outcome = engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome

    expected = {name: Counter(sql(spark, query)) for name, query in PROJECTED.items()}
    bids = spark.table("bid").count()
    rows = {name: counts.total() for name, counts in expected.items()}
    rows |= {"nexmark-q12": bids, "nexmark-q17": bids}
    rows["ysb"] = spark.table("ad_event").where("event_type = 'view'").count()
    # The data decide something: no query gives all or nothing by accident.
    assert bids == EVENTS * 46 // 50
    assert all(rows.values())
    assert len({rows["nexmark-q2"], rows["nexmark-q14"], rows["nexmark-q21"], bids}) == 4

    sinks = {name: job.sinks[0].topic for name, job in jobs.items()}
    until(lambda: all(topics.count(sinks[name]) >= count for name, count in rows.items()))
    for name, counts in expected.items():
        written = Counter(json.dumps(row.value) for row in read_all(broker, sinks[name]))
        assert written == counts, name
    for name, (query, group) in GROUPED.items():
        updates = [row.value for row in read_all(broker, sinks[name])]
        assert len(updates) == rows[name], name
        last = {json.dumps([row[column] for column in group]): row for row in updates}
        batch = [json.loads(row) for row in sql(spark, query)]
        assert last == {json.dumps([row[column] for column in group]): row for row in batch}, name
