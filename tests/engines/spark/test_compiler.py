"""What a job becomes on Spark, and what this engine says it cannot run. Without Spark."""

from dataclasses import replace

import pytest

from trilithon.engines.spark.compiler import CODES, Stage, plan_chain, unsupported
from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.engines.spark.engine import _refused
from trilithon.engines.spark.expressions import qualify_probe_functions
from trilithon.errors import InvalidJob, Problem
from trilithon.model import validation
from trilithon.model.job import Job
from trilithon.spec import job_builder
from trilithon.spec.job_file import parse_job

CLICKS = (
    "{name: clicks, options: {subscribe: clicks}, schema: {user: STRING, n: INT, at: TIMESTAMP}}"
)
VIEWS = "{name: views, options: {subscribe: views}, schema: {user: STRING, n: INT, at: TIMESTAMP}}"


def job(operators: str, sinks: str, sources: str = CLICKS, more: str = "") -> Job:
    return parse_job(
        f"name: j\nsources: [{sources}]\noperators: [{operators}]\nsinks: [{sinks}]\n{more}"
    )


def sink(name: str, reads: str, options: str = "") -> str:
    return f"{{name: {name}, input: {reads}, options: {{topic: {name}{options}}}}}"


def problems(of: Job) -> dict[str, str]:
    with pytest.raises(InvalidJob) as refused:
        plan_chain(of)
    return {problem.code: str(problem) for problem in refused.value.problems}


def test_a_chain_has_a_stage_of_readers_and_one_for_each_operator() -> None:
    operators = """{name: b, input: a, parallelism: 2}, {name: a, inputs: [clicks, views],
        parallelism: {initial: 1, min: 1, max: 3}}"""
    chain = plan_chain(
        job(operators, f"{sink('x', 'b')}, {sink('y', 'b')}", f"{CLICKS}, {VIEWS}"),
        {"clicks": 4, "views": 2},
    )
    assert chain.stages == (Stage("clicks+views", 6), Stage("a", 3), Stage("b", 8))
    assert chain.names == ("clicks+views", "a", "b")
    assert chain.tasks_per_stage == (6, 3, 8)
    assert chain.first_reader == {"clicks": 0, "views": 4}
    assert chain.path(chain.operators[0]) == "operators[1]"


def test_without_an_answer_from_kafka_the_jobs_own_partitions_are_believed() -> None:
    partitioned = CLICKS.replace("}}", "}, partitions: 5}")
    assert plan_chain(job("{name: a, input: clicks}", sink("x", "a"), partitioned)).readers == (5,)
    assert plan_chain(job("{name: a, input: clicks}", sink("x", "a"))).readers == (1,)


@pytest.mark.parametrize(
    ("operators", "sinks", "parts"),
    [
        (
            "{name: a, input: clicks}, {name: b, input: a}, {name: c, input: a}",
            "{name: x, inputs: [b, c], options: {topic: x}}",
            ["a", "b", "c"],
        ),
        (
            "{name: a, input: clicks}, {name: b, input: a}",
            f"{sink('x', 'a')}, {sink('y', 'b')}",
            ["a", "b"],
        ),
        (
            "{name: a, input: clicks}, {name: b, input: clicks}, {name: c, inputs: [a, b]}",
            sink("x", "c"),
            ["a", "b", "c"],
        ),
        (
            "{name: a, input: clicks}, {name: b, inputs: [a, clicks]}",
            sink("x", "b"),
            ["a", "b"],
        ),
        (
            "{name: a, input: clicks}, {name: b, input: clicks}",
            f"{sink('x', 'a')}, {sink('y', 'b')}",
            ["a", "b"],
        ),
    ],
    ids=["fan-out", "sink in the middle", "diamond", "source joins later", "two lines"],
)
def test_what_divides_or_meets_is_cut_into_parts(
    operators: str, sinks: str, parts: list[str]
) -> None:
    of = job(operators, sinks)
    assert not list(unsupported(of))
    assert [part.name for part in cut_into_parts(of).parts] == parts
    with pytest.raises(ValueError, match="several parts"):
        plan_chain(of)


def test_the_topics_between_parts_of_other_jobs_are_nobodys_to_read_or_write() -> None:
    of = job(
        "{name: a, input: clicks}",
        "{name: x, input: a, options: {topic: trilithon.1.t.j.c.d}}",
        CLICKS.replace("subscribe: clicks", "subscribe: trilithon.1.t.j.a.b"),
        "dead_letter_topic: trilithon.1.t.j.b.c",
    )
    found = [problem.path for problem in unsupported(of) if problem.code == "RESERVED_TOPIC"]
    assert found == ["sources[0].options.subscribe", "sinks[0].options.topic", "dead_letter_topic"]


def test_what_else_this_engine_cannot_run_is_told_with_a_way_out() -> None:
    operators = """{name: a, input: clicks, join: {table: t, on: [user]},
         parallelism: {initial: 1, max: 300}},
        {name: b, input: {from: a, grouping: broadcast},
         watermark: {eventTime: at, delayThreshold: 1 second}, deduplicate: [user]}"""
    of = job(
        operators,
        f"{sink('x', 'b')}, {sink('y', 'b', ', kafka.acks: all')}",
        CLICKS.replace("subscribe: clicks", "subscribe: clicks, minPartitions: 4"),
        "tables: [{name: t, schema: user STRING, path: t.csv, format: csv}]",
    )
    found = problems(of)
    assert found.keys() == {
        "BROADCAST_EDGE",
        "OPTION_NOT_SUPPORTED",
        "SINK_OPTIONS_DIFFER",
        "STATEFUL_OPERATOR",
        "TABLE_FILE",
        "TOO_MANY_TASKS",
    }
    assert "Add 'at' to `deduplicate`" in found["STATEFUL_OPERATOR"]
    assert found["STATEFUL_OPERATOR"].startswith("STATEFUL_OPERATOR at operators[1].deduplicate")


@pytest.mark.parametrize(
    ("operators", "hint"),
    [
        ("{name: b, inputs: [clicks, {from: a, grouping: broadcast}]}", "Join them"),
        (
            "{name: b, input: {from: a, grouping: broadcast}, join: {table: a, on: [user]}}",
            "Give it one",
        ),
        (
            (
                "{name: b, inputs: [a, {from: clicks, grouping: broadcast}],"
                " join: {table: clicks, on: [user]}}"
            ),
            "Put an operator between them",
        ),
        (
            (
                "{name: b, input: {from: a, grouping: broadcast}, group_by: [user],"
                " aggregate: {n: 'count(*)'}}"
            ),
            "Use by_key",
        ),
    ],
    ids=["no join", "nothing to join with", "a source", "state"],
)
def test_a_broadcast_that_spark_cannot_carry_is_refused(operators: str, hint: str) -> None:
    of = job(f"{{name: a, input: clicks}}, {operators}", sink("x", "b"))
    (problem,) = unsupported(of)
    assert problem.code == "BROADCAST_EDGE"
    assert problem.hint.startswith(hint)


def test_a_broadcast_to_join_with_has_one_partition_and_its_own_columns() -> None:
    of = job(
        """{name: a, input: clicks, select: [user, "1 AS weight"]},
        {name: b, inputs: [clicks, {from: a, grouping: broadcast}],
         join: {table: a, on: [user]}, select: [user, weight]},
        {name: c, input: {from: b, grouping: broadcast}}""",
        sink("x", "c"),
    )
    assert not list(unsupported(of))
    graph = cut_into_parts(of)
    (cut,) = graph.cuts
    assert (cut.name, cut.table_key, cut.partitions) == ("a.b", ("user",), 1)
    assert [part.name for part in graph.parts] == ["a", "b"]


def test_a_sink_on_a_source_needs_an_operator_between() -> None:
    of = job("{name: a, input: clicks}", f"{sink('x', 'a')}, {sink('y', 'clicks')}")
    assert "NO_OPERATOR" in problems(of)


def test_sources_that_are_united_have_columns_of_the_same_types() -> None:
    other = VIEWS.replace("n: INT", "n: STRING")
    of = job("{name: a, inputs: [clicks, views]}", sink("x", "a"), f"{CLICKS}, {other}")
    assert "'n' is STRING here and INT in 'clicks'" in problems(of)["COLUMNS_DIFFER"]


def test_two_sinks_do_not_write_to_one_topic() -> None:
    """Every record would be in the topic twice."""
    twice = sink("x", "a") + ", {name: y, input: a, options: {topic: x}}"
    told = problems(job("{name: a, input: clicks}", twice))
    assert set(told) == {"TOPIC_WRITTEN_TWICE"}
    assert "sinks[1].options.topic" in told["TOPIC_WRITTEN_TWICE"]


def test_a_refusal_names_its_code_once() -> None:
    """`STATEFUL_OPERATOR STATEFUL_OPERATOR at operators[0]` was what users read."""
    first = Problem("STATEFUL_OPERATOR", "operators[0]", "It keeps state.", "Leave it out.")
    single = _refused(InvalidJob([first]))
    assert (single.code, single.message) == (
        "STATEFUL_OPERATOR",
        "operators[0]: It keeps state. Leave it out.",
    )
    several = _refused(InvalidJob([first, replace(first, code="TABLE_FILE")]))
    assert several.code == "INVALID_JOB"
    for code in ("STATEFUL_OPERATOR", "TABLE_FILE"):
        assert f"{several.code} {several.message}".count(code) == 1


def test_codes_have_one_meaning() -> None:
    assert not CODES.keys() & (validation.CODES.keys() | job_builder.CODES.keys())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wait(10) AS w", "trilithon.wait(10) AS w"),
        ("a + WORK (b)", "a + trilithon.work (b)"),
        ("`wait`(1)", "trilithon.wait(1)"),
        ("'wait(3)' || wait", "'wait(3)' || wait"),
        ("work + wait(work(1))", "work + trilithon.wait(trilithon.work(1))"),
        ("'é–' || wait(1)", "'é–' || trilithon.wait(1)"),
        ("x.wait(1)", "x.wait(1)"),
        ("wait(9 * instance_number())", "trilithon.wait(9 * spark_partition_id())"),
        ("v", "v"),
    ],
)
def test_the_probes_functions_are_found_by_their_place_not_by_their_letters(
    text: str, expected: str
) -> None:
    assert qualify_probe_functions(text) == expected


def test_skipping_lost_records_is_refused_since_real_time_mode_cannot() -> None:
    source = CLICKS.replace("subscribe: clicks", "subscribe: clicks, failOnDataLoss: false")
    found = problems(job("{name: a, input: clicks, select: [user]}", sink("x", "a"), source))
    assert found.keys() == {"OPTION_NOT_SUPPORTED"}
    assert "failOnDataLoss" in found["OPTION_NOT_SUPPORTED"]
