"""The host's own report: its rows are kept while jobs, allocations and places stay the same."""

from dataclasses import replace

from trilithon.engines.spark.host_report import HostReports, Placed, RunningJob
from trilithon.engines.spark.part_reports import WholeJobs
from trilithon.model.allocation import initial
from trilithon.model.report import Report
from trilithon.spec.job_file import parse_job

JOB = parse_job("""
name: j
tenant: t
sources:
- {name: in, options: {subscribe: in}, schema: {n: BIGINT}, partitions: 2}
operators:
- {name: a, input: in, where: n >= 0, parallelism: {initial: 2, max: 4}}
- {name: b, input: a, select: [n], parallelism: {initial: 3, max: 4}}
sinks:
- {name: out, input: b, options: {topic: out}}
""")
ALLOCATION = initial(JOB)


def running(arrived: float = 0.0, **waiting: float) -> RunningJob:
    return RunningJob(JOB, ALLOCATION, 1, {"in": arrived}, {"in": 2}, waiting)


def equal(kept: Report, fresh: Report) -> bool:
    """Whether a report of kept rows says what one of new rows says."""
    tables = ("instances", "edges", "sinks", "sources")
    keys = ("instance_keys", "edge_keys", "sink_keys", "source_keys", "placed", "lost", "sender")
    return all(getattr(kept, name) == getattr(fresh, name) for name in keys) and all(
        getattr(kept, name).equals(getattr(fresh, name)) for name in tables
    )


def test_rows_are_kept_and_say_what_new_ones_say() -> None:
    host, whole = HostReports("app"), WholeJobs()
    placed: Placed = {(JOB.id, "a"): (0, 3)}
    moved: Placed = {(JOB.id, "a"): (1, 3)}
    more = replace(ALLOCATION, generation=2, parallelism={"a": 4, "b": 3})
    rounds: list[tuple[list[RunningJob], Placed]] = [
        ([running()], {}),
        ([running(7.0)], {}),
        ([running(8.0, a=5.0, b=7.0)], {}),
        ([running(9.0)], placed),
        ([running(9.0)], moved),
        ([replace(running(9.0), allocation=more)], {}),
        ([replace(running(9.0), incarnation=2)], {}),
        ([replace(running(9.0), partitions={"in": 8})], {}),
        ([], {}),
    ]
    for number, (jobs, places) in enumerate(rounds):
        report = host.report(number, 1.0, jobs, ("lost",), places, whole)
        fresh = HostReports("app").report(number, 1.0, jobs, ("lost",), places, whole)
        assert equal(report, fresh)
    first, second = (host.report(n, 1.0, [running(float(n))]) for n in (10, 11))
    assert second.instances is first.instances
    assert second.edges is first.edges
    assert [report.sources.arrived[0] for report in (first, second)] == [10.0, 11.0]


def test_what_waits_before_an_operator_is_divided_among_its_instances() -> None:
    report = HostReports().report(1, 1.0, [running(0.0, a=5.0, b=7.0)])
    sent = dict(zip(report.instance_keys, report.instances.sent.tolist(), strict=True))
    assert [sent[JOB.id, "a", index] for index in range(2)] == [2.0, 2.0]
    assert [sent[JOB.id, "b", index] for index in range(3)] == [2.0, 2.0, 2.0]


def test_a_job_whose_parts_restart_gets_rows_of_its_new_incarnation() -> None:
    host, whole = HostReports(), WholeJobs()
    before = host.report(1, 1.0, [running()], whole=whole)
    whole.incarnations[JOB.id] = 4.0
    after = host.report(2, 1.0, [running()], whole=whole)
    assert before.sinks.incarnation.tolist() == [1.0]
    assert after.sinks.incarnation.tolist() == [4.0]
