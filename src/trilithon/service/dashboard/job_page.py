"""Builds the page of a job: its graph with every operator's numbers, its intent and its budget."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.control.state import JobRecord
from trilithon.measures.assess import Assessment
from trilithon.model.job import Job, NodeKind
from trilithon.model.snapshot import plain
from trilithon.service.dashboard.cluster_page import JobLine, job_line
from trilithon.service.dashboard.error_budget import ErrorBudget, ErrorBudgets
from trilithon.service.dashboard.graph import PlacedEdge, PlacedNode, place
from trilithon.service.dashboard.ledger import LedgerEntry
from trilithon.service.dashboard.numbers import value_of
from trilithon.service.dashboard.reading import Reading
from trilithon.service.dashboard.why import Why
from trilithon.service.monitor.conditions import ConditionType, JobCondition, Truth

# The colours of Flink's page: idle is blue, busy red, back-pressured dark.
IDLE: Final = (0x2B, 0x62, 0xA8)
BUSY: Final = (0xB8, 0x1F, 0x2D)
BLOCKED: Final = (0x22, 0x25, 0x2B)
UNKNOWN: Final = "#5c6470"
SHOWN_CONDITIONS: Final = frozenset({ConditionType.RECONFIGURING, ConditionType.HUNGRY})


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """An operator with its numbers; None where one is missing.

    `busy` is the share of the time that its busiest instance works, `blocked` the share in which
    it waits because receivers do not take more. `holds_back` says whether it is the origin of back-
    pressure: its senders are blocked, and it is not.
    """

    name: str
    now: int | None
    wanted: int
    least: int
    most: int
    fixed: bool
    input_per_s: float | None
    processed_per_s: float | None
    busy: float | None
    blocked: float | None
    queue: float | None
    longest_queue: float | None
    rate_skew: float | None
    queue_skew: float | None
    waiting_s: float | None
    predicted_s: float | None
    with_one_more_s: float | None
    holds_back: bool
    congested: bool

    @property
    def colour(self) -> str:
        return colour(self.busy, self.blocked)

    @property
    def changing(self) -> bool:
        return self.now is not None and self.now != self.wanted


@dataclass(frozen=True, slots=True)
class EndLine:
    """A source or a sink: its rate, and the records that wait in a source's topics."""

    name: str
    kind: NodeKind
    topics: str
    per_s: float | None
    lag: float | None


@dataclass(frozen=True, slots=True)
class GraphNode:
    place: PlacedNode
    operator: OperatorLine | None
    end: EndLine | None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    place: PlacedEdge
    per_s: float | None
    blocked: float | None
    grouping: str


@dataclass(frozen=True, slots=True)
class GraphView:
    width: float
    height: float
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    culprit: str | None


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """A percentile, and the threshold on it if the intent has one."""

    name: str
    shown: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """`conditions` are those of the API that hold and that the state does not say already."""

    line: JobLine
    why: Why
    conditions: tuple[JobCondition, ...]
    priority: float
    generation: int
    problem: str
    input_per_s: float | None
    output_per_s: float | None
    lag: float | None
    juice: float | None
    latencies: tuple[LatencyLine, ...]
    graph: GraphView
    operators: tuple[OperatorLine, ...]
    budget: ErrorBudget
    entries: tuple[LedgerEntry, ...]

    def limits(self, key: str, suffix: str = "") -> str:
        """The thresholds whose key begins so, for a plot: the name of the line and its limit."""
        return " ".join(
            f"{line.key.removeprefix(key) or line.key}{suffix}:{line.limit}"
            for line in self.line.thresholds
            if line.key.startswith(key)
        )


def job_page(reading: Reading, budgets: ErrorBudgets, name: str) -> JobPage:
    record = reading.record(name)
    assessment = reading.assessment if reading.row(name) is not None else None
    operators = operator_lines(reading, assessment, record)
    graph = _graph(record.job, assessment, operators)
    values = reading.values(name)
    ends = [node.end for node in graph.nodes if node.end is not None]
    sources = [end for end in ends if end.kind is NodeKind.SOURCE]
    return JobPage(
        line=job_line(reading, name, record, reading.lost_utility_hours()),
        why=reading.why(name),
        conditions=_conditions(reading, name, record),
        priority=record.job.intent.priority,
        generation=record.version.generation,
        problem=record.problem,
        input_per_s=_sum([end.per_s for end in sources]),
        output_per_s=values.get("throughput"),
        lag=_sum([end.lag for end in sources]),
        juice=values.get("juice"),
        latencies=_latencies(record.job, values),
        graph=graph,
        operators=operators,
        budget=budgets.of(name, reading.now_s),
        entries=tuple(reading.entries_of(name)),
    )


def _conditions(reading: Reading, name: str, record: JobRecord) -> tuple[JobCondition, ...]:
    monitor = reading.daemon.monitor
    known = monitor.conditions_of(monitor.job_now(name, record))
    return tuple(c for c in known if c.type in SHOWN_CONDITIONS and c.status is Truth.TRUE)


def colour(busy: float | None, blocked: float | None) -> str:
    """From blue to red by how busy it is, and then to dark by how blocked."""
    if busy is None:
        return UNKNOWN
    work, wait = (min(1.0, max(0.0, share or 0.0)) for share in (busy, blocked))
    mixed = [a + (b - a) * work for a, b in zip(IDLE, BUSY, strict=True)]
    shown = [a + (b - a) * wait for a, b in zip(mixed, BLOCKED, strict=True)]
    return "#" + "".join(f"{round(part):02x}" for part in shown)


def operator_lines(
    reading: Reading, assessment: Assessment | None, record: JobRecord
) -> tuple[OperatorLine, ...]:
    status = reading.status(record.job.id)
    fixed = record.version.fixed if status is None else status.fixed
    nodes: dict[str, int] = {}
    if assessment is not None:
        layout = assessment.window.layout
        nodes = {layout.node_names[node]: node for node in layout.job_nodes(record.job.id)}
    lines = []
    for operator in record.job.operators:
        node = nodes.get(operator.name) if reading.measured(record.job.id) else None
        bounds = operator.parallelism
        wanted = record.wanted.parallelism.get(operator.name, bounds.initial)
        measured = _measured(assessment, node) if assessment is not None else {}
        lines.append(
            OperatorLine(
                name=operator.name,
                now=int(layout.parallelism[node]) if measured and node is not None else None,
                wanted=wanted,
                least=bounds.min,
                most=bounds.max,
                fixed=operator.name in fixed,
                holds_back=bool(measured.get("origin")),
                congested=bool(measured.get("congested")),
                **{key: measured.get(key) for key in _NUMBERS},
            )
        )
    return tuple(lines)


_NUMBERS: Final = (
    "input_per_s",
    "processed_per_s",
    "busy",
    "blocked",
    "queue",
    "longest_queue",
    "rate_skew",
    "queue_skew",
    "waiting_s",
    "predicted_s",
    "with_one_more_s",
)


def _measured(assessment: Assessment, node: int | None) -> dict[str, float | None]:
    if node is None:
        return {}
    out = assessment.window.layout.edge_source == node
    blocked = assessment.back_pressure[out]
    known = blocked[~np.isnan(blocked)]
    return {
        "input_per_s": plain(assessment.input_rate[node]),
        "processed_per_s": plain(assessment.processing_rate[node]),
        "busy": plain(assessment.capacity[node]),
        "blocked": plain(known.max()) if len(known) else None,
        "queue": plain(assessment.queue[node]),
        "longest_queue": plain(assessment.longest_queue[node]),
        "rate_skew": plain(assessment.rate_skew[node]),
        "queue_skew": plain(assessment.queue_skew[node]),
        "waiting_s": plain(assessment.waiting_s[node]),
        "predicted_s": _maybe_infinite(assessment.kingman_s[node]),
        "with_one_more_s": _maybe_infinite(assessment.waiting_with_one_more_s[node]),
        "origin": float(assessment.back_pressure_origin[node]),
        "congested": float(assessment.congested_by_rates[node]),
    }


def _maybe_infinite(value: float) -> float | None:
    """A prediction: infinite without a steady state, which is not the same as missing."""
    return None if np.isnan(value) else float(value)


def _graph(
    job: Job, assessment: Assessment | None, operators: tuple[OperatorLine, ...]
) -> GraphView:
    placed, lines = place(job), {line.name: line for line in operators}
    nodes = tuple(
        GraphNode(
            node,
            lines.get(node.name),
            None if node.name in lines else _end(job, assessment, node),
        )
        for node in placed.nodes
    )
    edges = tuple(_edge(job, assessment, edge) for edge in placed.edges)
    culprit = next((line.name for line in operators if line.holds_back), None)
    return GraphView(placed.width, placed.height, nodes, edges, culprit)


def _end(job: Job, assessment: Assessment | None, node: PlacedNode) -> EndLine:
    if node.kind is NodeKind.SOURCE:
        topics = ", ".join(next(s for s in job.sources if s.name == node.name).topics)
    else:
        topics = next(s for s in job.sinks if s.name == node.name).topic
    per_s = lag = None
    if assessment is not None:
        window, layout = assessment.window, assessment.window.layout
        if node.kind is NodeKind.SOURCE:
            if (row := layout.source_row.get((job.id, node.name))) is not None:
                per_s = plain(window.sources.arrived[row] / window.span_s)
                lag = plain(window.lag[row])
        elif (row := layout.sink_row.get((job.id, node.name))) is not None:
            per_s = plain(window.sinks.written[row] / window.span_s)
    return EndLine(node.name, node.kind, topics, per_s, lag)


def _edge(job: Job, assessment: Assessment | None, placed: PlacedEdge) -> GraphEdge:
    edge, per_s, blocked = placed.edge, None, None
    if assessment is not None:
        window = assessment.window
        row = window.layout.edge_row.get((job.id, edge.source, edge.target))
        if row is not None:
            per_s = plain(window.edges.emitted[row] / window.span_s)
            blocked = plain(assessment.back_pressure[row])
    grouping = edge.grouping.value.replace("_", " ")
    return GraphEdge(placed, per_s, blocked, "" if grouping == "shuffle" else grouping)


def _latencies(job: Job, values: dict[str, float | None]) -> tuple[LatencyLine, ...]:
    limits = {threshold.key: threshold for threshold in job.intent.thresholds}
    keys = ["latency.p50", "latency.p95", "latency.p99"]
    keys += [key for key in limits if key.startswith("latency") and key not in keys]
    lines = []
    for key in keys:
        threshold, value = limits.get(key), values.get(key)
        met = None if threshold is None else threshold.met(value)
        lines.append(LatencyLine(key.removeprefix("latency."), value_of(key, value), met))
    return tuple(lines)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) and known else None
