"""Runs PrimeTester on Spark with a promise on its mean latency: the policy `latency` beside fixed
numbers of instances for the highest and for the mean load, in turn, three times each.

The load warms up, climbs in six steps, stays, and falls in six steps. A record waits 20 ms in
`tester`, so that more instances help on two cores as they would on forty. The promise and the fixed
numbers are set beforehand: a fixed number of instances keeps utilisation at the policy's own bound.
If the one for the mean load keeps the promise in more than four fifths of the intervals, the load
is too easy and the comparison void.

A second run computes for 20 ms instead of waiting, without a goal: on two cores service times grow
with the number of instances, which the model takes as constant.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import numpy as np

from trilithon.control.rules import Rules
from trilithon.engines.spark.application import Setup
from trilithon.experiments.tenants import TenantJob, TenantLoad, load_generators
from trilithon.measures.constraints import assess_constraints
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.service.system import RunningSystem, running_system
from trilithon.spec.job_file import parse_job

MASTER: Final = "local[32]"
TURNS: Final = 3
INTERVAL_S: Final = 5.0
# The first half minute belongs to the JVM, which compiles what it runs.
JVM_S: Final = 30.0
STEP_S: Final = 30.0
# The load in each step, times `BASE_PER_S`: warm-up, six steps up, plateau, six steps down.
STEPS: Final = (1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1)
BASE_PER_S: Final = 30.0
SERVICE_MS: Final = 20
PROMISE_MS: Final = 60
MOST: Final = 8
SLOTS: Final = MOST + 1
# `highest_utilisation` of the policy.
BUSY: Final = 0.85
# Goals: intervals kept, without the two after each step, and instance-seconds of those at the peak.
GOAL_KEPT, GOAL_SETTLED, GOAL_SECONDS, VOID_ABOVE = 0.9, 0.95, 0.75, 0.8
LATENCY, PEAK, MEAN = "latency", "fixed at the peak", "fixed at the mean"
WAITING, COMPUTING = "waiting", "computing"
TOPIC: Final = "promised-numbers"
# A picture of the first run of each strategy, beside the page.
PLOT: Final = "plots/latency-spark-primetester.svg"
PLOT_CAPTION: Final = "Mean latency of each interval, and the testers in use, in the first turn"
_TENANT: Final = TenantJob(
    "promised", "primetester", 1, (Threshold(Metric.LATENCY, PROMISE_MS),), BASE_PER_S, {}
)
_CHECKED: Final = "PREDICTION_CHECKED"
_PREDICTED, _MEASURED = "tester.predicted_for_load_ms", "tester.measured_waiting_ms"
JOB_TEXT: Final = """\
tenant: promised
name: primetester
sources:
  - name: numbers
    options: {{subscribe: {topic}, startingOffsets: latest}}
    schema: {{user: STRING, url: STRING, at: TIMESTAMP, seq: BIGINT}}
    partitions: 2
operators:
  - name: tester
    input: numbers
    select: ["seq", "at", "{work} AS tested"]
    parallelism: {{initial: {instances}, min: 1, max: {most}}}
  - name: collect
    input: tester
    select: ["seq", "at"]
    parallelism: {{initial: 1, min: 1, max: 1}}
sinks:
  - {{name: tested, input: collect, options: {{topic: promised-tested}}}}
intent:
  constraints:
    - {{sequence: ["numbers->tester", tester, "tester->collect"], at_most: {promise} ms, over: 5 s}}
"""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The load of a run: what each step has, and how long it lasts."""

    steps: tuple[int, ...] = STEPS
    step_s: float = STEP_S

    @property
    def length_s(self) -> float:
        return len(self.steps) * self.step_s

    def instances(self, strategy: str) -> int:
        """How many testers a run begins with: fixed ones for their load, the policy's for the first
        step.
        """
        load = {PEAK: max(self.steps), MEAN: mean(self.steps)}.get(strategy, self.steps[0])
        return math.ceil(load * BASE_PER_S * SERVICE_MS / 1000 / BUSY)

    def settles(self, at_s: float) -> bool:
        """Whether an interval that ends then is one of the two after a step of the load. One that
        ends with a step is before it, and the plateau begins without one.
        """
        step = math.ceil(at_s / self.step_s) - 1
        if not 0 < step < len(self.steps) or self.steps[step] == self.steps[step - 1]:
            return False
        return at_s - step * self.step_s <= 2 * INTERVAL_S


@dataclass(frozen=True, slots=True)
class Interval:
    """Five seconds: the mean latency of the path, whether all that came was read, and what else
    happened.
    """

    at_s: float
    mean_ms: float | None
    read: bool
    instances: int
    boundary: bool = False
    settling: bool = False

    @property
    def kept(self) -> bool:
        return self.mean_ms is not None and self.mean_ms <= PROMISE_MS and self.read


@dataclass(frozen=True, slots=True)
class PromisedRun:
    """One run: its intervals, and what the model predicted and what was measured, in ms."""

    work: str
    strategy: str
    turn: int
    intervals: tuple[Interval, ...]
    predictions: tuple[tuple[float, float], ...] = field(default=())

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "PromisedRun":
        return cls(
            data["work"],
            data["strategy"],
            data["turn"],
            tuple(Interval(**each) for each in data["intervals"]),
            tuple((predicted, measured) for predicted, measured in data["predictions"]),
        )

    def kept(self, *, boundaries: bool = True, settling: bool = True) -> float:
        """The share of intervals in which the promise was kept; nothing measured is not kept."""
        counted = [
            each
            for each in self.intervals
            if (boundaries or not each.boundary) and (settling or not each.settling)
        ]
        return sum(each.kept for each in counted) / len(counted) if counted else 0.0

    @property
    def instance_s(self) -> float:
        return INTERVAL_S * sum(each.instances for each in self.intervals)


def job_of(work: str, instances: int) -> Job:
    return parse_job(
        JOB_TEXT.format(
            topic=TOPIC,
            work=f"{'wait' if work == WAITING else 'work'}({SERVICE_MS})",
            instances=instances,
            most=MOST,
            promise=PROMISE_MS,
        ).encode()
    )


def open_rules() -> Rules:
    """Rules whose guard lets everything through, as nothing stood between the paper's system and
    its engine.
    """
    limits = {
        "round_s": INTERVAL_S,
        "cool_down_s": 0.0,
        "fresh_s": 10.0,
        "up_factor": 1e6,
        "down_factor": 0.0,
        "down_delay_s": 0.0,
        "saturated": 1.0,
        "backlog_s": 1e9,
    }
    return Rules.of({"policy": LATENCY, "mode": str(Mode.OFF), "limits": limits})


def wanted_runs(turns: int) -> list[tuple[str, str, int]]:
    """Kind of work, strategy and turn: strategies in turn; computing once, under the policy."""
    waiting = [(WAITING, name, turn) for turn in range(turns) for name in (LATENCY, PEAK, MEAN)]
    return [*waiting, (COMPUTING, LATENCY, 0)]


def run_promises(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    turns: int = TURNS,
    run: "Callable[[str, str, int, Callable[[str], None]], PromisedRun] | None" = None,
) -> Iterator[dict[str, Any]]:
    """All runs; yields after each, and goes on after those that are done."""
    results = [PromisedRun.of(each) for each in done.get("runs", ())]
    known = {(each.work, each.strategy, each.turn) for each in results}
    for wanted in wanted_runs(turns):
        if wanted in known:
            continue
        results.append((run or run_promise)(*wanted, tell))
        work, strategy, turn = wanted
        tell(f"{work}, {strategy}, turn {turn + 1}: {results[-1].kept():.0%} of the intervals kept")
        yield {"runs": [asdict(each) for each in results]}
    yield {"runs": [asdict(each) for each in results]}


def run_promise(
    work: str,
    strategy: str,
    turn: int,
    tell: Callable[[str], None],
    plan: LoadPlan | None = None,
    jvm_s: float = JVM_S,
) -> PromisedRun:
    """One run, from the start of Spark to its end."""
    plan = plan or LoadPlan()
    job = job_of(work, plan.instances(strategy))
    with tempfile.TemporaryDirectory(prefix="trilithon-promised-") as name:
        folder = Path(name)
        setup = Setup(MASTER, folder / "spark", slots=SLOTS)
        with running_system(setup, [job], open_rules(), folder, tell) as system:
            intervals, predictions = observed(system, job, strategy, folder, plan, jvm_s)
    return PromisedRun(work, strategy, turn, intervals, predictions)


def observed(
    system: RunningSystem, job: Job, strategy: str, folder: Path, plan: LoadPlan, jvm_s: float
) -> tuple[tuple[Interval, ...], tuple[tuple[float, float], ...]]:
    """The intervals of a running job under the load, and the model's predictions."""
    steps = folder / "steps.csv"
    rows = (f"{i},{load}\n" for i, load in enumerate(plan.steps))
    steps.write_text(f"step,load\n{''.join(rows)}", encoding="utf-8")
    first = {"rate": plan.steps[0] * BASE_PER_S}
    trace = {
        "rate": mean(plan.steps) * BASE_PER_S,
        "shape": "trace",
        "trace": steps,
        "period": f"{plan.step_s:g}s",
    }
    with load_generators(system.kafka, [TenantLoad(_TENANT, first, TOPIC)], jvm_s):
        _intervals(system, job, jvm_s, plan)
    began_s = time.time()
    if strategy == LATENCY:
        system.daemon.commands.mode(job.id, Mode.AUTO)
    with load_generators(system.kafka, [TenantLoad(_TENANT, trace, TOPIC)], plan.length_s):
        intervals = _intervals(system, job, plan.length_s, plan)
    predictions = tuple(
        (predicted, measured)
        for row in system.decided(began_s)
        if row.reason == _CHECKED
        and (predicted := row.numbers.get(_PREDICTED)) is not None
        and (measured := row.numbers.get(_MEASURED)) is not None
    )
    return intervals, predictions


def _intervals(
    system: RunningSystem, job: Job, for_s: float, plan: LoadPlan
) -> tuple[Interval, ...]:
    """An interval every five seconds, for so long."""
    began = time.monotonic()
    intervals: list[Interval] = []
    batch = system.batch(job.id)
    while (passed_s := time.monotonic() - began) < for_s:
        ends_s = (len(intervals) + 1) * INTERVAL_S
        if passed_s < ends_s:
            time.sleep(min(1.0, ends_s - passed_s))
            system.look()
            continue
        before, batch = batch, system.batch(job.id)
        window = system.window(INTERVAL_S)
        instances = system.engine.jobs()[job.id].allocation.parallelism["tester"]
        measured = (None, False) if window is None else measured_interval(window)
        intervals.append(
            Interval(ends_s, *measured, instances, before != batch, plan.settles(ends_s))
        )
    return tuple(intervals)


def measured_interval(window: Window) -> tuple[float | None, bool]:
    """The mean latency of the path, and whether what came in was read. Reports are a second old, so
    what came within a second is no backlog.
    """
    mean_ms = float(assess_constraints(window).mean_ms[0])
    arrived_per_s = float(np.nansum(window.sources.arrived)) / window.span_s
    return (
        None if math.isnan(mean_ms) else round(mean_ms, 2),
        bool(np.nansum(window.lag) <= max(1.0, arrived_per_s)),
    )


def page(data: Mapping[str, Any]) -> str:
    """What was kept and what it took, as Markdown."""
    results = [PromisedRun.of(each) for each in data["runs"]]
    waiting = [each for each in results if each.work == WAITING]
    at_peak = [each.instance_s for each in waiting if each.strategy == PEAK]
    text = (
        "# A promise on Spark\n\n"
        "Printed by `trilithon experiment latency spark-primetester --into docs/results/latency.md`"
        " (`experiments/latency/spark_primetester.py`): PrimeTester with a promise of "
        f"{PROMISE_MS} ms on the mean over {INTERVAL_S:g} s, {min(STEPS) * BASE_PER_S:g} to "
        f"{max(STEPS) * BASE_PER_S:g} records/s, {SERVICE_MS} ms for each. An interval is kept if "
        "the mean is within the promise and what came in was read.\n\n"
        "| work | strategy | runs | kept | without batch boundaries | without two intervals after "
        "each step | instance-seconds, of those at the peak |\n|" + " --- |" * 7 + "\n"
    )
    for work in (WAITING, COMPUTING):
        for strategy in (LATENCY, PEAK, MEAN):
            runs = [e for e in results if (e.work, e.strategy) == (work, strategy)]
            if not runs:
                continue
            seconds = mean(each.instance_s for each in runs)
            share = f"{seconds / mean(at_peak):.0%}" if at_peak else "–"
            text += (
                f"| {work} | {strategy} | {len(runs)} | {_spread([e.kept() for e in runs])} | "
                f"{_spread([e.kept(boundaries=False) for e in runs])} | "
                f"{_spread([e.kept(settling=False) for e in runs])} | {share} |\n"
            )
    text += "\n" + "\n".join(_verdict(waiting, at_peak)) + "\n" + _honesty(results)
    if any(each.work == COMPUTING for each in results):
        text += (
            f"\nComputing testers share the machine's two cores, which {SERVICE_MS} ms per record "
            f"fill from {2000 / SERVICE_MS:g} records/s on. More of them make each slower, and the "
            "model takes service times as constant: it asks for its maximum in vain. The policy "
            "has no goal there.\n"
        )
    if {each.strategy for each in waiting} == {LATENCY, PEAK, MEAN}:
        text += f"\n![{PLOT_CAPTION}]({PLOT})\n\n*{PLOT_CAPTION}*\n"
    return text


def _spread(shares: Sequence[float]) -> str:
    if len(shares) == 1:
        return f"{shares[0]:.1%}"
    return f"{mean(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"


def _verdict(waiting: Sequence[PromisedRun], at_peak: Sequence[float]) -> list[str]:
    own = [each for each in waiting if each.strategy == LATENCY]
    fixed = [each for each in waiting if each.strategy == MEAN]
    if not own or not fixed or not at_peak:
        return ["Not all strategies were run yet."]
    missed = 1 - mean(each.kept() for each in fixed)
    if mean(each.kept() for each in fixed) > VOID_ABOVE:
        return [
            f"**Void**: {MEAN} misses only {missed:.1%} of the intervals; the load is too easy."
        ]
    kept, settled = (mean(e.kept(settling=s) for e in own) for s in (True, False))
    seconds = mean(each.instance_s for each in own) / mean(at_peak)
    goals = (
        (f"{GOAL_KEPT:.0%} of the intervals kept", kept >= GOAL_KEPT, f"{kept:.1%}"),
        (
            f"{GOAL_SETTLED:.0%} without the two after each step",
            settled >= GOAL_SETTLED,
            f"{settled:.1%}",
        ),
        (
            f"at most {GOAL_SECONDS:.0%} of the instance-seconds at the peak",
            seconds <= GOAL_SECONDS,
            f"{seconds:.0%}",
        ),
    )
    return [f"- {goal}: {'met' if met else 'missed'} ({figure})" for goal, met, figure in goals]


def _honesty(results: Sequence[PromisedRun]) -> str:
    text = "\n"
    for work in (WAITING, COMPUTING):
        pairs = [pair for each in results if each.work == work for pair in each.predictions]
        if pairs:
            errors = [measured - predicted for predicted, measured in pairs]
            above_ms = float(np.percentile(errors, 90))
            high = f"at most {above_ms:.1f} ms more" if above_ms > 0 else "less"
            text += (
                f"With {work} testers, {len(pairs)} predictions of waiting were checked: what was "
                f"measured differs by {median(map(abs, errors)):.1f} ms in the median, and is "
                f"{high} than predicted in nine of ten.\n"
            )
    return text
