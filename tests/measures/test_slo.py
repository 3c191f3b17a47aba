"""Utility and satisfaction of many jobs at once: the same as one
by one, and as the papers count.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import jobs, snapshots
from trilithon.measures import slo
from trilithon.measures.assess import assess
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Series
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
