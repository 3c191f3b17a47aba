"""A job is cut into parts: lines of operators with one writer each, and the fewest topics."""

import pytest
from hypothesis import given

from tests import strategies
from trilithon.engines.spark.cuts import (
    Cut,
    PartJob,
    PlanGraph,
    cut_into_parts,
    is_cut,
    job_of,
    part_allocation,
    part_job,
)
from trilithon.engines.spark.held_tasks import tasks_at_start
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Job
from trilithon.model.validation import validate
from trilithon.spec.job_file import parse_job
from trilithon.workloads.paper_jobs import load_topology


def topic_of(cut: Cut) -> str:
    return f"topic.{cut.name}"


def jobs_of(graph: PlanGraph) -> list[PartJob]:
    return [part_job(graph, part, topic_of, {}) for part in graph.parts]


@given(strategies.jobs(max_operators=9))
def test_every_operator_is_in_one_part_and_every_edge_in_one_part_or_one_cut(job: Job) -> None:
    graph = cut_into_parts(job)
    placed = [operator for part in graph.parts for operator in part.operators]
    assert sorted(o.name for o in placed) == sorted(o.name for o in job.operators)
    operators = {operator.name for operator in job.operators}
    inside = [
        Edge(a.name, b.name).name
        for part in graph.parts
        for a, b in zip(part.operators, part.operators[1:], strict=False)
    ]
    read = [cut.edge.name for part in graph.parts for cut in part.reads]
    own = [Edge(source.name, part.name).name for part in graph.parts for source in part.sources]
    sunk = [
        Edge(part.operators[-1].name, sink.name).name for part in graph.parts for sink in part.sinks
    ]
    direct = [e.name for e in job.edges if e.source not in operators and e.target not in operators]
    assert sorted(map(str, inside + read + own + sunk + direct)) == sorted(
        str(edge.name) for edge in job.edges
    )
    # What one part writes, exactly one other reads; and an internal cut has exactly one writer.
    written = sorted(str(cut.edge.name) for cut in graph.cuts)
    internal = [c for part in graph.parts for c in part.reads if c.internal]
    assert written == sorted(str(cut.edge.name) for cut in internal)


@given(strategies.jobs(max_operators=9))
def test_each_part_is_a_line_and_comes_after_what_it_reads(job: Job) -> None:
    graph = cut_into_parts(job)
    ended: set[str] = set()
    for part in graph.parts:
        for cut in part.reads:
            assert not cut.internal or cut.edge.source in ended
        for before, after in zip(part.operators, part.operators[1:], strict=False):
            assert [edge.target for edge in job.children[before.name]] == [after.name]
            assert [edge.source for edge in job.parents[after.name]] == [before.name]
        ended.add(part.operators[-1].name)


@given(strategies.jobs(max_operators=9))
def test_no_cut_could_be_left_out(job: Job) -> None:
    """Without it a query would have two readers of one stage, a union behind a shuffle, or a writer
    in its middle.
    """
    for cut in cut_into_parts(job).cuts:
        edge = cut.edge
        assert len(job.children[edge.source]) > 1 or len(job.parents[edge.target]) > 1


@given(strategies.jobs(max_operators=9))
def test_a_part_is_a_valid_job_with_the_tasks_that_it_holds(job: Job) -> None:
    graph = cut_into_parts(job)
    for part, of_part in zip(graph.parts, jobs_of(graph), strict=True):
        assert of_part.tasks == part.most_tasks
        idle = sum(o.tasks - tasks_at_start(o) for o in part.operators)
        assert part.tasks == part.most_tasks - idle
        assert job_of(of_part.id) == job.id
        assert of_part.order[-1] in {sink.name for sink in of_part.sinks}
        assert {edge.source for edge in of_part.edges} <= dict(of_part.nodes()).keys()
        assert {edge.target for edge in of_part.edges} <= dict(of_part.nodes()).keys()
        assert all(is_cut(name) for name in (*of_part.reads, *of_part.writes))
        assert len(of_part.order) == len(list(of_part.nodes()))  # nothing is left unconnected
        assert len({of_part.id for of_part in jobs_of(graph)}) == len(graph.parts)
    assert graph.tasks == sum(part.tasks for part in graph.parts)
    assert not list(validate(job))


@given(strategies.jobs(max_operators=9))
def test_the_allocation_of_a_job_is_divided_among_its_parts(job: Job) -> None:
    whole = initial(job)
    shares = [part_allocation(whole, part) for part in jobs_of(cut_into_parts(job))]
    assert sum(share.instances for share in shares) == whole.instances
    joined = {name: n for share in shares for name, n in share.parallelism.items()}
    assert joined == whole.parallelism


@pytest.mark.parametrize(
    ("name", "parts", "cuts"),
    [
        ("linear", 1, 0),
        ("diamond", 5, 6),
        ("star", 5, 4),
        ("network", 5, 5),
    ],
)
def test_the_papers_topologies_are_cut_where_they_fan_out_or_merge(
    name: str, parts: int, cuts: int
) -> None:
    graph = cut_into_parts(load_topology(name))
    assert (len(graph.parts), len(graph.cuts)) == (parts, cuts)


def test_a_line_between_a_merge_and_a_fan_out_stays_one_query() -> None:
    job = parse_job("""
name: lines
sources: [{name: s, options: {subscribe: t}, schema: v INT}]
operators:
  - {name: a, input: s}
  - {name: b, input: a}
  - {name: c, input: b}
  - {name: d, input: b}
  - {name: e, inputs: [c, d]}
  - {name: f, input: e}
sinks: [{name: out, input: f, options: {topic: o}}]
""")
    graph = cut_into_parts(job)
    lines = ["".join(operator.name for operator in part.operators) for part in graph.parts]
    assert sorted(lines) == ["ab", "c", "d", "ef"]


def test_a_source_with_two_readers_is_read_twice_and_needs_no_internal_topic() -> None:
    job = parse_job("""
name: twice
sources: [{name: s, options: {subscribe: t}, schema: v INT, partitions: 3}]
operators: [{name: a, input: s}, {name: b, input: s}]
sinks: [{name: x, input: a, options: {topic: o}}, {name: y, input: b, options: {topic: p}}]
""")
    graph = cut_into_parts(job)
    assert graph.cuts == ()
    first, second = jobs_of(graph)
    assert (first.sources[0].name, second.sources[0].name) == ("s", "s.b")
    assert first.topics == second.topics == (("t",),)
    # The copies of a record get different ids: what follows may merge them.
    assert second.reads["s.b"].one_of_several
    assert graph.tasks == 2 * (3 + 8)


def test_a_sink_may_be_written_by_two_parts() -> None:
    job = parse_job("""
name: both
sources:
  - {name: s, options: {subscribe: t}, schema: v INT}
  - {name: r, options: {subscribe: u}, schema: v INT}
operators: [{name: a, input: s}, {name: b, input: r}]
sinks: [{name: x, inputs: [a, b], options: {topic: o}}]
""")
    graph = cut_into_parts(job)
    assert [[sink.name for sink in part.sinks] for part in graph.parts] == [["x"], ["x"]]
