"""Constraints: the mean latency of a path is that of its parts together, against its limit."""

from dataclasses import replace

import numpy as np
import pytest

from tests.strategies import COLUMNS
from trilithon.measures.assess import assess, assess_latest
from trilithon.measures.constraints import (
    ConstraintAssessment,
    ConstraintTable,
    assess_constraints,
)
from trilithon.model.columns import Edges, Instances
from trilithon.model.intent import Constraint, Intent, sequence_of
from trilithon.model.job import Edge, Job, Operator, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot


def chain(name: str, *constraints: Constraint) -> Job:
    return Job(
        tenant="t",
        name=name,
        sources=(Source("s", COLUMNS, ()),),
        operators=(Operator("a"), Operator("b")),
        edges=(Edge("s", "a"), Edge("a", "b"), Edge("b", "k")),
        sinks=(Sink("k", ()),),
        intent=Intent(constraints=constraints),
    )


def limit(ms: float, *path: str) -> Constraint:
    return Constraint(sequence_of(path), ms, over_s=10)


PLAIN = chain("plain")
LIMITED = chain(
    "limited",
    limit(18.0, "a", "b"),
    limit(19.0, "a", "b"),
    limit(40.0, "s->a", "a", "b"),
    limit(5.0, "a->b"),
    limit(100.0, "b", "b->k"),
)


def window(*jobs: Job, busy_s: float = 1.25) -> Window:
    """Service takes 12.5 ms in a and 1 ms in b; channels 20 and 5 ms, and that to the sink is
    unknown.
    """
    layout = Layout.build(list(jobs))
    each = len(jobs)
    snapshot = replace(
        Snapshot.empty(10, layout, {job.id: job for job in jobs}),
        since_s=0,
        instances=Instances.of(2 * each, taken=[100, 100] * each, busy_s=[busy_s, 0.1] * each),
        edges=Edges.of(
            3 * each, transfers=[100, 100, np.nan] * each, channel_s=[2, 0.5, np.nan] * each
        ),
    )
    found = Series.of([snapshot]).window()
    assert found is not None
    return found


def measured(*jobs: Job, busy_s: float = 1.25) -> ConstraintAssessment:
    return assess(window(*jobs, busy_s=busy_s)).constraints


def test_a_path_is_as_long_as_its_operators_and_edges_together() -> None:
    found = measured(PLAIN, LIMITED)
    assert found.job.tolist() == [1] * 5
    assert found.of_job(0).tolist() == []
    assert found.of_job(1).tolist() == [0, 1, 2, 3, 4]
    assert found.mean_ms[:4] == pytest.approx([18.5, 18.5, 38.5, 5.0])
    assert found.limit_ms.tolist() == [18, 19, 40, 5, 100]


def test_a_constraint_is_met_missed_or_not_measured() -> None:
    met = measured(LIMITED).met
    assert met[:4].tolist() == [0, 1, 1, 1]
    # Nothing waits before a sink: there is no channel to measure.
    assert np.isnan(met[4])
    assert np.isnan(measured(LIMITED, busy_s=np.nan).met[:3]).all()


def test_live_each_constraint_is_measured_over_its_own_time() -> None:
    """For nine seconds a record takes 1 ms, and then for one second 100 ms."""
    short, long = (Constraint(sequence_of(("a",)), 50.0, over_s=over_s) for over_s in (1, 60))
    job = chain("timed", short, long)
    layout = Layout.build([job])

    def at(time_s: float, records: float, busy_s: float) -> Snapshot:
        instances = Instances.of(
            2, incarnation=[0, 0], taken=[records, records], busy_s=[busy_s, busy_s]
        )
        return replace(Snapshot.empty(time_s, layout, {job.id: job}), instances=instances)

    series = Series.of([at(0, 0, 0), at(9, 900, 0.9), at(10, 1000, 10.9)])
    whole = series.window(10)
    assert whole is not None
    assert assess(whole).constraints.mean_ms == pytest.approx([10.9, 10.9])
    own = assess_latest(series, whole).constraints
    assert own.mean_ms == pytest.approx([100.0, 10.9])
    assert own.met.tolist() == [0, 1]


def test_without_constraints_there_are_no_rows() -> None:
    found = measured(PLAIN)
    assert found.constraints == ()
    assert found.met.tolist() == []


def test_a_part_that_the_layout_does_not_have_is_not_measured() -> None:
    """While a new version of a job starts, its file and its rows may differ."""
    seen = window(LIMITED)
    other = {LIMITED.id: chain("limited", limit(5.0, "a", "new"))}
    found = ConstraintTable.build(seen.layout, other).assess(np.zeros(4), np.zeros(3))
    assert np.isnan(found.mean_ms).tolist() == [True]


def test_the_table_is_built_once_per_layout_and_jobs() -> None:
    seen = window(LIMITED)
    assert ConstraintTable.of(seen) is ConstraintTable.of(seen)
    other = replace(seen, jobs=dict(seen.jobs))
    assert ConstraintTable.of(other) is not ConstraintTable.of(seen)


def test_means_by_the_place_of_a_constraint_in_its_intent() -> None:
    other = chain("other", limit(3.0, "a->b"))
    seen = window(PLAIN, LIMITED, other)
    means = assess_constraints(seen).means(3)
    assert list(means) == [f"constraint.{number}" for number in range(5)]
    assert means["constraint.0"] == pytest.approx([np.nan, 18.5, 5.0], nan_ok=True)
    assert means["constraint.3"] == pytest.approx([np.nan, 5.0, np.nan], nan_ok=True)
    assert assess_constraints(window(PLAIN)).means(1) == {}
