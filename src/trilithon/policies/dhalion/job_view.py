"""Shows a job to detectors: its operators and instances, as measured over the symptom window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.measures.capacity import instance_capacity
from trilithon.measures.rates import back_pressure
from trilithon.measures.slo import emission
from trilithon.measures.trend import slope
from trilithon.model.columns import Floats
from trilithon.model.job import Grouping, Job, NodeKind
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import present
from trilithon.policies.scene import JobStatus, Scene

# Chosen: sources that read more than this times what arrives work off a backlog.
CATCHING_UP: Final = 1.01


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance. `rate_per_s` is what it took; `even_rate_per_s` is that divided by its weight,
    so that a lowered weight does not look like skew. `queue` is the mean over the window. What was
    not measured is None.
    """

    index: int
    rate_per_s: float | None
    even_rate_per_s: float | None
    queue: float | None
    parked_s: float | None
    service_s: float | None
    busy: float | None
    machine: str | None
    weight: float


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator. `held_back` is the share of time for which its senders were held back, and
    `holds_back` says that it is the origin: nobody holds it back itself.
    """

    name: str
    instances: tuple[InstanceView, ...]
    held_back: float
    holds_back: bool
    rate_per_s: float | None
    queue_growth_per_s: float | None
    at_source: bool
    keyed: bool
    broadcast: bool
    stateful: bool

    @property
    def parallelism(self) -> int:
        return len(self.instances)

    @property
    def busiest(self) -> float | None:
        """The largest share of time that an instance was at work."""
        busy = [instance.busy for instance in self.instances]
        return None if None in busy else max((b for b in busy if b is not None), default=None)


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """A job as measured over the symptom window. `lag` is the mean over it."""

    job: Job
    status: JobStatus
    span_s: float
    operators: tuple[OperatorView, ...]
    emission_per_s: float | None
    arriving_per_s: float | None
    lag_growth_per_s: float | None
    lag: float | None = None

    def operator(self, name: str) -> OperatorView:
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def origins(self) -> tuple[OperatorView, ...]:
        """The operators that hold others back, the worst first."""
        origins = [operator for operator in self.operators if operator.holds_back]
        return tuple(sorted(origins, key=lambda operator: (-operator.held_back, operator.name)))


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything about all jobs that a round needs, computed once."""

    window: Window
    blocked_above: float
    parked: Floats
    lasting: Floats
    queue: Floats
    queue_slope: Floats
    busy: Floats
    emission: Floats
    lag_slope: Floats
    lag: Floats

    @classmethod
    def of(cls, series: Series, window: Window, blocked_above: float) -> "Measured":
        queues, lags, times = _histories(series, window)
        with np.errstate(invalid="ignore"):
            queue, lag = queues.mean(axis=0), lags.mean(axis=0)
        return cls(
            window,
            blocked_above,
            back_pressure(window),
            lasting_back_pressure(series, window),
            queue,
            slope(times, queues),
            instance_capacity(window),
            emission(window),
            slope(times, lags),
            lag,
        )

    def view(self, scene: Scene, name: str) -> MeasuredJob | None:
        """The view of a job; None if the window or its file does not have it."""
        window, status = self.window, scene.statuses.get(name)
        layout, job = window.layout, window.jobs.get(name)
        if status is None or job is None or name not in layout.job_row:
            return None
        row = layout.job_row[name]
        sources = np.flatnonzero(layout.node_job[layout.source_nodes] == row)
        return MeasuredJob(
            job,
            status,
            window.span_s,
            tuple(
                self._operator(job, operator.name, node, status)
                for operator in job.operators
                if (node := layout.node_row.get((name, operator.name))) is not None
            ),
            present(self.emission[row]),
            present(float(window.sources.arrived[sources].sum()) / window.span_s),
            present(float(self.lag_slope[sources].sum())) if len(sources) else None,
            present(float(self.lag[sources].sum())) if len(sources) else None,
        )

    def _operator(self, job: Job, name: str, node: int, status: JobStatus) -> OperatorView:
        layout = self.window.layout
        rows = np.flatnonzero(layout.instance_node == node)
        kinds = dict(job.nodes())
        parked = np.nan_to_num(self.parked)
        # Both sides by the same measure: else one bad reading may leave nobody as the origin.
        blocked = np.minimum(parked, np.nan_to_num(self.lasting)) > self.blocked_above
        into, out = layout.edge_target == node, layout.edge_source == node
        held_back = float(parked[into].max(initial=0.0))
        weights = _weights(status, name, len(rows))
        instances = tuple(
            self._instance(int(row), weight) for row, weight in zip(rows, weights, strict=True)
        )
        rates = [instance.rate_per_s for instance in instances]
        parents = job.parents[name]
        return OperatorView(
            name,
            instances,
            held_back,
            bool(blocked[into].any() and not blocked[out].any()),
            None if None in rates else sum(rate for rate in rates if rate is not None),
            present(float(self.queue_slope[rows].sum())),
            any(kinds[edge.source] is NodeKind.SOURCE for edge in parents),
            any(edge.grouping is Grouping.BY_KEY for edge in parents),
            any(edge.grouping is Grouping.BROADCAST for edge in parents),
            job.operator(name).work.stateful,
        )

    def _instance(self, row: int, weight: float) -> InstanceView:
        window = self.window
        columns, layout = window.instances, window.layout
        taken, busy_s = float(columns.taken[row]), float(columns.busy_s[row])
        machine = columns.machine[row]
        rate = taken / window.span_s
        return InstanceView(
            int(layout.instance_index[row]),
            present(rate),
            present(rate / weight) if weight > 0 else None,
            present(self.queue[row]),
            present(columns.parked_s[row]),
            present(busy_s / taken) if taken > 0 else None,
            present(self.busy[row]),
            None if np.isnan(machine) else layout.machines[int(machine)],
            weight,
        )


def lasting_back_pressure(series: Series, window: Window) -> Floats:
    """The share of time for which the senders of each edge were held back, without the readings in
    which its job worked off a backlog, and without the worst of the others: a stall of the engine
    is one of them. Symptoms take several readings into account (section 4.1).
    """
    layout = window.layout
    parked, spans = [], []
    job_of_edge = layout.node_job[layout.edge_source]
    for part in series.parts(window, 0.0):
        edges, senders = part.edges.parked_s, part.edges.senders
        caught_up = _catching_up(part)
        if part.layout is not layout:
            rows = [part.layout.edge_row.get(key, -1) for key in layout.edge_row]
            edges, senders = _aligned(edges, rows), _aligned(senders, rows)
            jobs = [part.layout.job_row.get(name, -1) for name in layout.jobs]
            caught_up = _aligned(caught_up, jobs)
        left_out = np.nan_to_num(caught_up[job_of_edge]) > 0
        parked.append(np.where(left_out, 0.0, np.nan_to_num(edges)))
        spans.append(np.where(left_out, 0.0, np.nan_to_num(senders) * part.span_s))
    times, of = np.array(parked), np.array(spans)
    if len(times) > 1:
        worst, each = times.argmax(axis=0), np.arange(times.shape[1])
        times[worst, each] = of[worst, each] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        share = times.sum(axis=0) / of.sum(axis=0)
    return np.where(of.sum(axis=0) > 0, share, 0.0)


def _catching_up(window: Window) -> Floats:
    """Per job, 1 if its sources read more than arrived, else 0."""
    layout = window.layout
    job = layout.node_job[layout.source_nodes]
    arrived = np.bincount(job, np.nan_to_num(window.sources.arrived), len(layout.jobs))
    taken = np.bincount(job, np.nan_to_num(window.sources.taken), len(layout.jobs))
    return (taken > CATCHING_UP * arrived).astype(float)


def _weights(status: JobStatus, operator: str, count: int) -> tuple[float, ...]:
    """How much each instance should get, 1 on average. Where key groups are given one by one,
    weights do not count.
    """
    weights = status.allocation.weights.get(operator, ())
    if len(weights) != count or operator in status.allocation.groups:
        return (1.0,) * count
    return tuple(weight * count / sum(weights) for weight in weights)


def _histories(series: Series, window: Window) -> tuple[Floats, Floats, Floats]:
    """The queue of each instance and the lag of each source in the snapshots of the window, with
    their times. Rows are the window's; one that a snapshot does not have is missing there.
    """
    layout = window.layout
    queues: list[Floats] = []
    lags: list[Floats] = []
    times: list[float] = []
    for snapshot in series.snapshots:
        if snapshot.time_s < window.start_s:
            continue
        queue = np.maximum(0.0, snapshot.instances.sent - snapshot.instances.taken)
        lag = np.maximum(0.0, snapshot.sources.arrived - snapshot.sources.taken)
        if snapshot.layout is not layout:
            old = snapshot.layout
            queue = _aligned(queue, [old.instance_row.get(key, -1) for key in layout.instance_row])
            lag = _aligned(lag, [old.source_row.get(key, -1) for key in layout.source_row])
        queues.append(queue)
        lags.append(lag)
        times.append(snapshot.time_s)
    return np.array(queues), np.array(lags), np.array(times)


def _aligned(values: Floats, rows: Sequence[int]) -> Floats:
    at = np.asarray(rows, dtype=np.int64)
    if not len(values):
        return np.full(len(at), np.nan)
    return np.where(at < 0, np.nan, values[np.maximum(at, 0)])
