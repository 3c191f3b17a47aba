"""The figures of a whole run: what was counted before a restart stays counted."""

from dataclasses import replace

import numpy as np
import pytest

from tests.recording.test_recordings import SMALL
from trilithon.contract.totals import Totals
from trilithon.model.snapshot import Snapshot
from trilithon.recording.snapshots import snapshot_from_json


def snapshot(time_s: float, written: float, incarnation: float = 1.0) -> Snapshot:
    """A snapshot whose sink has written so much since its start."""
    small = snapshot_from_json(SMALL)
    sinks = replace(small.sinks, written=np.array([written]), incarnation=np.array([incarnation]))
    return replace(small, time_s=time_s, since_s=None, sinks=sinks)


def figures(*snapshots: Snapshot, met: bool | None = None) -> dict[str, object]:
    totals = Totals(100.0)
    for seen in snapshots:
        totals.add(seen, [{"job": "ads/mine", "met": met}])
    return totals.figures()["ads/mine"]


def test_what_was_written_before_the_first_look_counts() -> None:
    assert figures(snapshot(101.0, 40))["written"] == 40


def test_a_restart_begins_at_zero_and_keeps_what_was_counted() -> None:
    run = figures(snapshot(101.0, 40), snapshot(105.0, 100), snapshot(110.0, 7, incarnation=2))
    assert run["written"] == 107
    assert run["seconds"] == 10.0
    assert run["output_per_s"] == pytest.approx(10.7)


def test_a_look_without_measurements_changes_nothing() -> None:
    unknown = snapshot(105.0, np.nan, incarnation=np.nan)
    assert figures(snapshot(101.0, 40), unknown, snapshot(110.0, 50))["written"] == 50


def test_the_share_of_looks_at_which_the_intent_was_met_is_over_those_that_know() -> None:
    assert figures(snapshot(101.0, 1))["intent_met"] is None
    assert figures(snapshot(101.0, 1), snapshot(102.0, 2), met=True)["intent_met"] == 1.0
