"""Which parts a new version of a job restarts, and when its cuts are emptied first."""

from dataclasses import replace

import pytest

from trilithon.engines.spark.cuts import cut_into_parts, part_job
from trilithon.engines.spark.part_planner import PlannedJob, internal_topics, part_checkpoint
from trilithon.engines.spark.part_versions import (
    changed_parts,
    check_same_sources,
    check_same_states,
    relinked,
)
from trilithon.errors import NeedsNewCheckpoint
from trilithon.model.intent import Intent
from trilithon.model.job import HeldTasks, Job, Parallelism, Work
from trilithon.spec.job_file import parse_job

ALL, FOLLOW = HeldTasks.ALL, HeldTasks.FOLLOW
DIAMOND = parse_job("""
name: j
sources: [{name: in, options: {subscribe: t}, schema: v INT}]
operators:
  - {name: a, input: in}
  - {name: b, input: a}
  - {name: c, input: a}
  - {name: d, inputs: [b, c]}
sinks: [{name: out, input: d, options: {topic: o}}]
""")


def planned(job: Job, version: str = "") -> PlannedJob:
    """As the planner does, with topics whose names depend on the columns that they carry."""
    graph = cut_into_parts(job)
    parts = (part_job(graph, p, lambda cut: f"{cut.name}{version}", {}) for p in graph.parts)
    return PlannedJob(job, tuple(parts), (), resumed=False)


def with_operator(job: Job, name: str, **changes: object) -> Job:
    changed = [
        replace(o, **changes) if o.name == name else o  # type: ignore[arg-type]
        for o in job.operators
    ]
    return replace(job, operators=tuple(changed))


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (DIAMOND, []),
        (replace(DIAMOND, intent=Intent(priority=9.0)), []),
        (with_operator(DIAMOND, "b", parallelism=Parallelism(2, 1, 8)), []),
        (with_operator(DIAMOND, "b", work=Work(where="v > 1")), ["b"]),
        (with_operator(DIAMOND, "a", work=Work(where="v > 1")), ["a"]),
        # The topic before it gets more partitions: who writes to them must know.
        (with_operator(DIAMOND, "b", parallelism=Parallelism(1, 1, 9, ALL)), ["a", "b"]),
        # Where tasks follow the use of the operator, partitions do not.
        (with_operator(DIAMOND, "b", parallelism=Parallelism(1, 1, 9)), ["b"]),
        (with_operator(DIAMOND, "b", parallelism=Parallelism(1, 1, 8, ALL)), []),
        (with_operator(DIAMOND, "b", parallelism=Parallelism(1, 1, 8, FOLLOW)), ["b"]),
        (replace(DIAMOND, batch_s=60.0), ["a", "b", "c", "d"]),
    ],
    ids=[
        "same",
        "intent",
        "instances",
        "work",
        "work of the first",
        "tasks",
        "tasks that follow",
        "all tasks, as before",
        "fewer tasks",
        "batches",
    ],
)
def test_only_parts_whose_query_differs_are_restarted(version: Job, parts: list[str]) -> None:
    before, after = planned(DIAMOND), planned(version)
    assert not relinked(before, after)
    heads = [part.operators[0].name for part in changed_parts(before, after)]
    assert [head for head in heads if head in "abcd"] == parts
    check_same_sources(before, after)


def test_other_columns_or_other_edges_are_other_links() -> None:
    before = planned(DIAMOND)
    assert relinked(before, planned(DIAMOND, "-other-columns"))
    wider = replace(
        DIAMOND,
        operators=(*DIAMOND.operators, replace(DIAMOND.operators[1], name="e")),
        edges=(
            *DIAMOND.edges,
            replace(DIAMOND.edges[1], target="e"),
            replace(DIAMOND.edges[1], source="e", target="d"),
        ),
    )
    assert relinked(before, planned(wider))
    check_same_sources(before, planned(wider))


def test_another_reader_of_a_source_needs_a_checkpoint_that_does_not_exist() -> None:
    two = replace(
        DIAMOND,
        edges=tuple(
            replace(edge, source="in") if edge.target == "c" else edge for edge in DIAMOND.edges
        ),
    )
    with pytest.raises(NeedsNewCheckpoint, match="j~c reads other topics"):
        check_same_sources(planned(DIAMOND), planned(two))


def test_a_checkpoint_belongs_to_the_topics_whose_offsets_it_has() -> None:
    first, *_, last = planned(DIAMOND).parts
    assert internal_topics(first) == {}
    assert part_checkpoint("", first) == ""
    assert part_checkpoint("v2", first) == "v2"
    assert internal_topics(last) == {"b.d": "b.d", "c.d": "c.d"}
    name = part_checkpoint("", last)
    assert name.startswith("first-")
    *_, other = planned(DIAMOND, "-x").parts
    assert part_checkpoint("", other) != name


def with_another_name(job: Job, before: str, after: str) -> Job:
    operators = (replace(o, name=after) if o.name == before else o for o in job.operators)
    ends = {before: after}
    edges = (
        replace(e, source=ends.get(e.source, e.source), target=ends.get(e.target, e.target))
        for e in job.edges
    )
    return replace(job, operators=tuple(operators), edges=tuple(edges))


COUNTING = with_operator(
    DIAMOND,
    "b",
    work=Work(group_by=("v",), aggregate=(("v", "count(*)"),)),
    parallelism=Parallelism(8, 1, 8),
)


def test_state_stays_with_its_part_and_with_the_topics_that_it_was_read_from() -> None:
    before = planned(COUNTING)
    check_same_states(before, planned(with_operator(COUNTING, "c", work=Work(where="v > 1"))))
    check_same_states(
        before, planned(with_operator(COUNTING, "b", parallelism=Parallelism(4, 1, 8)))
    )
    check_same_states(planned(DIAMOND), planned(DIAMOND, "-other-columns"))
    for version, why in (
        (planned(COUNTING, "-other-columns"), "would get other columns"),
        (planned(with_operator(COUNTING, "b", work=Work())), "keeps another state"),
        (planned(with_another_name(COUNTING, "b", "e")), "is left out"),
    ):
        with pytest.raises(NeedsNewCheckpoint, match=why):
            check_same_states(before, version)


def test_who_reads_rows_of_an_aggregate_is_restarted_if_they_are_none_any_more() -> None:
    cuts = {
        cut.name: cut.aggregated for part in planned(COUNTING).parts for cut in part.reads.values()
    }
    assert cuts == {"a.b": False, "a.c": False, "b.d": True, "c.d": False}
    parts = changed_parts(planned(DIAMOND), planned(COUNTING))
    assert [part.operators[0].name for part in parts] == ["b", "d"]
