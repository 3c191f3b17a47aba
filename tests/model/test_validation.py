"""Validation: every rule has a job that breaks it, and a good job breaks none."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import COLUMNS, jobs
from trilithon.model.intent import Constraint, EdgeName, Intent, Metric, Threshold
from trilithon.model.job import (
    Bounds,
    Edge,
    Grouping,
    Job,
    Join,
    Operator,
    Parallelism,
    Sink,
    Source,
    Table,
    TimeWindow,
    Watermark,
    Work,
)
from trilithon.model.profile import Profile
from trilithon.model.utility import Utility
from trilithon.model.validation import CODES, validate

GOOD = Job(
    tenant="ads",
    name="good",
    sources=(Source("s", COLUMNS, (("subscribe", "in"),)),),
    operators=(Operator("a"), Operator("b")),
    edges=(Edge("s", "a"), Edge("a", "b"), Edge("b", "k")),
    sinks=(Sink("k", (("topic", "out"),)),),
    intent=Intent((Threshold(Metric.LATENCY, 100),)),
)


def with_work(**work: Any) -> Job:
    return replace(GOOD, operators=(Operator("a", Work(**work)), Operator("b")))


def with_slo(*thresholds: Threshold) -> Job:
    return replace(GOOD, intent=Intent(thresholds))


def with_sequence(*parts: str | EdgeName) -> Job:
    return replace(GOOD, intent=Intent(constraints=(Constraint(parts, 10, 10),)))


LATE = Watermark("at", 10)
BROKEN: list[tuple[str, str, Job]] = [
    ("BAD_NAME", "name", replace(GOOD, name="Not A Name")),
    ("BAD_NAME", "tenant", replace(GOOD, tenant="")),
    (
        "BAD_TOPIC",
        "sources[0].options.subscribe",
        replace(GOOD, sources=(Source("s", COLUMNS, ()),)),
    ),
    ("BAD_TOPIC", "sinks[0].options.topic", replace(GOOD, sinks=(Sink("k", (("topic", "a b"),)),))),
    ("BATCH_TOO_SHORT", "trigger.realTime", replace(GOOD, batch_s=1)),
    (
        "BOUNDS_CROSSED",
        "operators[0].parallelism",
        replace(GOOD, operators=(Operator("a", parallelism=Parallelism(9, 1, 8)), Operator("b"))),
    ),
    ("BOUNDS_CROSSED", "bounds.max_instances", replace(GOOD, bounds=Bounds(max_instances=1))),
    ("CONSTRAINT_BROKEN", "intent.constraints[0].sequence", with_sequence("zz")),
    ("CONSTRAINT_BROKEN", "intent.constraints[0].sequence", with_sequence("b", EdgeName("a", "b"))),
    (
        "CONSTRAINT_BROKEN",
        "intent.constraints[0].sequence",
        with_sequence(EdgeName("s", "a"), EdgeName("a", "b")),
    ),
    ("CONSTRAINT_BROKEN", "intent.constraints[0].sequence", with_sequence()),
    ("CYCLE", "operators", replace(GOOD, edges=(*GOOD.edges, Edge("b", "a")))),
    ("CYCLE", "operators", replace(GOOD, edges=(*GOOD.edges, Edge("a", "a")))),
    (
        "DEAD_END",
        "operators[1]",
        replace(GOOD, edges=(Edge("s", "a"), Edge("a", "b"), Edge("a", "k"))),
    ),
    (
        "DUPLICATE_EDGE",
        "operators[0].inputs[1]",
        replace(GOOD, edges=(*GOOD.edges, Edge("s", "a"))),
    ),
    ("DUPLICATE_NAME", "sinks[0].name", replace(GOOD, sinks=(Sink("a", (("topic", "out"),)),))),
    (
        "FEEDBACK_TOPIC",
        "sinks[0].options.topic",
        replace(GOOD, sinks=(Sink("k", (("topic", "in"),)),)),
    ),
    ("FEEDBACK_TOPIC", "dead_letter_topic", replace(GOOD, dead_letter_topic="in")),
    (
        "INCOMPLETE_WORK",
        "operators[0].window",
        with_work(window=TimeWindow("at", 10), watermark=LATE),
    ),
    ("INCOMPLETE_WORK", "operators[0].group_by", with_work(group_by=("k",))),
    ("INCOMPLETE_WORK", "operators[0].aggregate", with_work(aggregate=(("n", "count(*)"),))),
    ("INCOMPLETE_WORK", "operators[0].deduplicate", with_work(deduplicate=("k",))),
    ("INCOMPLETE_WORK", "tables[0]", replace(GOOD, tables=(Table("t", COLUMNS),))),
    (
        "KEY_MISMATCH",
        "operators[0].inputs[0]",
        replace(GOOD, edges=(Edge("s", "a", Grouping.BY_KEY), *GOOD.edges[1:])),
    ),
    (
        "KEY_MISMATCH",
        "operators[0].inputs[0]",
        replace(GOOD, edges=(Edge("s", "a", key=("k",)), *GOOD.edges[1:])),
    ),
    ("NO_INPUT", "operators[0]", replace(GOOD, edges=GOOD.edges[1:])),
    ("NO_INPUT", "sinks[0]", replace(GOOD, edges=GOOD.edges[:2])),
    ("NO_SINK", "sinks", replace(GOOD, sinks=())),
    ("NO_SOURCE", "sources", replace(GOOD, sources=())),
    ("OUT_OF_RANGE", "intent.priority", replace(GOOD, intent=Intent(priority=0))),
    ("OUT_OF_RANGE", "intent.slo[0]", with_slo(Threshold(Metric.LATENCY, 0))),
    ("OUT_OF_RANGE", "intent.slo[0]", with_slo(Threshold(Metric.JUICE, 1.5))),
    (
        "OUT_OF_RANGE",
        "sources[0].partitions",
        replace(GOOD, sources=(replace(GOOD.sources[0], partitions=0),)),
    ),
    ("OUT_OF_RANGE", "sinks[0].weight", replace(GOOD, sinks=(replace(GOOD.sinks[0], weight=-1),))),
    (
        "OUT_OF_RANGE",
        "operators[0].parallelism",
        replace(GOOD, operators=(Operator("a", parallelism=Parallelism(0, 0, 8)), Operator("b"))),
    ),
    (
        "OUT_OF_RANGE",
        "operators[0].profile.cpu_share",
        replace(GOOD, operators=(Operator("a", profile=Profile(cpu_share=2)), Operator("b"))),
    ),
    (
        "OUT_OF_RANGE",
        "operators[0].window.slideDuration",
        with_work(window=TimeWindow("at", 10, 20), watermark=LATE, aggregate=(("n", "count(*)"),)),
    ),
    (
        "OUT_OF_RANGE",
        "tables[0].rows[0]",
        replace(GOOD, tables=(Table("t", COLUMNS, rows=((1,),)),)),
    ),
    (
        "UNKNOWN_INPUT",
        "operators[0].inputs[0]",
        replace(GOOD, edges=(Edge("zz", "a"), *GOOD.edges[1:])),
    ),
    ("UNKNOWN_INPUT", "operators[0].inputs[1]", replace(GOOD, edges=(*GOOD.edges, Edge("k", "a")))),
    ("UNKNOWN_TARGET", "edges", replace(GOOD, edges=(*GOOD.edges, Edge("a", "ghost")))),
    ("UNKNOWN_TARGET", "edges", replace(GOOD, edges=(*GOOD.edges, Edge("a", "s")))),
    ("UNKNOWN_OPERATOR", "bounds.fixed[0]", replace(GOOD, bounds=Bounds(fixed=("zz",)))),
    ("UNKNOWN_TABLE", "operators[0].join.table", with_work(join=Join("zz", ("k",)))),
    (
        "UNKNOWN_UTILITY",
        "intent.slo[0].utility",
        with_slo(Threshold(Metric.JUICE, 1, None, Utility("zz"))),
    ),
    ("UTILITY_PARAMETERS", "intent.slo[0]", with_slo(Threshold(Metric.LATENCY, 9, "p12"))),
    ("UTILITY_PARAMETERS", "intent.slo[0].statistic", with_slo(Threshold(Metric.JUICE, 1, "p95"))),
]


@pytest.mark.parametrize(
    ("code", "path", "job"), BROKEN, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_broken_rule_is_told_with_its_place_and_how_to_mend_it(
    code: str, path: str, job: Job
) -> None:
    problems = {(problem.code, problem.path): problem for problem in validate(job)}
    assert (code, path) in problems
    assert problems[code, path].message.endswith(".")
    assert problems[code, path].hint


def test_every_code_has_a_job_that_shows_it() -> None:
    assert {code for code, _, _ in BROKEN} == set(CODES)


@given(jobs())
def test_a_good_job_has_no_problems(job: Job) -> None:
    assert validate(job) == ()


def test_all_problems_are_told_at_once() -> None:
    job = replace(GOOD, name="Bad", batch_s=1, bounds=Bounds(fixed=("zz",)))
    assert [problem.code for problem in validate(job)] == [
        "BAD_NAME",
        "UNKNOWN_OPERATOR",
        "BATCH_TOO_SHORT",
    ]


@given(jobs(), st.data())
def test_whatever_is_done_to_the_edges_validation_answers(job: Job, data: st.DataObject) -> None:
    """A cycle beside an unknown input once sent the search for the cycle round for ever."""
    names = [name for name, _ in job.nodes()] + ["nobody"]
    edge = st.builds(Edge, st.sampled_from(names), st.sampled_from(names))
    edges = tuple(data.draw(st.lists(edge, max_size=12)))
    for problem in validate(replace(job, edges=edges)):
        assert problem.code in CODES


def test_the_cycle_is_named() -> None:
    job = replace(GOOD, edges=(*GOOD.edges, Edge("b", "a")))
    (cycle,) = [p for p in validate(job) if p.code == "CYCLE"]
    assert "a -> b -> a" in cycle.message or "b -> a -> b" in cycle.message
