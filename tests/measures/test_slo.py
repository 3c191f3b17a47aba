"""Utility and satisfaction of many jobs at once: the same as one
by one, and as the papers count.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.engines.simulated.worlds import graph, operator
from tests.strategies import jobs, snapshots
from trilithon.measures import slo
from trilithon.measures.assess import assess
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot


@given(snapshots())
def test_utilities_together_are_the_same_as_one_by_one(snapshot: Snapshot) -> None:
    window = Series.of([replace(snapshot, since_s=0)]).window()
    assert window is not None
    outcome = slo.assess_intents(window)
    for row, name in enumerate(window.layout.jobs):
        intent = window.jobs[name].intent
        measured = {
            key: None if np.isnan(found[row]) else float(found[row])
            for key, found in outcome.values.items()
        }
        expected = intent.utility(measured)
        assert outcome.utility[row] == pytest.approx(
            np.nan if expected is None else expected, nan_ok=True
        )
        met = {True: 1.0, False: 0.0, None: np.nan}[intent.satisfied(measured)]
        assert outcome.met[row] == pytest.approx(met, nan_ok=True)
        assert outcome.max_utility[row] == intent.max_utility


@given(snapshots())
def test_everything_can_be_assessed_whatever_is_missing(snapshot: Snapshot) -> None:
    window = Series.of([replace(snapshot, since_s=0)]).window()
    assert window is not None
    found = assess(window)
    nodes = len(window.layout.node_names)
    assert len(found.capacity) == len(found.etp) == len(found.juice) == nodes
    assert len(found.etp_sum) == len(window.layout.machines)


@given(jobs())
def test_a_snapshot_in_which_everything_is_missing_has_no_utility(job: Job) -> None:
    empty = replace(Snapshot.empty(10, Layout.build([job]), {job.id: job}), since_s=0)
    window = Series.of([empty]).window()
    assert window is not None
    outcome = slo.assess_intents(window)
    assert np.isnan(outcome.utility).all()
    assert np.isnan(outcome.met).all()
    assert np.isnan(outcome.cluster_satisfaction)


def test_satisfaction_over_time_is_weighted_by_time() -> None:
    found = slo.satisfaction_over_time([0.0, 1.0, float("nan"), 0.5], [100, 800, 50, 100])
    assert found is not None
    assert found.average == pytest.approx(0.85)
    assert found.percentiles == {15: 0.5, 50: 1.0, 90: 1.0}
    assert slo.satisfaction_over_time([], []) is None
    assert slo.satisfaction_over_time([float("nan")], [10]) is None


def emitting(taken: list[float], written: float, *edges: str) -> Window:
    """Ten seconds in which each source read so many records and the sink wrote so many; the
    sources should emit 200 records/s.
    """
    plain = graph("emitting", [operator("o")], *edges)
    job = replace(plain, intent=Intent((Threshold(Metric.EMISSION, 200.0),), priority=10.0))
    empty = Snapshot.empty(10, Layout.build([job]), {job.id: job})
    snapshot = replace(
        empty,
        since_s=0,
        sources=replace(empty.sources, taken=np.array(taken)),
        sinks=replace(empty.sinks, written=np.array([written])),
    )
    window = Series.of([snapshot]).window()
    assert window is not None
    return window


def test_emission_counts_what_sources_read_and_throughput_what_sinks_write() -> None:
    """Two sources, and an operator that makes three records of each."""
    window = emitting([400.0, 600.0], 3000.0, "a>o", "b>o", "o>out")
    assert slo.emission(window) == pytest.approx([100.0])
    assert slo.throughput(window) == pytest.approx([300.0])
    assessment = slo.assess_intents(window)
    assert assessment.values["emission"] == pytest.approx([100.0])
    assert assessment.met == pytest.approx([0.0])
    # Half of what is asked for, of a maximum utility of 10.
    assert assessment.utility == pytest.approx([5.0])


def test_emission_that_meets_its_threshold_has_the_whole_utility() -> None:
    """Whatever the sinks write."""
    met = slo.assess_intents(emitting([2000.0], 1.0, "a>o", "o>out"))
    assert met.utility == pytest.approx([10.0])
    assert met.met == pytest.approx([1.0])
    unknown = slo.assess_intents(emitting([np.nan], 1.0, "a>o", "o>out"))
    assert np.isnan(unknown.utility).all()
