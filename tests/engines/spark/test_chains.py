"""Chains on real Spark and a real broker: what comes out, what is refused, what can be changed."""

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.engines.spark.conftest import Topics, until
from trilithon.engines.spark.compiler import plan_chain
from trilithon.engines.spark.cut_records import ID_HEADER
from trilithon.engines.spark.expressions import checked_column, try_evaluate
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.frame_sinks import RECORD_OVERHEAD
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import start, start_frame
from trilithon.errors import InvalidJob, KafkaUnreachable, PlanMismatch, QueryNotStarted
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIELDS = "{user: STRING, n: INT, words: ARRAY<STRING>}"
RECORDS = 2000


def full_job() -> Job:
    return parse_job(f"""
name: full
trigger: {{realTime: 10 minutes}}
sources:
  - {{name: clicks, options: {{subscribe: clicks, startingOffsets: earliest}}, schema: {FIELDS}}}
  - {{name: views, options: {{subscribe: views, startingOffsets: earliest}}, schema: {FIELDS}}}
tables:
  - {{name: names, schema: "user STRING, name STRING", rows: [[u0, Zero], [u1, One], [u2, Two]]}}
  - {{name: ranks, schema: "number BIGINT, rank STRING", rows: [[1, first], [7, seventh]]}}
operators:
  - name: enrich
    inputs: [clicks, views]
    join: {{table: names, on: [user]}}
    where: 100 / n < 100
    parallelism: 2
  - name: split
    input: {{from: enrich, grouping: by_key, key: [user]}}
    explode: {{word: words}}
    select: [user, name, upper(word) AS word, "CAST(word AS INT) AS number", wait(0) AS waited]
    parallelism: {{initial: 1, min: 1, max: 4}}
  - {{name: keep, input: split, where: number > 0, parallelism: {{initial: 2, max: 2}}}}
  - name: rank
    input: keep
    join: {{table: ranks, on: [number], how: left}}
    parallelism: {{initial: 1, max: 2}}
sinks:
  - {{name: a, input: rank, options: {{topic: out-a}}}}
  - {{name: b, input: rank, options: {{topic: out-b}}}}
dead_letter_topic: dead
""")


def record(i: int) -> dict[str, Any]:
    return {"user": f"u{i % 4}", "n": i % 5, "words": ["1", "2", "x"][: i % 4]}


def expected(records: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    """What comes out, and what becomes a dead letter, by the meaning of the job."""
    out: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    names = {"u0": "Zero", "u1": "One", "u2": "Two"}
    for one in records:
        if one["user"] not in names:
            continue
        if one["n"] == 0:
            dead["enrich"] += 1
        elif 100 / one["n"] < 100:
            for word in one["words"]:
                if word == "x":
                    dead["split"] += 1
                    continue
                row: dict[str, Any] = {
                    "user": one["user"],
                    "name": names[one["user"]],
                    "word": word,
                }
                row |= {"number": int(word), "waited": 0.0}
                row |= {"rank": "first"} if word == "1" else {}
                out[json.dumps(row, separators=(",", ":"))] += 1
    return out, dead


def simple_job(
    name: str, select: str = "'*'", more: str = "", parallelism: str = "{initial: 1, max: 4}"
) -> Job:
    return parse_job(f"""
name: {name}
trigger: {{realTime: 10 minutes}}
sources:
- {{name: src, options: {{subscribe: {name}-in, startingOffsets: earliest}}, schema: {{v: INT}}}}
operators: [{{name: op, input: src, select: [{select}], parallelism: {parallelism}}}]
sinks: [{{name: out, input: op, options: {{topic: {name}-out}}}}]
{more}
""")


def taken(control: ProbeControl, job: Job, operator: str) -> dict[int, int]:
    return {
        one["index"]: one["taken"]
        for one in control.totals(job.id)
        if one["operator"] == operator and one["taken"]
    }


def rejected(control: ProbeControl, job: Job) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in control.totals(job.id):
        counts[one["operator"]] += one["rejected"]
    return {operator: count for operator, count in counts.items() if count}


def test_a_chain_with_all_parts_gives_exactly_what_it_should(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"clicks": 2, "views": 1, "out-a": 2, "out-b": 1, "dead": 1})
    clicks = [record(i) for i in range(RECORDS)]
    views = [record(7 * i + 3) for i in range(RECORDS)]
    broken = ["nonsense", '{"user": "u1", "n": "many"}', "[1]", "", None]
    topics.write("clicks", [*map(json.dumps, clicks), *broken])
    topics.write("views", [*map(json.dumps, views), "{"])
    out, dead = expected(clicks + views)
    dead += Counter({"clicks": 5, "views": 1})
    job = full_job()
    running = start(spark, job, broker, tmp_path / "checkpoint")
    control = ProbeControl(spark)
    try:
        assert control.tasks_per_stage(job.id) == (3, 8, 4, 2, 2) == running.chain.tasks_per_stage
        until(lambda: topics.count("dead") >= dead.total())
        until(lambda: topics.count("out-a") >= out.total() <= topics.count("out-b"))
        until(
            lambda: (
                rejected(control, job) == dead
                and sum(taken(control, job, "enrich").values()) == 2 * RECORDS + 6
            )
        )
        assert taken(control, job, "clicks").keys() == {0, 1}
        assert taken(control, job, "views").keys() == {running.chain.first_reader["views"]}
        edges = {
            (into, one["operator"])
            for one in control.totals(job.id)
            for into, edge in one["in"].items()
        }
        assert {("clicks", "enrich"), ("views", "enrich"), ("enrich", "split")} <= edges
    finally:
        running.stop()
    for topic in ("out-a", "out-b"):
        assert Counter(row.value for row in topics.read(topic)) == out
    letters = topics.read("dead")
    dead_letters = [json.loads(row.value) for row in letters]
    assert Counter(letter["at"] for letter in dead_letters) == dead
    assert {"nonsense", "[1]", "", "{", '{"user": "u1", "n": "many"}'} <= {
        letter.get("value") for letter in dead_letters if letter["at"] in {"clicks", "views"}
    }
    at_enrich = next(letter for letter in dead_letters if letter["at"] == "enrich")
    assert at_enrich["reason"] == "where cannot be evaluated for this row"
    assert "DIVIDE_BY_ZERO" in at_enrich["error"]
    unparsed = next(letter for letter in dead_letters if "many" in letter.get("value", ""))
    assert "field name 'n'" in unparsed["error"]
    assert unparsed["source"].startswith("clicks-")
    assert json.loads(at_enrich["value"])["n"] == 0
    ids = {header.value for row in letters for header in row.headers if header.key == ID_HEADER}
    assert len(ids) > RECORDS / 10
    assert all(one.startswith((b"clicks-", b"views-")) for one in ids)
    # The rows that `explode` made of a record can be told apart.
    ids = {header.value for row in topics.read("out-a") for header in row.headers}
    assert len(ids) == out.total()


def keyed_job() -> Job:
    return parse_job("""
name: keyed
trigger: {realTime: 10 minutes}
sources:
  - name: src
    options: {subscribe: keyed-in, startingOffsets: earliest}
    schema: {v: INT}
    metadata: {k: key, part: partition, at: timestamp, heads: headers, place: offset, of: topic}
operators:
  - name: op
    input: src
    select:
      - v
      - CAST(k AS STRING) AS k
      - part
      - of
      - place
      - unix_millis(at) AS at_ms
      - CAST(heads[0].value AS STRING) AS head
    parallelism: {initial: 1, max: 2}
sinks:
  - {name: by-key, input: op, key: "concat(k, '!')", options: {topic: keyed-a}}
  - {name: by-number, input: op, key: 100 div v, options: {topic: keyed-b}}
  - {name: by-nothing, input: op, options: {topic: keyed-c}}
dead_letter_topic: keyed-dead
""")


def test_the_parts_of_a_kafka_record_are_columns_and_sinks_have_keys(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    names = ("keyed-a", "keyed-b", "keyed-c", "keyed-dead")
    topics.create(**dict.fromkeys(names, 1), **{"keyed-in": 2})
    written_ms = 1000 * int(time.time())
    producer = Producer({**broker.client, "log_level": 0})
    for i in range(10):
        producer.produce(
            "keyed-in",
            json.dumps({"v": i}),
            key=f"key{i}",
            partition=i % 2,
            headers=[("first", f"head{i}")],
            timestamp=written_ms + i,
        )
    assert producer.flush(120) == 0
    running = start(spark, keyed_job(), broker, tmp_path / "checkpoint")
    try:
        # A key that cannot be evaluated, here 100 div 0, makes a dead letter.
        wanted = dict.fromkeys(names, 9) | {"keyed-dead": 1}
        until(lambda: all(topics.count(name) >= count for name, count in wanted.items()))
    finally:
        running.stop()
    records = {name: keys_and_values(spark, broker, name) for name in names}
    first = dict(records["keyed-a"])
    assert first.keys() == {f"key{i}!" for i in range(1, 10)}
    assert first["key3!"] == {
        "v": 3,
        "k": "key3",
        "part": 1,
        "of": "keyed-in",
        "place": 1,
        "at_ms": written_ms + 3,
        "head": "head3",
    }
    assert {key: value["v"] for key, value in records["keyed-b"] if value["v"] > 5} == {
        "16": 6,
        "14": 7,
        "12": 8,
        "11": 9,
    }
    assert {key for key, _ in records["keyed-c"]} == {None}
    ((key, letter),) = records["keyed-dead"]
    assert key == "keyed-in-0-0"  # where the record came from
    assert letter["reason"] == "key cannot be evaluated for this row"
    assert json.loads(letter["value"])["v"] == 0


def keys_and_values(spark: SparkSession, kafka: Kafka, topic: str) -> list[tuple[Any, Any]]:
    rows = spark.read.format("kafka").options(**kafka.options, subscribe=topic).load()
    texts = rows.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    return [(row.key, json.loads(row.value)) for row in texts.collect()]


def test_a_record_that_is_too_large_becomes_a_dead_letter_and_the_job_goes_on(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"large-in": 1, "large-out": 1, "large-dead": 1})
    topics.limit("large-in", 10_000_000)
    job = parse_job("""
name: large
trigger: {realTime: 10 minutes}
sources:
- name: src
  options: {subscribe: large-in, startingOffsets: earliest}
  schema: {v: STRING, n: INT}
operators:
- {name: op, input: src, select: [v, 12 DIV n AS n], parallelism: {initial: 1, max: 2}}
sinks: [{name: out, input: op, options: {topic: large-out}}]
dead_letter_topic: large-dead
""")
    running = start(spark, job, broker, tmp_path / "checkpoint")
    try:
        limit = running.chain.largest_record
        # The largest that Kafka takes, one that is a little larger, far larger, and not even JSON.
        overhead = len('{"v":"","n":1}') + len("large-in-0-99") + RECORD_OVERHEAD
        lengths = {2: limit - overhead, 3: limit - overhead + 2, 4: 5_000_000}
        values = [json.dumps({"v": "x" * length, "n": n}) for n, length in lengths.items()]
        small = ['{"v": "z", "n": 0}', *('{"v": "y", "n": 4}',) * 20]
        topics.write("large-in", [*values, "x" * 5_000_000, *small])
        until(lambda: topics.count("large-out") == 21 and topics.count("large-dead") == 4)
        until(lambda: rejected(ProbeControl(spark), job) == {"op": 3, "src": 1})
        assert running.query.exception() is None
    finally:
        running.stop()
    assert Counter(json.loads(row.value)["n"] for row in topics.read("large-out")) == {6: 1, 3: 20}
    letters = [json.loads(row.value) for row in topics.read("large-dead")]
    (divided,) = [letter for letter in letters if "field" in letter]
    assert divided["field"] == "n"
    assert "DIVIDE_BY_ZERO" in divided["error"]
    letters.remove(divided)
    assert all(letter["source"].startswith("large-in-0-") for letter in letters)
    sizes = {(letter["at"], letter["bytes"]) for letter in letters}
    # The id in a record's header has one or two digits more than the first one's.
    assert {("op", 5_000_014), ("src", 5_000_000)} < sizes
    assert all(str(limit) in letter["reason"] for letter in letters if letter["at"] == "op")
    assert all(len(letter["value"]) <= 2**16 for letter in letters)


def test_parallelism_is_changed_while_the_job_runs(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"scale-in": 1, "scale-out": 1})
    job = simple_job("scale")
    running = start(spark, job, broker, tmp_path / "checkpoint")
    control = ProbeControl(spark)
    try:
        topics.write("scale-in", [f'{{"v": {i}}}' for i in range(100)])
        until(lambda: taken(control, job, "op") == {0: 100})
        assert control.use_tasks(job.id, "op", count=3, tasks=4, generation=1)
        until(lambda: "default/scale/op" in control.tables())
        topics.write("scale-in", [f'{{"v": {i}}}' for i in range(100, 400)])
        until(lambda: sum(taken(control, job, "op").values()) == 400)
        assert taken(control, job, "op").keys() == {0, 1, 2}
        assert not control.use_tasks(job.id, "op", count=1, tasks=4, generation=1)
        until(lambda: topics.count("scale-out") >= 400)
    finally:
        running.stop()
    values = sorted(json.loads(row.value)["v"] for row in topics.read("scale-out"))
    assert values == list(range(400))


def test_a_restart_goes_on_where_the_last_life_ended(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"again-in": 1, "again-out": 1})
    job = simple_job("again")
    incarnation = 0

    def came_out(value: str) -> bool:
        return [row.value for row in topics.read("again-out")].count(value) >= 10

    for life in (1, 2):
        topics.write("again-in", [f'{{"v": {life}}}'] * 10)
        running = start(spark, job, broker, tmp_path / "checkpoint")
        try:
            assert running.incarnation > incarnation
            incarnation = running.incarnation
            until(partial(came_out, f'{{"v":{life}}}'))
        finally:
            running.stop()
    assert {row.value for row in topics.read("again-out")} == {'{"v":1}', '{"v":2}'}


def test_other_stages_than_compiled_are_refused(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"odd-in": 1, "odd-out": 1})
    chain = plan_chain(simple_job("odd"), {"src": 1})
    frame = build_frame(spark, chain, broker).repartition(3)
    with pytest.raises(PlanMismatch, match=r"1, 4, 3 tasks for default/odd, expected were 1, 4"):
        start_frame(spark, chain, frame, broker, tmp_path / "checkpoint")
    assert not spark.streams.active


def test_without_slots_for_all_tasks_there_is_no_start(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"wide-in": 1, "wide-out": 1})
    job = simple_job("wide", parallelism="{initial: 1, max: 60, tasks: all}")
    with pytest.raises(QueryNotStarted, match=r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"):
        start(spark, job, broker, tmp_path / "checkpoint")
    assert not spark.streams.active


def test_topics_that_are_missing_are_all_told_before_the_start(
    spark: SparkSession, broker: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = simple_job("absent", more="dead_letter_topic: absent-dead")
    with pytest.raises(InvalidJob) as refused:
        start(spark, job, broker, tmp_path / "checkpoint")
    assert {problem.path for problem in refused.value.problems} == {
        "sources[0].options.subscribe",
        "sinks[0].options.topic",
        "dead_letter_topic",
    }
    monkeypatch.setattr("trilithon.engines.spark.kafka._TIMEOUT_MS", 1000)
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1"):
        start(spark, job, Kafka("127.0.0.1:1"), tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("reflect('java.lang.System', 'exit', 0)", "FUNCTION_NOT_ALLOWED", "'reflect'"),
        ("transform(words, x -> java_method(x, 'y'))", "FUNCTION_NOT_ALLOWED", "'java_method'"),
        ("trilithon.route('j/a>b', 1, n)", "FUNCTION_NOT_ALLOWED", "'trilithon.route'"),
        ("system.builtin.abs(n)", "FUNCTION_NOT_ALLOWED", "'system.builtin.abs'"),
        ("trilithon.instance_number()", "FUNCTION_NOT_ALLOWED", "'trilithon.instance_number'"),
        ("n IN (SELECT 1)", "EXPRESSION_NOT_ALLOWED", "InSubquery"),
        ("EXISTS (SELECT * FROM t)", "EXPRESSION_NOT_ALLOWED", "Exists"),
        ("(SELECT max(x) FROM t)", "EXPRESSION_NOT_ALLOWED", "ScalarSubquery"),
        ("IDENTIFIER('reflect')('a')", "EXPRESSION_NOT_ALLOWED", "UnresolvedIdentifier"),
        ("sum(n) OVER ()", "EXPRESSION_NOT_ALLOWED", "Window"),
        (":p", "EXPRESSION_NOT_ALLOWED", "NamedParameter"),
        ("to_json(struct(*))", "EXPRESSION_NOT_ALLOWED", "UnresolvedStar"),
        ("current_user", "UNKNOWN_COLUMN", "'current_user'"),
        ("`$o` + 1", "UNKNOWN_COLUMN", "'$o'"),
        ("n +", "EXPRESSION_SYNTAX", "Spark cannot parse this"),
    ],
)
def test_what_sparks_own_parser_reads_is_checked_once_more(
    spark: SparkSession, text: str, code: str, said: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        checked_column(spark, text, ["n", "words"], "operators[0].where")
    assert code in {problem.code for problem in refused.value.problems}
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "n BETWEEN 1 AND 2 AND user NOT LIKE ALL ('a%', 'b') OR user RLIKE 'x' OR user ILIKE 'y'",
        "CASE WHEN n > 1 THEN -n % 2 ELSE ~n << 1 END",
        "transform(words, (x, i) -> concat(x, '-', i))[0] || trim(BOTH 'x' FROM user)",
        "current_date > DATE '2020-01-01' AND extract(YEAR FROM current_timestamp()) <> 1",
        "substring(user FROM 1 FOR 2) IN ('a', 'b') AND n IS NOT NULL",
        "CAST(n AS DECIMAL(10, 2)) / 3 <=> try_cast(user AS INT)",
        "position('a' IN user) + n DIV 2 + (n & 1 | 2 ^ 3)",
        "struct(n, user).n + work(0) + wait(0.5)",
    ],
)
def test_what_the_reader_of_job_files_lets_through_spark_takes(
    spark: SparkSession, text: str
) -> None:
    rows = spark.createDataFrame([("ab", 3, ["p", "q"])], "user STRING, n INT, words ARRAY<STRING>")
    column = checked_column(spark, text, rows.columns, "")
    assert len(rows.select(column).collect()) == 1


def test_a_column_that_slips_through_is_refused_by_its_name(
    spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    good = simple_job("slip", "v AS w")
    work = good.operators[0].work
    bad = type(work)(select=("v AS w", "vv + 1 AS x", "reflect('a', 'b') AS y"))
    operator = type(good.operators[0])("op", bad)
    job = Job(good.tenant, good.name, good.sources, (operator,), good.edges, good.sinks)
    with pytest.raises(InvalidJob) as refused:
        build_frame(spark, plan_chain(job), broker)
    problems = {problem.path: problem for problem in refused.value.problems}
    assert problems["operators[0].select[1]"].code == "UNKNOWN_COLUMN"
    assert "'vv'" in problems["operators[0].select[1]"].message
    assert "Did you mean 'v'?" in problems["operators[0].select[1]"].hint
    assert problems["operators[0].select[2]"].code == "FUNCTION_NOT_ALLOWED"


def test_what_sparks_analysis_refuses_is_told_with_its_place(
    spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    for part in ("where: v + 1", "select: ['array_contains(v, 1) AS u']", "explode: {e: v}"):
        job = parse_job(f"""
name: types
sources: [{{name: src, options: {{subscribe: types-in}}, schema: {{v: INT}}}}]
operators: [{{name: op, input: src, {part}}}]
sinks: [{{name: out, input: op, options: {{topic: types-out}}}}]
""")
        with pytest.raises(InvalidJob, match=r"SPARK_REFUSED at operators\[0\]\."):
            build_frame(spark, plan_chain(job), broker)


def test_a_key_that_spark_cannot_hash_is_refused(
    spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    job = parse_job("""
name: maps
sources: [{name: src, options: {subscribe: maps-in}, schema: {m: "MAP<STRING, INT>"}}]
operators: [{name: op, input: {from: src, grouping: by_key, key: [m]}}]
sinks: [{name: out, input: op, options: {topic: maps-out}}]
""")
    with pytest.raises(InvalidJob, match=r"SPARK_REFUSED at operators\[0\]\.inputs"):
        build_frame(spark, plan_chain(job), broker)


def test_rows_of_a_table_must_fit_its_schema(
    spark: SparkSession, broker: Kafka, topics: Topics
) -> None:
    job = parse_job("""
name: rows
sources: [{name: src, options: {subscribe: rows-in}, schema: {v: INT}}]
tables: [{name: t, schema: "v INT, w DOUBLE", rows: [[1, 2], [many, 3]]}]
operators: [{name: op, input: src, join: {table: t, on: [v]}}]
sinks: [{name: out, input: op, options: {topic: rows-out}}]
""")
    with pytest.raises(InvalidJob, match=r"TABLE_ROWS at tables\[0\].rows"):
        build_frame(spark, plan_chain(job), broker)


# Allowed functions that throw for the row ("x", 0, ["p"]) in ANSI mode. Each gives a null struct.
THROWING = """
1 / n; mod(n, 0); CAST(s AS INT); CAST(s AS DATE); 2147483647 + size(words);
element_at(words, 9); words[9]; elt(9, s); to_date(s); to_timestamp(s); make_date(2020, 13, n);
decode(CAST(s AS BINARY), s); to_number(s, '999'); map(s, 1, s, 2); url_decode('%%%');
aggregate(words, 0, (a, x) -> a + CAST(x AS INT)); to_binary(s, 'hex');
regexp_replace(s, concat('[', s), ''); array_insert(words, n, s);
from_json(s, 'a INT', map('mode', 'FAILFAST')).a;
array_repeat(s, 2147483647); sequence(1, 2147483647); wait(-1)
"""


def test_the_number_of_an_instance_is_that_of_its_task(spark: SparkSession) -> None:
    """With it an experiment makes one instance slow, whatever records it gets."""
    task = checked_column(spark, "wait(CASE WHEN instance_number() = 2 THEN 3 ELSE 1 END)", [], "")
    rows = spark.range(80).repartitionById(4, (F.col("id") % 4).cast("int"))
    tried = try_evaluate(spark, F.struct(task.alias("ms")))
    waited = rows.withColumn("waited", F.when(F.col("id") >= 0, tried)).collect()
    assert {(row.id % 4, row.waited.ms) for row in waited} == {(0, 1), (1, 1), (2, 3), (3, 1)}


def test_expressions_that_throw_give_null_when_attempted(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("x", 0, ["p"])], "s STRING, n INT, words ARRAY<STRING>")
    texts = [text.strip() for text in THROWING.split(";")]
    columns = [
        try_evaluate(spark, F.struct(checked_column(spark, text, rows.columns, "").alias("v")))
        for text in (*texts, "concat(s, n)", "nullif(n, 0)")
    ]
    (row,) = rows.select(*(column.alias(str(i)) for i, column in enumerate(columns))).collect()
    *thrown, text, null = row
    assert text.v == "x0"
    assert null.v is None
    assert [text for text, value in zip(texts, thrown, strict=True) if value is not None] == []
