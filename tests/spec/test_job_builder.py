"""From a job file to a job and back: what is refused, where it is reported, nothing is lost."""

from typing import Any

import pytest
from hypothesis import given

from tests.strategies import jobs
from trilithon.errors import InvalidJob
from trilithon.model import validation
from trilithon.model.job import Field, HeldTasks, Job, Parallelism
from trilithon.spec import job_builder
from trilithon.spec.dump import dump_job
from trilithon.spec.functions import KEEPING
from trilithon.spec.job_builder import build_job
from trilithon.spec.job_file import parse_job

GOOD = """\
name: pageload
tenant: ads
sources:
  - name: clicks
    options: {subscribe: clicks}
    schema: {user: STRING, url: STRING, at: TIMESTAMP}
tables:
  - {name: sites, schema: "host STRING, topic STRING", rows: [[a.org, news]]}
operators:
  - name: parse
    input: clicks
    where: url IS NOT NULL
    select: [user, "parse_url(url, 'HOST') AS host", at]
  - name: enrich
    input: parse
    join: {table: sites, on: [host]}
  - name: count
    input: {from: enrich, grouping: by_key, key: [topic]}
    watermark: {eventTime: at, delayThreshold: 10 seconds}
    group_by: [topic]
    window: {timeColumn: at, windowDuration: 1 minute, slideDuration: 10 seconds}
    aggregate: {hits: "count(*)", users: "approx_count_distinct(user)"}
sinks:
  - {name: out, input: count, options: {topic: hits}}
intent:
  priority: 7
  slo:
    - {metric: latency, statistic: p95, at_most: 200 ms}
    - {metric: juice, at_least: 0.9, utility: {function: linear, zero_at: 0.5}}
  constraints:
    - {sequence: [parse, enrich], at_most: 30 ms, over: 5 seconds}
"""


def problems(text: str) -> list[tuple[str, str, int | None]]:
    with pytest.raises(InvalidJob) as caught:
        parse_job(text)
    return [(p.code, p.path, p.line) for p in caught.value.problems]


def test_an_operator_may_say_which_tasks_it_holds() -> None:
    def bounds(text: str) -> Parallelism:
        where = "where: url IS NOT NULL"
        text = GOOD.replace(where, f"{where}\n    parallelism: {text}")
        return parse_job(text).operator("parse").parallelism

    assert bounds("{max: 16}") == Parallelism(1, 1, 16, None)
    assert bounds("{max: 16, tasks: all}") == Parallelism(1, 1, 16, HeldTasks.ALL)
    assert bounds("{max: 16, tasks: follow}") == Parallelism(1, 1, 16, HeldTasks.FOLLOW)
    with pytest.raises(InvalidJob, match="tasks"):
        bounds("{max: 16, tasks: some}")


def test_a_good_file_gives_the_job_that_it_describes() -> None:
    job = parse_job(GOOD)
    assert job.id == "ads/pageload"
    assert job.operator("count").work.stateful
    assert job.operator("count").work.window is not None
    assert job.intent.thresholds[0].value == 200
    assert job.intent.thresholds[1].utility.params == {"zero_at": 0.5}
    assert [str(part) for part in job.intent.constraints[0].sequence] == [
        "parse",
        "parse->enrich",
        "enrich",
    ]
    assert job.instances == 10  # state begins with room for growth
    assert job.tasks == 25


CHANGES: list[tuple[str, str, str, str, int]] = [
    # what is replaced, by what, the code, the path, the line
    ("tenant: ads", "tenant: ads\nspeed: 9", "UNKNOWN_FIELD", "speed", 3),
    ("where: url", "whre: url", "UNKNOWN_FIELD", "operators[0].whre", 12),
    ("from: enrich, ", "form: enrich, ", "UNKNOWN_FIELD", "operators[2].input.form", 18),
    ("name: pageload\n", "", "MISSING_FIELD", "name", 1),
    ("{subscribe: clicks}", "5", "WRONG_TYPE", "sources[0].options", 5),
    ("at_most: 200 ms", "at_most: 200", "BAD_VALUE", "intent.slo[0].at_most", 28),
    ("at_most: 200 ms", "at_most: soon", "BAD_VALUE", "intent.slo[0].at_most", 28),
    ("metric: juice", "metric: jus", "BAD_VALUE", "intent.slo[1].metric", 29),
    ("metric: juice", "metric: latency", "BAD_VALUE", "intent.slo[1]", 29),
    (
        "{user: STRING, url: STRING, at: TIMESTAMP}",
        "user WORD",
        "BAD_SCHEMA",
        "sources[0].schema",
        6,
    ),
    (
        "{subscribe: clicks}",
        "{subscribe: clicks, kafka.sasl.jaas.config: x}",
        "OPTION_NOT_ALLOWED",
        "sources[0].options.kafka.sasl.jaas.config",
        5,
    ),
    (
        "{topic: hits}",
        "{topic: hits, kafka.bootstrap.servers: x}",
        "OPTION_NOT_ALLOWED",
        "sinks[0].options.kafka.bootstrap.servers",
        24,
    ),
    (
        "{topic: hits}",
        "{topic: hits, kafka.acks: 1}",
        "OPTION_LOSES_DATA",
        "sinks[0].options.kafka.acks",
        24,
    ),
    (
        "{subscribe: clicks}",
        "{subscribe: clicks}\n    metadata: {k: value}",
        "BAD_VALUE",
        "sources[0].metadata.k",
        6,
    ),
    (
        "{subscribe: clicks}",
        "{subscribe: clicks}\n    metadata: {URL: key}",
        "DUPLICATE_NAME",
        "sources[0].metadata",
        6,
    ),
    (
        "{subscribe: clicks}",
        "{subscribe: clicks}\n    metadata: {k's: key}",
        "BAD_COLUMN_NAME",
        "sources[0].metadata.k's",
        6,
    ),
    ("input: count,", "input: count, key: topics,", "UNKNOWN_COLUMN", "sinks[0].key", 24),
    ("input: count,", "input: count, key: sum(hits),", "AGGREGATE_NOT_HERE", "sinks[0].key", 24),
    ("url IS NOT NULL", "java_method('a', 'b')", "FUNCTION_NOT_ALLOWED", "operators[0].where", 12),
    ("url IS NOT NULL", "(SELECT 1)", "EXPRESSION_NOT_ALLOWED", "operators[0].where", 12),
    ("url IS NOT NULL", "url IS NOT", "EXPRESSION_SYNTAX", "operators[0].where", 12),
    ("url IS NOT NULL", f"url = '{'x' * 5000}'", "EXPRESSION_TOO_LONG", "operators[0].where", 12),
    ("url IS NOT NULL", "url = space(9999999)", "RESULT_TOO_LARGE", "operators[0].where", 12),
    ("url IS NOT NULL", "link IS NOT NULL", "UNKNOWN_COLUMN", "operators[0].where", 12),
    ("url IS NOT NULL", "count(*) > 1", "AGGREGATE_NOT_HERE", "operators[0].where", 12),
    ("AS host", "AS `ho's`", "BAD_COLUMN_NAME", "operators[0].select[1]", 13),
    (" AS host", "", "NEEDS_ALIAS", "operators[0].select[1]", 13),
    (
        """    window: {timeColumn: at, windowDuration: 1 minute, slideDuration: 10 seconds}
    aggregate: {hits: "count(*)",""",
        """    aggregate: {hits: "size(collect_list(user))",""",
        "STATE_GROWS",
        "operators[2].aggregate.hits",
        21,
    ),
    ("count(*)", "user", "NOT_AN_AGGREGATE", "operators[2].aggregate.hits", 22),
    ("key: [topic]", "key: [nothing]", "UNKNOWN_COLUMN", "operators[2].inputs[0].key", 18),
    ("on: [host]", "on: [hst]", "UNKNOWN_COLUMN", "operators[1].join.on", 16),
    ("eventTime: at", "eventTime: when", "UNKNOWN_COLUMN", "operators[2].watermark.eventTime", 19),
    ("input: parse", "inputs: [parse, clicks]", "COLUMNS_DIFFER", "operators[1].inputs[1]", 15),
    ("input: count", "input: nobody", "UNKNOWN_INPUT", "sinks[0].inputs[0]", 24),
    (
        "[parse, enrich]",
        "[parse, count]",
        "CONSTRAINT_BROKEN",
        "intent.constraints[0].sequence",
        31,
    ),
    ("zero_at: 0.5", "zero_at: 0.95", "UTILITY_PARAMETERS", "intent.slo[1]", 29),
]


@pytest.mark.parametrize(
    ("old", "new", "code", "path", "line"), CHANGES, ids=[c[2] for c in CHANGES]
)
def test_a_mistake_is_told_with_its_code_path_and_line(
    old: str, new: str, code: str, path: str, line: int
) -> None:
    assert old in GOOD
    assert (code, path, line) in problems(GOOD.replace(old, new, 1))


def test_an_operator_may_join_its_records_with_an_input_that_is_broadcast() -> None:
    old = "input: parse\n    join: {table: sites, on: [host]}"
    new = """inputs: [parse, {from: hot, grouping: broadcast}]
    join: {table: hot, on: [host]}
  - {name: hot, input: clicks, select: ["parse_url(url, 'HOST') AS host", "'hot' AS topic"]}"""
    assert old in GOOD
    text = GOOD.replace(old, new)
    job = parse_job(text)
    edge = job.broadcast_table("enrich")
    assert edge is not None
    assert edge.source == "hot"
    assert job.broadcast_table("parse") is None
    # The columns of its other inputs, and those of the broadcast, are checked each by themselves.
    assert problems(text.replace("on: [host]", "on: [topic]"))[0][:2] == (
        "UNKNOWN_COLUMN",
        "operators[1].join.on",
    )
    shuffled = problems(text.replace("grouping: broadcast", "grouping: shuffle"))
    assert "UNKNOWN_TABLE" in {code for code, _, _ in shuffled}


WINDOW = "    window: {timeColumn: at, windowDuration: 1 minute, slideDuration: 10 seconds}\n"


@pytest.mark.parametrize("name", sorted(KEEPING))
def test_what_keeps_every_value_needs_a_window(name: str) -> None:
    call = f"{name.upper()}(user, 0.5)" if name == "percentile" else f"{name.upper()}(user)"
    text = GOOD.replace("count(*)", f"coalesce({call}, NULL)")
    assert parse_job(text).operator("count").work.window is not None
    with pytest.raises(InvalidJob) as caught:
        parse_job(text.replace(WINDOW, ""))
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("STATE_GROWS", "operators[2].aggregate.hits")
    assert problem.line == 21
    assert problem.message.startswith(f"{name} keeps every value of a group")
    assert problem.hint.startswith("Add a `window`, with a `watermark`")


def test_the_hint_names_what_is_close_to_the_function_and_keeps_little() -> None:
    text = GOOD.replace(WINDOW, "").replace("count(*)", "array(median(user), mode(user))")
    with pytest.raises(InvalidJob) as caught:
        parse_job(text)
    (problem,) = caught.value.problems
    assert problem.message.startswith("median, mode keep every value of a group")
    assert problem.hint.endswith("of fixed size: approx_percentile, count, last or max_by.")


@pytest.mark.parametrize(
    "text", ["approx_percentile(length(user), 0.5)", "max_by(user, at)", "sum(length(user))"]
)
def test_what_keeps_little_needs_no_window(text: str) -> None:
    job = parse_job(GOOD.replace(WINDOW, "").replace("count(*)", text))
    assert job.operator("count").work.window is None


def test_every_code_of_the_file_form_is_shown_by_a_test() -> None:
    from tests.spec.test_yaml_reader import BAD  # noqa: PLC0415

    shown = (
        {c[2] for c in CHANGES} | {code for code, _, _ in BAD} | {"TOO_MANY_NODES", "PYTHON_FAILED"}
    )
    assert set(job_builder.CODES) <= shown


def test_a_code_means_one_thing() -> None:
    assert not set(job_builder.CODES) & set(validation.CODES)


def test_problems_come_in_the_order_of_the_file() -> None:
    text = GOOD.replace("url IS NOT NULL", "nosuch(url)").replace("priority: 7", "priority: 0")
    reported = problems(text)
    assert [code for code, _, _ in reported] == ["FUNCTION_NOT_ALLOWED", "OUT_OF_RANGE"]


def test_what_follows_from_a_mistake_is_not_told_again() -> None:
    assert (
        len(
            problems(
                GOOD.replace("url STRING", "link STRING").replace("url: STRING", "link: STRING")
            )
        )
        == 2
    )


def test_a_field_that_does_not_fit_hides_nothing_else() -> None:
    text = GOOD.replace("where: url IS NOT NULL", "whre: x\n    parallelism: two")
    text = text.replace("priority: 7", "priority: 0").replace("topic: hits", "topic: clicks")
    assert [code for code, _, _ in problems(text)] == [
        "UNKNOWN_FIELD",
        "WRONG_TYPE",
        "FEEDBACK_TOPIC",
        "OUT_OF_RANGE",
    ]


def test_an_input_that_does_not_fit_does_not_blame_its_neighbours() -> None:
    assert problems(GOOD.replace("input: parse", "input: 5")) == [
        ("WRONG_TYPE", "operators[1].input", 15)
    ]


def test_a_near_miss_gets_a_suggestion() -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_job(GOOD.replace("where: url", "whre: url"))
    assert "Did you mean 'where'?" in caught.value.problems[0].hint


def test_columns_are_found_whatever_their_case() -> None:
    parse_job(GOOD.replace("url IS NOT NULL", "URL IS NOT NULL"))


@pytest.mark.parametrize("acks", ["all", "-1"])
def test_records_that_all_replicas_acknowledge_may_be_asked_for(acks: str) -> None:
    job = parse_job(GOOD.replace("{topic: hits}", f"{{topic: hits, kafka.acks: {acks}}}"))
    assert dict(job.sinks[0].options)["kafka.acks"] == acks


def test_metadata_are_columns_and_a_sink_may_have_a_key() -> None:
    metadata = "options: {subscribe: clicks}\n    metadata: {sent_at: timestamp, k: key}"
    job = parse_job(
        GOOD.replace("options: {subscribe: clicks}", metadata)
        .replace("select: [user,", 'select: [sent_at, "CAST(k AS STRING) AS k", user,')
        .replace("input: count,", 'input: count, key: "concat(topic, hits)",')
    )
    names = [field.name for field in job.sources[0].columns]
    assert names == ["user", "url", "at", "sent_at", "k"]
    assert job.sources[0].columns[-2:] == (Field("sent_at", "TIMESTAMP"), Field("k", "BINARY"))
    assert job.sinks[0].key == "concat(topic, hits)"
    assert build_job(dump_job(job)) == job


@given(jobs())
def test_a_job_written_down_and_read_again_is_the_same_job(job: Job) -> None:
    assert build_job(dump_job(job)) == job


def test_a_complete_file_survives_the_round_trip() -> None:
    job = parse_job(GOOD)
    assert build_job(dump_job(job)) == job


@pytest.mark.parametrize("data", [{}, {"name": 5}, {"name": "x", "sources": None}])
def test_data_that_is_no_job_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob):
        build_job(data)
