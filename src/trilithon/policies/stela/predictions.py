"""Compares the throughput that actions predicted with what is measured after them.

A prediction holds for its own action. If another one changes the same jobs or the machines before
it is due, what is measured then belongs to the other, and the prediction is superseded.
"""

from collections.abc import Collection, Mapping
from typing import Any

from trilithon.measures.slo import sink_weights
from trilithon.model.snapshot import present
from trilithon.policies.scene import Scene

# An action that was carried out, as JSON in the state: what it was, when, and its prediction.
KeptPrediction = dict[str, Any]


def realised_per_s(scene: Scene, window_s: float, jobs: Collection[str]) -> float | None:
    """Records per second at the sinks of these jobs, weighted, over the latest window."""
    if (window := scene.series.window(window_s)) is None:
        return None
    layout, rows = window.layout, window.layout.job_row
    sinks = layout.sink_nodes
    rates = window.sinks.written * sink_weights(layout, window.jobs) / window.span_s
    wanted = [rows[name] for name in jobs if name in rows]
    mine = [job in wanted for job in layout.node_job[sinks]]
    return present(rates[mine].sum())


def changed_since(scene: Scene, prediction: Mapping[str, Any]) -> str:
    """What has changed a job of this action since: a sentence's beginning, empty if nothing has."""
    done_s = prediction.get("done_s", scene.now_s)
    for job in prediction["jobs"]:
        if (status := scene.statuses.get(job)) is None:
            return f"{job} does not run any more"
        if status.changed_s is not None and status.changed_s > done_s:
            return f"{job} was changed"
    return ""
