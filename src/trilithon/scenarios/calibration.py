"""Owns learning from a recorded run: what operators cost, and how the engine that ran them behaves.

Everything comes from the recording of a real run: profiles from the service times, transport from the
idle transport of the edges, stalls from how long nothing was read at a boundary.
"""

from collections.abc import Iterator, Mapping
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
# A boundary that holds records up for less than this cannot be told from chance.
LEAST_STALL_S: Final = 0.1
MOSTLY_CPU: Final = 0.5
# Among how many keys the exponent of their distribution is sought: as many as a simulated run has.
KEYS: Final = 10_000
MOST_ZIPF: Final = 4.0
# Snapshots to a part of a run by which the time to read is told.
PART: Final = 5
_NUMBERS: Final = tuple(
    f.name for f in fields(Character) if f.type in {"float", float} or f.name == "credits"
)


@dataclass(frozen=True)
class Calibration:
    """What was learned; `source` says from what, and what of the engine was measured in it."""

    profiles: Mapping[str, Mapping[str, Profile]]
    character: Character
    measured: tuple[str, ...]
    source: str


def calibrate(series: Series, source: str, base: Character = SPARK_RTM) -> Calibration:
    """From a recorded run, of which the whole is used."""
    window = series.window()
    if window is None:
        raise InvalidRecording(f"{source} has no window: it takes two snapshots at least.", "")
    found: dict[str, Any] = dict(_engine(series, window))
    widest = _widest(series) or window
    return Calibration(
        profiles={job.id: dict(_profiles(window, widest, job)) for job in window.jobs.values()},
        character=replace(base, **found),
        measured=tuple(found),
        source=source,
    )


def _alike(series: Series) -> list[list[Snapshot]]:
    """The parts of a run in which there were the same instances."""
    parts: list[list[Snapshot]] = []
    for snapshot in series.snapshots:
        if parts and parts[-1][-1].layout.same_shape(snapshot.layout):
            parts[-1].append(snapshot)
        else:
            parts.append([snapshot])
    return parts


def _widest(series: Series) -> Window | None:
    """The part of a run in which there were the most instances, of several such parts the longest."""
    best = max(_alike(series), key=lambda part: (len(part[0].layout.instance_row), len(part)))
    return Series(tuple(best)).window() if len(best) > 1 else None


def _profiles(window: Window, widest: Window, job: Job) -> Iterator[tuple[str, Profile]]:
    """Service time and its variation, the part of it that is CPU, and what comes out."""
    layout, instances = window.layout, window.instances
    taken = sum_by_node(layout, instances.taken)
    taken_s = ratio(sum_by_node(layout, instances.busy_s), taken)
    square = ratio(sum_by_node(layout, instances.busy_sq_s2), taken)
    cpu = ratio(sum_by_node(layout, instances.cpu_s), sum_by_node(layout, instances.busy_s))
    # Who mostly computes waits for the CPU with the rest of its time, and a simulated machine adds that.
    service = np.where(cpu > MOSTLY_CPU, taken_s * np.minimum(cpu, 1.0), taken_s)
    cpu = np.where(cpu > MOSTLY_CPU, 1.0, cpu)
    emitted = np.bincount(
        layout.edge_source, weights=window.edges.emitted, minlength=len(layout.node_names)
    )
    ways = np.bincount(layout.edge_source, minlength=len(layout.node_names))
    # By the edges' counts: instances that have gone since are not in the rows.
    came = sum_by(layout.edge_target, window.edges.taken, len(layout.node_names))
    with np.errstate(invalid="ignore", divide="ignore"):
        cv = np.sqrt(np.maximum(0.0, square / taken_s**2 - 1))
        selectivity = emitted / ways / came
    for operator in job.operators:
        node = layout.node_row[job.id, operator.name]
        before = operator.profile or Profile()
        yield (
            operator.name,
            replace(
                before,
                service_ms=_known(service[node] * 1000, before.service_ms),
                service_cv=_known(cv[node], before.service_cv),
                cpu_share=_known(min(1.0, cpu[node]), before.cpu_share),
                selectivity=_known(selectivity[node], before.selectivity),
                zipf=_known(_zipf(widest, job, operator.name), before.zipf),
                learned=True,
            ),
        )


def _zipf(window: Window, job: Job, operator: str) -> float:
    """How uneven keys are, so that the busiest of an operator's instances gets as much as it did: missing
    where it has one instance only, or does not get its records by key.
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
    most = float(taken.max() / taken.sum())
    groups = assign_key_groups([1.0] * len(rows))

    def apart(zipf: float) -> float:
        return float(key_shares(KEYS, zipf, groups, len(rows)).max()) - most

    if apart(0.0) >= 0:
        return 0.0
    return float(optimize.brentq(apart, 0.0, MOST_ZIPF)) if apart(MOST_ZIPF) > 0 else MOST_ZIPF


def _known(value: float, otherwise: float | None) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else otherwise


def _engine(series: Series, window: Window) -> Iterator[tuple[str, float]]:
    layout, edges = window.layout, window.edges
    kinds = [NODE_KINDS[layout.node_kind[node]] for node in layout.edge_source]
    target = [NODE_KINDS[layout.node_kind[node]] for node in layout.edge_target]
    inner = np.array([k is NodeKind.OPERATOR for k in kinds]) & np.array(
        [k is NodeKind.OPERATOR for k in target]
    )
    way = edges.idle_transport_s + ratio(edges.batching_s, edges.transfers)
    known = way[inner & np.isfinite(way)]
    if len(known):
        transit = float(np.median(known))
        yield "transit_s", round(transit, 6)
        first = way[np.array([k is NodeKind.SOURCE for k in kinds]) & np.isfinite(way)]
        read_s = _read_s(series)
        if len(first) and read_s is not None:
            more_s = max(0.0, float(np.median(first)) - transit)
            yield "fetch_s", round(read_s + more_s, 6)
    if (stall := _stall_s(series)) is not None:
        yield "stall_s", round(max(0.0, stall - _per_task_s(window)), 4)
    if (load_calibration := _constant_load(series)) is not None:
        yield "constant_load", round(load_calibration, 3)


def _constant_load(series: Series) -> float | None:
    """Cores that compute beside the job's instances, all the time. Instances that go take their counts with
    them, so each part of the run with the same ones is looked at by itself.
    """
    others_s = span_s = 0.0
    for part in _alike(series):
        told = [sum_over_hosts(s.layout.machines, s.machines.cores_busy) for s in part[1:]]
        computing = [busy for busy in told if np.isfinite(busy)]
        window = Series(tuple(part)).window() if len(part) > 1 else None
        if window is None or not computing:
            continue
        span_s += window.span_s
        others_s += float(np.mean(computing)) * window.span_s - float(
            np.nansum(window.instances.cpu_s)
        )
    return max(0.0, others_s / span_s) if span_s else None


def _read_s(series: Series) -> float | None:
    """From a record's time in the log until it was read: what is left of its latency without the way
    through the job. The median over parts of a few seconds, so that ends of batches do not count.
    """
    ends = series.snapshots[::PART]
    parts = (Series(pair).window() for pair in pairwise(ends))
    found = [left for part in parts if part is not None for left in _left_over_s(part)]
    return max(0.0, float(np.median(found))) if found else None


def _left_over_s(window: Window) -> Iterator[float]:
    """Of each job, how much longer its records took than the channels and operators on their way."""
    layout, edges = window.layout, window.edges
    busy = sum_by_node(layout, window.instances.busy_s)
    service = ratio(busy, sum_by_node(layout, window.instances.taken))
    channel = ratio(edges.channel_s, edges.transfers)
    for job in window.jobs.values():
        if any(_behind(window, layout.source_row[job.id, one.name]) for one in job.sources):
            continue  # what waits in the log waits for the job, not to be read
        after: dict[str, float] = {source.name: 0.0 for source in job.sources}
        for name in job.order:
            if name in after:
                continue
            rows = [(layout.edge_row[job.id, e.source, name], e.source) for e in job.parents[name]]
            flow = np.array([edges.emitted[row] for row, _ in rows])
            sink = any(one.name == name for one in job.sinks)
            way = [after[source] + (0.0 if sink else channel[row]) for row, source in rows]
            total = flow.sum()
            mean = float((flow * way).sum() / total) if total > 0 else np.nan
            after[name] = mean if sink else mean + float(service[layout.node_row[job.id, name]])
        sinks = [(layout.sink_row[job.id, one.name], after[one.name]) for one in job.sinks]
        counted = sum(window.sinks.latencies[row] for row, _ in sinks)
        latency_s = sum(window.sinks.latency_s[row] for row, _ in sinks)
        on_the_way = sum(window.sinks.latencies[row] * way for row, way in sinks)
        if counted > 0 and np.isfinite(latency_s + on_the_way):
            yield float((latency_s - on_the_way) / counted)


def _per_task_s(window: Window) -> float:
    tasks = [job.tasks for job in window.jobs.values()]
    return SPARK_RTM.stall_per_task_s * float(np.mean(tasks or [0]))


def _stall_s(series: Series) -> float | None:
    """How long a boundary holds records up: a record that came at its beginning waits for all of it. So
    the longest latency in the windows with a boundary is longer by that than in the others. Windows
    with a backlog tell nothing of it.
    """
    longest: dict[str, list[float]] = {}
    for window in series.windows():
        for name, found_s in _longest_s(window):
            longest.setdefault(name, []).append(found_s)
    stalls: list[float] = []
    for name, found in longest.items():
        usual = float(np.median(found))
        spikes = [value - usual for value in found if value - usual > LEAST_STALL_S]
        expected = (series.last.time_s - series.snapshots[0].time_s) / series.last.jobs[
            name
        ].batch_s
        # More spikes than boundaries, each of which may lie in two windows, have another cause.
        if spikes and len(spikes) <= 2 * max(1.0, expected):
            stalls.append(float(np.median(spikes)))
    return float(np.mean(stalls)) if stalls else None


def _behind(window: Window, row: int) -> bool:
    """Whether a source has a backlog of a second or more, or nothing comes in by which that could be told."""
    rate = window.sources.arrived[row] / window.span_s
    return not (rate > 0 and window.lag[row] < rate)


def _longest_s(window: Window) -> Iterator[tuple[str, float]]:
    """The longest latency of each job in a window that it began and ended without a backlog."""
    layout = window.layout
    for (job, _), row in layout.source_row.items():
        if _behind(window, row):
            continue
        buckets = [
            bucket
            for (name, _), sink in layout.sink_row.items()
            if name == job
            for bucket in (window.latencies.row(sink) or {})
        ]
        if buckets:
            yield job, float(value_of(max(buckets))) / 1000


def save_calibration(path: Path, found: Calibration) -> None:
    """As YAML: for a scenario's `calibration`, and for people."""
    yaml = YAML()
    yaml.width = 100
    numbers = {name: getattr(found.character, name) for name in _NUMBERS}
    data = {
        "format": FORMAT,
        "source": found.source,
        "measured": list(found.measured),
        "engine": numbers,
        "profiles": {
            job: {
                name: {k: _plain(v) for k, v in asdict(profile).items() if v is not None}
                for name, profile in profiles.items()
            }
            for job, profiles in found.profiles.items()
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
            raise KeyError(FORMAT)  # noqa: TRY301 - told like everything else that is missing
        # A file from before a number was learned has it as it was then.
        numbers = {name: data["engine"].get(name, getattr(SPARK_RTM, name)) for name in _NUMBERS}
        profiles = {
            job: {name: Profile(**told) for name, told in operators.items()}
            for job, operators in data["profiles"].items()
        }
        character = replace(SPARK_RTM, **numbers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = Problem("NOT_A_CALIBRATION", "", f"This is not a calibration: {error}.", "")
        raise InvalidScenario([document.locate(problem)], str(path)) from error
    return Calibration(profiles, character, tuple(data.get("measured", ())), str(data["source"]))


def with_profiles(job: Job, found: Calibration) -> Job:
    """A job with the profiles that were learned of it."""
    learned = found.profiles.get(job.id, {})
    return replace(
        job,
        operators=tuple(
            replace(operator, profile=learned.get(operator.name, operator.profile))
            for operator in job.operators
        ),
    )
