"""Calibrates the simulated engine from the recording of a run on Spark.

Learns the profiles of operators from their service times, the transport time from the idle
transport of edges, and the pause at a batch boundary from the longest latencies. What a task costs
by being there shows only in several recordings, of runs with few and with many tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from ruamel.yaml import YAML
from scipy import optimize

from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.operator_cost import key_shares
from trilithon.errors import InvalidRecording, InvalidScenario, Problem
from trilithon.measures.group import ratio, sum_by, sum_by_node
from trilithon.model.groups import assign_key_groups
from trilithon.model.hosts import sum_over_hosts
from trilithon.model.job import Grouping, Job, NodeKind
from trilithon.model.layout import NODE_KINDS
from trilithon.model.profile import Profile
from trilithon.model.series import Series, Window
from trilithon.model.sketches import value_of
from trilithon.model.snapshot import Snapshot
from trilithon.spec.yaml_reader import read_yaml_file

FORMAT: Final = "trilithon-calibration/1"
# Pauses at a batch boundary that are shorter than this are indistinguishable from noise.
MIN_STALL_S: Final = 0.1
# Operators with a larger CPU share count as all CPU.
MOSTLY_CPU: Final = 0.5
# Number of keys for estimating the Zipf exponent: as many as a simulated run has by default.
KEYS: Final = 10_000
MAX_ZIPF: Final = 4.0
# Snapshots per window in which the read latency is estimated.
READ_WINDOW: Final = 5
_NUMBERS: Final = tuple(
    f.name for f in fields(Character) if f.type in {"float", float} or f.name == "credits"
)


@dataclass(frozen=True)
class Calibration:
    """What was learned from the recording `source`; `measured` names the numbers of the engine that
    were measured, the others have their defaults.
    """

    profiles: Mapping[str, Mapping[str, Profile]]
    character: Character
    measured: tuple[str, ...]
    source: str


def calibrate(
    series: Series, source: str, base: Character = SPARK_RTM, others: Sequence[Series] = ()
) -> Calibration:
    """Learn from a whole recorded run. `others` are runs with another number of tasks: only what
    a task costs is learned from them.
    """
    window = series.window()
    if window is None:
        raise InvalidRecording(
            f"{source} is too short to calibrate from: it has fewer than two snapshots.",
            "Record a longer run.",
        )
    measured: dict[str, Any] = dict(_engine(series, window))
    measured |= _threads([series, *others], base)
    widest = _widest(series) or window
    return Calibration(
        profiles={job.id: dict(_profiles(window, widest, job)) for job in window.jobs.values()},
        character=replace(base, **measured),
        measured=tuple(measured),
        source=source,
    )


def _same_layout_parts(series: Series) -> list[list[Snapshot]]:
    """The run split where its instances changed."""
    parts: list[list[Snapshot]] = []
    for snapshot in series.snapshots:
        if parts and parts[-1][-1].layout.same_shape(snapshot.layout):
            parts[-1].append(snapshot)
        else:
            parts.append([snapshot])
    return parts


def _widest(series: Series) -> Window | None:
    """The part of the run with the most instances; of several, the longest."""
    parts = _same_layout_parts(series)
    widest = max(parts, key=lambda part: (len(part[0].layout.instance_row), len(part)))
    return Series(tuple(widest)).window() if len(widest) > 1 else None


def _profiles(window: Window, widest: Window, job: Job) -> Iterator[tuple[str, Profile]]:
    """The profile of each operator: service time, variation, CPU share, selectivity and skew."""
    layout, instances = window.layout, window.instances
    taken = sum_by_node(layout, instances.taken)
    mean_s = ratio(sum_by_node(layout, instances.busy_s), taken)
    mean_square_s2 = ratio(sum_by_node(layout, instances.busy_sq_s2), taken)
    cpu = ratio(sum_by_node(layout, instances.cpu_s), sum_by_node(layout, instances.busy_s))
    # An operator that mostly computes waits for a core in the rest of its service time. A simulated
    # machine adds that waiting, so it must not be part of the profile.
    service = np.where(cpu > MOSTLY_CPU, mean_s * np.minimum(cpu, 1.0), mean_s)
    cpu = np.where(cpu > MOSTLY_CPU, 1.0, cpu)
    emitted = np.bincount(
        layout.edge_source, weights=window.edges.emitted, minlength=len(layout.node_names)
    )
    outputs = np.bincount(layout.edge_source, minlength=len(layout.node_names))
    # From the edges: the rows of instances lack those that have been removed since.
    received = sum_by(layout.edge_target, window.edges.taken, len(layout.node_names))
    with np.errstate(invalid="ignore", divide="ignore"):
        cv = np.sqrt(np.maximum(0.0, mean_square_s2 / mean_s**2 - 1))
        selectivity = emitted / outputs / received
    for operator in job.operators:
        node = layout.node_row[job.id, operator.name]
        declared = operator.profile or Profile()
        yield (
            operator.name,
            replace(
                declared,
                service_ms=_measured_or(service[node] * 1000, declared.service_ms),
                service_cv=_measured_or(cv[node], declared.service_cv),
                cpu_share=_measured_or(min(1.0, cpu[node]), declared.cpu_share),
                selectivity=_measured_or(selectivity[node], declared.selectivity),
                zipf=_measured_or(_zipf(widest, job, operator.name), declared.zipf),
                learned=True,
            ),
        )


def _zipf(window: Window, job: Job, operator: str) -> float:
    """The Zipf exponent of the keys with which the operator's busiest instance gets the share of
    records that it got. NaN if the operator has one instance or is not grouped by key.
    """
    layout = window.layout
    rows = [
        row
        for (name, node, _), row in layout.instance_row.items()
        if (name, node) == (job.id, operator)
    ]
    taken = window.instances.taken[rows]
    by_key = any(edge.grouping is Grouping.BY_KEY for edge in job.parents[operator])
    if not by_key or len(rows) < 2 or not taken.sum() > 0:
        return np.nan
    largest_share = float(taken.max() / taken.sum())
    groups = assign_key_groups([1.0] * len(rows))

    def difference(zipf: float) -> float:
        return float(key_shares(KEYS, zipf, groups, np.ones(len(rows))).max()) - largest_share

    if difference(0.0) >= 0:
        return 0.0
    if difference(MAX_ZIPF) <= 0:
        return MAX_ZIPF
    return float(optimize.brentq(difference, 0.0, MAX_ZIPF))


def _measured_or(value: float, declared: float | None) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else declared


def _engine(series: Series, window: Window) -> Iterator[tuple[str, float]]:
    """The numbers of the engine that the recording shows, by their names in `Character`."""
    layout, edges = window.layout, window.edges
    kinds = [NODE_KINDS[layout.node_kind[node]] for node in layout.edge_source]
    target = [NODE_KINDS[layout.node_kind[node]] for node in layout.edge_target]
    inner = np.array([k is NodeKind.OPERATOR for k in kinds]) & np.array(
        [k is NodeKind.OPERATOR for k in target]
    )
    transport_s = edges.idle_transport_s + ratio(edges.batching_s, edges.transfers)
    known = transport_s[inner & np.isfinite(transport_s)]
    if len(known):
        transit_s = float(np.median(known))
        yield "transit_s", round(transit_s, 6)
        from_source = np.array([k is NodeKind.SOURCE for k in kinds])
        first_hop = transport_s[from_source & np.isfinite(transport_s)]
        read_s = _read_s(series)
        if len(first_hop) and read_s is not None:
            extra_s = max(0.0, float(np.median(first_hop)) - transit_s)
            yield "fetch_s", round(read_s + extra_s, 6)
    if (stall := _stall_s(series)) is not None:
        yield "stall_s", round(max(0.0, stall - _per_task_s(window)), 4)


def _threads(runs: Sequence[Series], base: Character) -> dict[str, float]:
    """What a task costs of a core by being there, and the constant load beside all of them: a
    straight line through the runs. If all have the same number of tasks, what a task costs is known
    from elsewhere.
    """
    points = [(_tasks(run), load) for run in runs if (load := _cores_of_others(run)) is not None]
    if not points:
        return {}
    tasks, loads = (np.array(column) for column in zip(*points, strict=True))
    measured: dict[str, float] = {}
    each = base.thread_cores
    if np.ptp(tasks) > 0:
        each = max(0.0, float(np.polyfit(tasks, loads, 1)[0]))
        measured["thread_cores"] = round(each, 6)
    rest = float(np.mean(loads - each * tasks))
    return {**measured, "constant_load": round(max(0.0, rest), 3)}


def _tasks(series: Series) -> float:
    """The tasks of all operators of all jobs, those that are not in use too."""
    jobs = series.last.jobs.values()
    return float(sum(o.parallelism.max for job in jobs for o in job.operators))


def _cores_of_others(series: Series) -> float | None:
    """The cores that are busy besides the job's instances, on average. Counters of removed
    instances are lost, so each part of the run with the same instances is measured separately.
    """
    others_s = span_s = 0.0
    for part in _same_layout_parts(series):
        reported = [sum_over_hosts(s.layout.machines, s.machines.cores_busy) for s in part[1:]]
        busy = [cores for cores in reported if np.isfinite(cores)]
        window = Series(tuple(part)).window() if len(part) > 1 else None
        if window is None or not busy:
            continue
        span_s += window.span_s
        of_instances_s = float(np.nansum(window.instances.cpu_s))
        others_s += float(np.mean(busy)) * window.span_s - of_instances_s
    return max(0.0, others_s / span_s) if span_s else None


def _read_s(series: Series) -> float | None:
    """The time from a record's append to its topic until it is read: its end-to-end latency minus
    that of the path through the job. The median over windows of a few seconds, so that batch
    boundaries do not count.
    """
    ends = series.snapshots[::READ_WINDOW]
    windows = (Series(pair).window() for pair in pairwise(ends))
    rests_s = [rest for window in windows if window is not None for rest in _rest_s(window)]
    return max(0.0, float(np.median(rests_s))) if rests_s else None


def _rest_s(window: Window) -> Iterator[float]:
    """For each job, its mean latency minus that of the channels and operators on its paths."""
    layout, edges = window.layout, window.edges
    busy = sum_by_node(layout, window.instances.busy_s)
    service = ratio(busy, sum_by_node(layout, window.instances.taken))
    channel = ratio(edges.channel_s, edges.transfers)
    for job in window.jobs.values():
        if any(_has_backlog(window, layout.source_row[job.id, s.name]) for s in job.sources):
            continue  # records of a backlog wait for the job, not for the reader
        path_s: dict[str, float] = {source.name: 0.0 for source in job.sources}
        sink_names = {sink.name for sink in job.sinks}
        for name in job.order:
            if name in path_s:
                continue
            rows = [(layout.edge_row[job.id, e.source, name], e.source) for e in job.parents[name]]
            flow = np.array([edges.emitted[row] for row, _ in rows])
            sink = name in sink_names
            arrival_s = [path_s[source] + (0.0 if sink else channel[row]) for row, source in rows]
            total = flow.sum()
            mean_s = float((flow * arrival_s).sum() / total) if total > 0 else np.nan
            own_s = 0.0 if sink else float(service[layout.node_row[job.id, name]])
            path_s[name] = mean_s + own_s
        sinks = [(layout.sink_row[job.id, s.name], path_s[s.name]) for s in job.sinks]
        counted = sum(window.sinks.latencies[row] for row, _ in sinks)
        latency_s = sum(window.sinks.latency_s[row] for row, _ in sinks)
        on_paths_s = sum(window.sinks.latencies[row] * path for row, path in sinks)
        if counted > 0 and np.isfinite(latency_s + on_paths_s):
            yield float((latency_s - on_paths_s) / counted)


def _per_task_s(window: Window) -> float:
    tasks = [job.tasks for job in window.jobs.values()]
    return SPARK_RTM.stall_per_task_s * float(np.mean(tasks or [0]))


def _stall_s(series: Series) -> float | None:
    """How long records wait at a batch boundary. A record that arrives when it begins waits for all
    of it, so the longest latency in a window with a boundary exceeds that of other windows by the
    pause. Windows with a backlog are not used.
    """
    longest_s: dict[str, list[float]] = {}
    for window in series.windows():
        for name, latency_s in _longest_s(window):
            longest_s.setdefault(name, []).append(latency_s)
    stalls_s: list[float] = []
    for name, latencies_s in longest_s.items():
        median_s = float(np.median(latencies_s))
        spikes_s = [value - median_s for value in latencies_s if value - median_s > MIN_STALL_S]
        length_s = series.last.time_s - series.snapshots[0].time_s
        boundaries = length_s / series.last.jobs[name].batch_s
        # A boundary may lie in two windows. More spikes than that have another cause.
        if spikes_s and len(spikes_s) <= 2 * max(1.0, boundaries):
            stalls_s.append(float(np.median(spikes_s)))
    return float(np.mean(stalls_s)) if stalls_s else None


def _has_backlog(window: Window, row: int) -> bool:
    """Whether a source has a backlog of a second or more; also if it has no input to compare."""
    rate = window.sources.arrived[row] / window.span_s
    return not (rate > 0 and window.lag[row] < rate)


def _longest_s(window: Window) -> Iterator[tuple[str, float]]:
    """The longest latency of each job, for sources without a backlog at the end of the window."""
    layout = window.layout
    for (job, _), row in layout.source_row.items():
        if _has_backlog(window, row):
            continue
        buckets = [
            bucket
            for (name, _), sink in layout.sink_row.items()
            if name == job
            for bucket in (window.latencies.row(sink) or {})
        ]
        if buckets:
            yield job, float(value_of(max(buckets))) / 1000


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration as YAML, for the `calibration` field of a scenario."""
    yaml = YAML()
    yaml.width = 100
    numbers = {name: getattr(calibration.character, name) for name in _NUMBERS}
    data = {
        "format": FORMAT,
        "source": calibration.source,
        "measured": list(calibration.measured),
        "engine": numbers,
        "profiles": {
            job: {
                name: {k: _plain(v) for k, v in asdict(profile).items() if v is not None}
                for name, profile in profiles.items()
            }
            for job, profiles in calibration.profiles.items()
        },
    }
    with path.open("w", encoding="utf-8") as stream:
        yaml.dump(data, stream)


def _plain(value: Any) -> Any:
    return value.value if hasattr(value, "value") else value


def load_calibration(path: Path) -> Calibration:
    document = read_yaml_file(path)
    data = document.data
    try:
        if data["format"] != FORMAT:
            raise KeyError(FORMAT)  # noqa: TRY301 - reported like any missing field
        # Older files lack numbers that are learned today; those have the engine's defaults.
        numbers = {name: data["engine"].get(name, getattr(SPARK_RTM, name)) for name in _NUMBERS}
        profiles = {
            job: {name: Profile(**profile) for name, profile in operators.items()}
            for job, operators in data["profiles"].items()
        }
        character = replace(SPARK_RTM, **numbers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = Problem("NOT_A_CALIBRATION", "", f"This is not a calibration: {error}.", "")
        raise InvalidScenario([document.locate(problem)], str(path)) from error
    return Calibration(profiles, character, tuple(data.get("measured", ())), str(data["source"]))


def with_profiles(job: Job, calibration: Calibration) -> Job:
    """The job with the learned profiles of its operators."""
    learned = calibration.profiles.get(job.id, {})
    return replace(
        job,
        operators=tuple(
            replace(operator, profile=learned.get(operator.name, operator.profile))
            for operator in job.operators
        ),
    )
