"""Which operator is the origin of back-pressure, by the readings of a window."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.engines.simulated.worlds import graph, operator
from trilithon.engines.abilities import REAL_TIME
from trilithon.model.allocation import initial
from trilithon.model.capability import Capabilities
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.dhalion.job_view import Measured
from trilithon.policies.scene import Cluster, JobStatus, Scene

READING_S = 60.0
JOB = graph("words", [operator("split", 1), operator("count", 1)], "in>split", "split>count")


def origins(split: Sequence[float], count: Sequence[float]) -> list[str]:
    """The origins, if senders were held back by each operator for such shares of each reading."""
    layout = Layout.build([JOB])
    of = {"split": split, "count": count}
    shares = np.array([of[layout.node_names[node]] for node in layout.edge_target]).T
    parked = np.vstack([np.zeros(shares.shape[1]), np.cumsum(shares, axis=0) * READING_S])
    snapshots = []
    for turn, seconds in enumerate(parked):
        empty = Snapshot.empty(1000.0 + READING_S * turn, layout, {JOB.id: JOB})
        edges = replace(empty.edges, parked_s=seconds, senders=np.ones(len(seconds)))
        sources = replace(
            empty.sources, arrived=np.array([100.0 * turn]), taken=np.array([100.0 * turn])
        )
        snapshots.append(replace(empty, edges=edges, sources=sources))
    series = Series.of(snapshots)
    window = series.window()
    assert window is not None
    status = JobStatus(JOB.id, "t", initial(JOB), 0.0)
    scene = Scene(1, series, {JOB.id: status}, Cluster(Capabilities(REAL_TIME)))
    view = Measured.of(series, window, 0.05).view(scene, JOB.id)
    assert view is not None
    return [each.name for each in view.origins]


def test_the_operator_that_nobody_holds_back_is_the_origin() -> None:
    assert origins(split=[0.4] * 5, count=[0.0] * 5) == ["split"]
    assert origins(split=[0.3] * 5, count=[0.4] * 5) == ["count"]


def test_one_bad_reading_makes_no_origin() -> None:
    assert origins(split=[0.0, 0.0, 0.9, 0.0, 0.0], count=[0.0] * 5) == []


def test_one_bad_reading_behind_an_operator_does_not_hide_that_it_is_the_origin() -> None:
    """`count` held `split` back in one reading only. Neither was the origin then, and with a lag
    that grew people were told to add partitions.
    """
    assert origins(split=[0.4] * 5, count=[0.0, 0.0, 0.4, 0.0, 0.0]) == ["split"]
