"""Predicts a job with other instances or another load: throughput, latency, utility.

The rates are those of `flow` for the wanted arrivals, without the backlog: the steady state, if
there is one. Latency is the longest path of `demand`. The model's error at the present instances
and load is carried over, so that a prediction that changes nothing equals what was measured:

    predicted = measured + model(then) − model(now), and no less than the service times on the path

If an operator has no steady state then (its load needs more instances than it has) the backlog
grows and latency with it: infinite. If it has none now, the model stands alone: with a coefficient
of 1, since what was measured near saturation fits nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trilithon.measures.assess import Assessment
from trilithon.measures.demand import Demand, JobGraph
from trilithon.measures.flow import Flow
from trilithon.measures.group import ratio
from trilithon.model.columns import Floats, Ints
from trilithon.model.intent import Metric, latency_key
from trilithon.model.job import Job, NodeKind
from trilithon.model.layout import NODE_KINDS
from trilithon.model.series import Window
from trilithon.model.snapshot import plain

QUANTILES = (None, 0.5, 0.95, 0.99)
# From this utilisation on the waiting that was measured says nothing about a steady state.
SATURATED = 0.95


@dataclass(frozen=True, slots=True)
class OperatorPrediction:
    """An operator with so many instances: its input, and the share of the time it works. A
    utilisation above 1 means that it falls behind.
    """

    operator: str
    instances: int
    input_per_s: float | None
    processed_per_s: float | None
    utilisation: float | None
    waiting_s: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A job as it would be. `values` are by the keys of thresholds (`latency.p95`, `juice`,
    `throughput`, `emission`); None where the model lacks a measurement, infinite where latency has
    no bound. `calibrated` says whether latency begins from what was measured.
    """

    load: float
    slots: int
    values: Mapping[str, float | None]
    utility: float | None
    max_utility: float
    met: bool | None
    keeps_up: bool | None
    calibrated: bool
    operators: tuple[OperatorPrediction, ...]


def predict(
    assessment: Assessment, job: Job, instances: Mapping[str, int], load: float = 1.0
) -> Prediction | None:
    """The job with these instances per operator (those not named as now) and `load` times its
    arrivals. None if the window does not have the job.
    """
    layout = assessment.window.layout
    if job.id not in layout.job_row:
        return None
    model = _JobModel.of(assessment, job)
    now = layout.parallelism[model.nodes].astype(float)
    counts = np.array(
        [instances.get(layout.node_names[node], int(now[i])) for i, node in enumerate(model.nodes)],
        dtype=float,
    )
    values, calibrated = model.values(now, counts, load)
    known = {key: value for key, value in values.items() if value is not None}
    utilisation = load * model.demand.load[model.nodes] / counts
    return Prediction(
        load=load,
        slots=int(counts.sum()),
        values=values,
        utility=job.intent.utility(known),
        max_utility=job.intent.max_utility,
        met=job.intent.satisfied(known),
        keeps_up=None if np.isnan(utilisation).any() else bool((utilisation < 1).all()),
        calibrated=calibrated,
        operators=tuple(model.operators(counts, load)),
    )


@dataclass(frozen=True, eq=False)
class _JobModel:
    """Demand, flow and paths of one job in a window."""

    assessment: Assessment
    job: Job
    rows: Ints
    # The operators among the rows.
    nodes: Ints
    demand: Demand
    graph: JobGraph

    @classmethod
    def of(cls, assessment: Assessment, job: Job) -> "_JobModel":
        window, layout = assessment.window, assessment.window.layout
        rows = np.array(layout.job_nodes(job.id))
        nodes = rows[layout.node_kind[rows] == NODE_KINDS.index(NodeKind.OPERATOR)]
        demand = Demand.of(window)
        busy = demand.load / np.maximum(1, layout.parallelism)
        fitted = np.where(busy >= SATURATED, 1.0, demand.coefficient)
        demand = replace(demand, coefficient=fitted)
        return cls(assessment, job, rows, nodes, demand, JobGraph.of(layout, rows, nodes, demand))

    @property
    def window(self) -> Window:
        return self.assessment.window

    def values(
        self, now: Floats, counts: Floats, load: float
    ) -> tuple[dict[str, float | None], bool]:
        """The predicted values by the keys of thresholds, and whether latency is calibrated."""
        rates = self._rates(counts, load)
        free = self._rates(np.full(len(counts), np.inf), load)
        written, wanted = (self._at_sinks(taken) for taken in (rates, free))
        values: dict[str, float | None] = {
            "throughput": plain(written.sum()),
            "juice": plain(ratio(np.array(written.sum()), np.array(wanted.sum()), nothing=1.0)),
            "emission": plain(rates[self._of_kind(NodeKind.SOURCE)].sum()),
        }
        measured = self.assessment.intents.values
        row = self.window.layout.job_row[self.job.id]
        calibrated = True
        for quantile in {*QUANTILES, *self._latency_quantiles()}:
            key = latency_key(quantile)
            at = measured.get(key)
            measured_ms = math.nan if at is None else float(at[row])
            latency_ms, exact = self._latency_ms(now, counts, load, quantile, measured_ms)
            values[key] = None if math.isnan(latency_ms) else latency_ms
            calibrated = calibrated and exact
        return values, calibrated

    def _latency_quantiles(self) -> list[float | None]:
        thresholds = self.job.intent.thresholds
        return [each.quantile for each in thresholds if each.metric is Metric.LATENCY]

    def _latency_ms(
        self, now: Floats, counts: Floats, load: float, quantile: float | None, measured: float
    ) -> tuple[float, bool]:
        then_s = self._model_s(counts, load, quantile)
        now_s = self._model_s(now, 1.0, quantile)
        if not math.isfinite(then_s):
            return then_s, False
        if math.isnan(measured) or not math.isfinite(now_s):
            return 1000 * then_s, False
        least_ms = 1000 * self._model_s(np.full(len(counts), np.inf), load, quantile)
        return max(least_ms, measured + 1000 * (then_s - now_s)), True

    def _model_s(self, counts: Floats, load: float, quantile: float | None) -> float:
        if np.isnan(self.demand.load[self.nodes]).any():
            return math.nan
        demand = replace(self.demand, rate_per_s=load * self.demand.rate_per_s)
        return replace(self.graph, demand=demand).latency_s(counts, quantile)

    def _rates(self, counts: Floats, load: float) -> Floats:
        """Records per second that each node takes in the steady state."""
        window, layout = self.window, self.window.layout
        flow = Flow.measured(window)
        offered = np.zeros(len(flow.offered))
        sources = layout.source_nodes
        offered[sources] = np.nan_to_num(window.sources.arrived / window.span_s)
        mine = layout.node_job == layout.job_row[self.job.id]
        offered = np.where(mine, load * offered, offered)
        could = flow.instance_rate * np.maximum(flow.parallelism, 1)
        with np.errstate(invalid="ignore"):
            could[self.nodes] = flow.instance_rate[self.nodes] * counts
        return replace(flow, offered=offered).rates(could_take=could).taken

    def _of_kind(self, kind: NodeKind) -> Ints:
        layout = self.window.layout
        rows: Ints = self.rows[layout.node_kind[self.rows] == NODE_KINDS.index(kind)]
        return rows

    def _at_sinks(self, taken: Floats) -> Floats:
        return taken[self._of_kind(NodeKind.SINK)]

    def operators(self, counts: Floats, load: float) -> list[OperatorPrediction]:
        layout = self.window.layout
        wanted, taken = load * self.demand.rate_per_s[self.nodes], self._rates(counts, load)
        utilisation = load * self.demand.load[self.nodes] / counts
        demand = replace(self.demand, rate_per_s=load * self.demand.rate_per_s)
        waiting = demand.waiting(self.nodes, counts)
        return [
            OperatorPrediction(
                operator=layout.node_names[node],
                instances=int(counts[i]),
                input_per_s=plain(wanted[i]),
                processed_per_s=plain(taken[node]),
                utilisation=plain(utilisation[i]),
                # Infinite where it falls behind: not missing.
                waiting_s=None if np.isnan(waiting[i]) else float(waiting[i]),
            )
            for i, node in enumerate(self.nodes)
        ]
