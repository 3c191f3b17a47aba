"""Measures our figures of the latency paper's experiments in the lines of their runs."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from trilithon.experiments.latency.catalogue import LATENCY, PROMISES_MS
from trilithon.experiments.latency.set_ups import BURST_LENGTH_S, BURST_S, ENDS, STEP_S
from trilithon.experiments.paper import Runs, Values
from trilithon.experiments.runs import LEAST_READ, Bools, Floats, Run, read_shares
from trilithon.experiments.strategies import UNCONTROLLED

# The paper's mean throughput and latency are those of 10 s; steady state is lost when less is read
# than came in for so many intervals of 5 s.
LOST_INTERVALS: Final = 3


def line(run: Run, what: str) -> Floats:
    """A line of the only job."""
    return run.line(run.jobs[0], what)


def spans_s(run: Run) -> Floats:
    return np.diff(run.times_s, prepend=0.0)


def read(run: Run) -> Floats:
    """The share of what came in that was read, per interval."""
    return read_shares(line(run, "lag"), line(run, "input"), spans_s(run))


def kept(run: Run, number: int, limit_ms: float) -> float:
    """The share of intervals in which a constraint was kept and what came in was read."""
    with np.errstate(invalid="ignore"):
        within = line(run, f"constraint.{number}") <= limit_ms
    return float(np.mean(within & (read(run) >= LEAST_READ)))


def task_hours(run: Run) -> float:
    """Sources, testers and sinks over time."""
    instances = line(run, "instances")
    return float(((instances + ENDS) * spans_s(run)).sum() / 3600)


def resolved(run: Run) -> Bools:
    """Intervals in which the promise's mean is kept: queues that built up are resolved."""
    with np.errstate(invalid="ignore"):
        quiet: Bools = line(run, "constraint.0") <= 20.0
    return quiet


def _primetester(runs: Runs) -> Values:
    elastic = {ms: runs[f"{ms} ms"][LATENCY] for ms in PROMISES_MS}
    unelastic = runs["unelastic"][UNCONTROLLED.name]
    tight = elastic[20]
    testers = tight.parallelism[tight.jobs[0], "tester"]
    warm_up = tight.times_s <= STEP_S
    return {
        "intervals kept, 20 ms": kept(tight, 0, 20.0),
        "testers at the end of the warm-up": float(testers[warm_up][-1]),
        "95th percentile, 20 ms": float(np.median(line(tight, "latency.p95")[resolved(tight)])),
        "task-hours at 20 ms, of the unelastic ones": task_hours(tight) / task_hours(unelastic),
        **{f"task-hours, {ms} ms": task_hours(elastic[ms]) for ms in PROMISES_MS if ms != 20},
        "lowest mean latency, unelastic": float(np.nanmin(line(unelastic, "constraint.0"))),
        "lowest 95th percentile, unelastic": float(np.nanmin(line(unelastic, "latency.p95"))),
    }


def throughput(run: Run) -> Floats:
    """Records per second that the sources send, as the mean of two intervals."""
    sent = line(run, "input") * read(run)
    pairs: Floats = np.convolve(sent, np.ones(2) / 2, mode="valid")
    return pairs


def lost_s(run: Run) -> float | None:
    """When the steps begin in which less is read than comes in from then on; None if never."""
    behind = read(run) < LEAST_READ
    for i in range(len(behind) - LOST_INTERVALS + 1):
        if behind[i : i + LOST_INTERVALS].all():
            return float((run.times_s[i] - 1e-9) // STEP_S * STEP_S)
    return None


def missed_s(run: Run, limit_ms: float) -> float | None:
    """The first step in which a promise is missed in most intervals; None if there is none."""
    with np.errstate(invalid="ignore"):
        missed = ~(line(run, "constraint.0") <= limit_ms)
    steps = ((run.times_s - 1e-9) // STEP_S).astype(int)
    for step in range(1, int(steps[-1]) + 1):
        if missed[steps == step].mean() > 0.5:
            return step * STEP_S
    return None


def _batching(runs: Runs) -> Values:
    by_name = {
        "instant": runs["instant"][UNCONTROLLED.name],
        "adaptive": runs["adaptive"][LATENCY],
        "16 KiB": runs["16 KiB"][UNCONTROLLED.name],
    }
    values: Values = {}
    for name, run in by_name.items():
        values[f"peak throughput, {name}"] = float(np.nanmax(throughput(run)))
        values[f"steady state lost, {name}"] = lost_s(run)
        warm_up = (run.times_s > STEP_S / 2) & (run.times_s <= STEP_S)
        if name != "adaptive":
            mean = float(np.nanmean(line(run, "constraint.0")[warm_up]))
            values[f"latency in the warm-up, {name}"] = mean
    values["20 ms lost, adaptive"] = missed_s(by_name["adaptive"], 20.0)
    return values


def _twitter(runs: Runs) -> Values:
    run = runs["two weeks"][LATENCY]
    sentiment = run.parallelism[run.jobs[0], "sentiment"]
    times = run.times_s
    before = sentiment[times <= BURST_S][-1]
    burst = (times > BURST_S) & (times <= BURST_S + BURST_LENGTH_S + 30)
    outside = (times <= BURST_S) | (times > BURST_S + BURST_LENGTH_S + 60)
    return {
        "intervals kept, 215 ms": kept(run, 0, 215.0),
        "intervals kept, 30 ms": kept(run, 1, 30.0),
        "instances of sentiment that the burst adds": float(sentiment[burst].max() - before),
        "95th percentile of the 30-ms path, outside the burst": float(
            np.nanmedian(line(run, "latency.p95")[outside])
        ),
    }


MEASURES: Final[Mapping[str, Callable[[Runs], Values]]] = {
    "primetester": _primetester,
    "batching": _batching,
    "twittersentiment": _twitter,
}
