"""Owns what `advise` says of a recording: every measure, in words that the papers use."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from trilithon.cli.live import JUICE, constraint_line
from trilithon.cli.output import table
from trilithon.contract.figures import constraint_figures
from trilithon.errors import InvalidRecording
from trilithon.measures import slo
from trilithon.measures.assess import Assessment, assess
from trilithon.measures.trend import slope
from trilithon.model.job import NodeKind
from trilithon.model.layout import NODE_KINDS, Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import plain


def advice(series: Series) -> dict[str, Any]:
    """The measures of a series over all of its time, as data. What is missing is None."""
    window = series.window()
    if window is None:
        raise InvalidRecording("A single snapshot has a window only with `since_s`.")
    found = assess(window)
    layout = window.layout
    growth = _queue_growth(series)
    return {
        "window_s": window.span_s,
        "from_s": window.start_s,
        "to_s": window.end_s,
        "snapshots": len(series),
        "jobs": [_job(found, row, growth) for row in range(len(layout.jobs))],
        "machines": [
            {
                "machine": name,
                "cores": plain(window.machines.cores[row]),
                "load": plain(window.machines.load[row]),
                "etp_sum": plain(found.etp_sum[row]),
            }
            for row, name in enumerate(layout.machines)
        ],
        "satisfaction": _satisfaction(series),
    }


def _job(found: Assessment, row: int, growth: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    layout, intents = found.window.layout, found.intents
    name = layout.jobs[row]
    values = {key: plain(value[row]) for key, value in intents.values.items()}
    met = plain(found.met[row])
    job = found.window.jobs.get(name)
    return {
        "job": name,
        **values,
        "utility": plain(intents.utility[row]),
        "max_utility": plain(intents.max_utility[row]),
        "met": None if met is None else bool(met),
        "next_instance": _name(layout, found.next_target[row]),
        "thresholds": [
            {"threshold": str(t), "value": values.get(t.key), "met": t.met(values.get(t.key))}
            for t in (job.intent.thresholds if job else ())
        ],
        "constraints": constraint_figures(found, row),
        "operators": [
            _operator(found, node, growth)
            for node in layout.job_nodes(name)
            if NODE_KINDS[layout.node_kind[node]] is NodeKind.OPERATOR
        ],
        "edges": [
            {
                "edge": f"{layout.node_names[layout.edge_source[e]]}->"
                f"{layout.node_names[layout.edge_target[e]]}",
                "back_pressure": plain(found.back_pressure[e]),
                "channel_ms": _ms(found.channel_s[e]),
            }
            for e in np.flatnonzero(layout.node_job[layout.edge_source] == row)
        ],
    }


def _operator(
    found: Assessment, node: int, growth: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    layout = found.window.layout
    key = (layout.jobs[layout.node_job[node]], layout.node_names[node])
    return {
        "operator": layout.node_names[node],
        "parallelism": int(layout.parallelism[node]),
        "input_per_s": plain(found.input_rate[node]),
        "processed_per_s": plain(found.processing_rate[node]),
        "capacity": plain(found.capacity[node]),
        "cpu_capacity": plain(found.cpu_capacity[node]),
        "service_ms": _ms(found.service_s[node]),
        "waiting_ms": _ms(found.waiting_s[node]),
        "kingman_ms": _ms(found.kingman_s[node]),
        "fitted_e": plain(found.fitted_e[node]),
        "waiting_with_one_more_ms": _ms(found.waiting_with_one_more_s[node]),
        "queue": plain(found.queue[node]),
        "queue_growth_per_s": plain(growth.get(key, np.nan)),
        "rate_skew": plain(found.rate_skew[node]),
        "queue_skew": plain(found.queue_skew[node]),
        "juice": plain(found.juice[node]),
        "etp": plain(found.etp[node]),
        "projected_etp": plain(found.projected_etp[node]),
        "congested_by_capacity": bool(found.congested_by_capacity[node]),
        "congested_by_rates": bool(found.congested_by_rates[node]),
        "back_pressure_origin": bool(found.back_pressure_origin[node]),
    }


def _name(layout: Layout, node: int) -> str | None:
    return None if node < 0 else layout.node_names[node]


def _ms(seconds: Any) -> float | None:
    found = plain(seconds)
    return None if found is None else found * 1000


def _queue_growth(series: Series) -> dict[tuple[str, str], float]:
    """The slope of each operator's queue in records per second, where the shape stayed the same."""
    layout: Layout = series.last.layout
    same = [s for s in series.snapshots if s.layout is layout or s.layout.same_shape(layout)]
    if len(same) < 2:
        return {}
    times = np.array([snapshot.time_s for snapshot in same])
    queues = np.array([s.instances.sent - s.instances.taken for s in same])
    per_node = np.array(
        [
            np.bincount(layout.instance_node, weights=q, minlength=len(layout.node_names))
            for q in queues
        ]
    )
    slopes = slope(times, per_node)
    return {key: float(slopes[row]) for key, row in layout.node_row.items()}


def _satisfaction(series: Series) -> dict[str, Any] | None:
    windows = series.windows()
    found = slo.satisfaction_over_time(
        [slo.assess_intents(window).cluster_satisfaction for window in windows],
        [window.span_s for window in windows],
    )
    if found is None:
        return None
    return {"average": found.average, **{f"p{p:g}": v for p, v in found.percentiles.items()}}


def draw_advice(data: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"{data['snapshots']} snapshot{'s' if data['snapshots'] != 1 else ''}, "
        f"{data['window_s']:g} s up to {data['to_s']:g} s"
    )
    console.print()
    shown = sorted(data["jobs"], key=_satisfied)[:MOST_JOBS]
    console.print(table(None, JOB_COLUMNS, [_job_row(job) for job in shown]))
    if any((job["juice"] or 0) > 1 for job in shown):
        console.print(Text(JUICE, "dim"), soft_wrap=True)
    if (more := len(data["jobs"]) - len(shown)) > 0:
        console.print(f"and {more} more that are closer to their intents; -o json prints all")
    for job in shown:
        _draw_job(job, console)
    if data["machines"]:
        console.print()
        machines = [tuple(machine.values()) for machine in data["machines"]]
        console.print(table("machines", ("machine", "cores", "load", "ETP sum"), machines))
    if data["snapshots"] > 2 and (over_time := data["satisfaction"]) is not None:
        console.print()
        shares = ", ".join(f"{name} {value:.1%}" for name, value in over_time.items())
        console.print(f"SLO satisfaction over time: {shares}")


def _satisfied(job: Mapping[str, Any]) -> float:
    """The share of its utility that a job has: those that do worst are shown first."""
    return 1.0 if job["utility"] is None else job["utility"] / job["max_utility"]


def _job_row(job: Mapping[str, Any]) -> tuple[Any, ...]:
    verdict = {True: Text("met", "green"), False: Text("missed", "red"), None: None}[job["met"]]
    latency = (job[f"latency.{name}"] for name in ("mean", "p50", "p95", "p99"))
    worth = (job["utility"], job["max_utility"])
    return (job["job"], job["juice"], *latency, job["throughput"], *worth, verdict)


MOST_JOBS = 20
JOB_COLUMNS = (
    "job",
    "juice",
    "mean ms",
    "p50",
    "p95",
    "p99",
    "out/s",
    "utility",
    "of",
    "intent",
)
LOAD = {
    "operator": "operator",
    "p": "parallelism",
    "in/s": "input_per_s",
    "done/s": "processed_per_s",
    "capacity": "capacity",
    "cpu": "cpu_capacity",
    "queue": "queue",
    "growth/s": "queue_growth_per_s",
    "skew": "rate_skew",
    "ETP": "etp",
}
TIME = {
    "operator": "operator",
    "service ms": "service_ms",
    "waiting ms": "waiting_ms",
    "Kingman ms": "kingman_ms",
    "e": "fitted_e",
    "with one more ms": "waiting_with_one_more_ms",
}
FLAGS = {
    "congested_by_capacity": "busy",
    "congested_by_rates": "congested",
    "back_pressure_origin": "back-pressure",
}


def _draw_job(job: Mapping[str, Any], console: Console) -> None:
    operators = job["operators"]
    console.print()
    rows = [(*(o[key] for key in LOAD.values()), _flags(o)) for o in operators]
    console.print(table(job["job"], (*LOAD, ""), rows))
    console.print()
    console.print(table(None, tuple(TIME), [[o[key] for key in TIME.values()] for o in operators]))
    console.print()
    if any(operator["congested_by_rates"] for operator in operators):
        console.print(f"  one more instance would help most at {job['next_instance']}")
    for edge in job["edges"]:
        if (edge["back_pressure"] or 0) > 0.05:
            console.print(
                f"  {edge['edge']}: back-pressure for {edge['back_pressure']:.0%} of the time"
            )
    for constraint in job["constraints"]:
        console.print(constraint_line(constraint), soft_wrap=True)


def _flags(operator: Mapping[str, Any]) -> str:
    return ", ".join(word for key, word in FLAGS.items() if operator[key])
