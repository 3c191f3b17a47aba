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
from trilithon.experiments.markdown import percent, table
from trilithon.experiments.tenants import TenantJob, TenantLoad, load_generators
from trilithon.measures.constraints import assess_constraints
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.service.system import RunningSystem, running_system
from trilithon.spec.job_file import parse_job

MASTER: Final = "local[32]"
# Of the machine that the results come from.
CORES: Final = 2
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
    parts = [
        (
            "# A promise on Spark\n\n"
            "Printed by `trilithon experiment latency spark-primetester --into "
            "docs/results/latency.md` (`experiments/latency/spark_primetester.py`): PrimeTester "
            f"with a promise of {PROMISE_MS} ms on the mean over {INTERVAL_S:g} s, "
            f"{min(STEPS) * BASE_PER_S:g} to {max(STEPS) * BASE_PER_S:g} records/s, {SERVICE_MS} "
            "ms for each. An interval is kept if the mean is within the promise and what came in "
            "was read.\n"
        ),
        _conditions(waiting),
        table(
            (
                "work",
                "strategy",
                "runs",
                "kept",
                "without batch boundaries",
                "without two intervals after each step",
                "instance-seconds, of those at the peak",
            ),
            _rows(results, at_peak),
        ),
        "\n".join(_verdict(waiting, at_peak)),
        _honesty(results),
        *(_computing(each) for each in results if each.work == COMPUTING),
    ]
    if {each.strategy for each in waiting} == {LATENCY, PEAK, MEAN}:
        parts.append(f"![{PLOT_CAPTION}]({PLOT})\n\n*{PLOT_CAPTION}*\n")
    return "\n".join(parts)


def _conditions(waiting: Sequence[PromisedRun]) -> str:
    """What was fixed before the runs, and what would have made them void."""
    plan = LoadPlan()
    fixed = [each.kept() for each in waiting if each.strategy == MEAN]
    ours = f" It keeps {percent(mean(fixed))}." if fixed else ""
    return (
        "The promise and the fixed numbers of instances are constants of that file, set before the "
        f"runs: {plan.instances(PEAK)} for the highest load and {plan.instances(MEAN)} for the "
        f"mean load keep instances at most {_whole(BUSY)} busy, as the policy does. If the number "
        f"for the mean load kept more than {_whole(VOID_ABOVE)} of the intervals, the load would "
        f"be too easy and the comparison void.{ours} What came in counts as read if no more is "
        "left than arrives in a second, since reports are a second old. Spark runs as "
        f"`{MASTER}` on {CORES} cores: waiting takes none of them.\n"
    )


def _rows(results: Sequence[PromisedRun], at_peak: Sequence[float]) -> Iterator[tuple[str, ...]]:
    for work in (WAITING, COMPUTING):
        for strategy in (LATENCY, PEAK, MEAN):
            runs = [e for e in results if (e.work, e.strategy) == (work, strategy)]
            if not runs:
                continue
            seconds = mean(each.instance_s for each in runs)
            yield (
                work,
                strategy,
                str(len(runs)),
                _spread([e.kept() for e in runs]),
                _spread([e.kept(boundaries=False) for e in runs]),
                _spread([e.kept(settling=False) for e in runs]),
                percent(seconds / mean(at_peak)) if at_peak else "–",
            )


def _whole(share: float) -> str:
    """A share that is a number of per cent by definition."""
    return f"{100 * share:.0f} %"


def _spread(shares: Sequence[float]) -> str:
    if len(shares) == 1:
        return percent(shares[0])
    return f"{percent(mean(shares))} ({percent(min(shares))} to {percent(max(shares))})"


def _verdict(waiting: Sequence[PromisedRun], at_peak: Sequence[float]) -> list[str]:
    own = [each for each in waiting if each.strategy == LATENCY]
    fixed = [each for each in waiting if each.strategy == MEAN]
    if not own or not fixed or not at_peak:
        return ["Not all strategies were run yet."]
    missed = 1 - mean(each.kept() for each in fixed)
    if mean(each.kept() for each in fixed) > VOID_ABOVE:
        return [f"**Void**: {MEAN} misses only {percent(missed)} of them; the load is too easy."]
    kept, settled = (mean(e.kept(settling=s) for e in own) for s in (True, False))
    seconds = mean(each.instance_s for each in own) / mean(at_peak)
    goals = (
        (f"{_whole(GOAL_KEPT)} of the intervals kept", kept >= GOAL_KEPT, kept),
        (
            f"{_whole(GOAL_SETTLED)} without the two after each step",
            settled >= GOAL_SETTLED,
            settled,
        ),
        (
            f"at most {_whole(GOAL_SECONDS)} of the instance-seconds at the peak",
            seconds <= GOAL_SECONDS,
            seconds,
        ),
    )
    return [
        f"- {goal}: {'met' if met else 'missed'} ({percent(share)})" for goal, met, share in goals
    ]


def _honesty(results: Sequence[PromisedRun]) -> str:
    text = "\n"
    for work in (WAITING, COMPUTING):
        pairs = [pair for each in results if each.work == work for pair in each.predictions]
        if pairs:
            errors = [measured - predicted for predicted, measured in pairs]
            above_ms = float(np.percentile(errors, 90))
            high = f"at most {above_ms:.1f} ms more" if above_ms > 0 else "less"
            text += (
                f"With {work} testers, {len(pairs)} predictions of waiting were checked, each "
                "recomputed for the load that came: what was measured differs by "
                f"{median(map(abs, errors)):.1f} ms in the median, and is {high} than predicted in "
                "nine of ten.\n"
            )
    return text


def _computing(run: PromisedRun) -> str:
    """What comes of testers that share the cores: how much work there is, and what the policy does
    about it.
    """
    plan, step_s = LoadPlan(), LoadPlan().step_s
    work_s = [load * BASE_PER_S * step_s * SERVICE_MS / 1000 for load in plan.steps]
    left_s = 0.0
    for each in work_s:
        left_s = max(0.0, left_s + each - CORES * step_s)
    first = next(i for i, each in enumerate(work_s) if each > CORES * step_s)
    sentences = [
        (
            f"Computing testers share the machine's {CORES} cores. The load brings "
            f"{sum(work_s):,.0f} s of work in {plan.length_s:.0f} s, in which the cores have "
            f"{CORES * plan.length_s:.0f} s. From {first * step_s:.0f} s on "
            f"({plan.steps[first] * BASE_PER_S:g} records/s) more comes than they can do: if "
            f"testers had them for themselves, {left_s:.0f} s of work would be left at the end."
        ),
        *_late_to_the_end(run),
        *_at_most(run),
        "More testers make each slower, and the model takes service times as constant.",
    ]
    if not run.predictions:
        sentences.append(
            "No prediction could be checked: the model makes them for a steady state only."
        )
    return f"{' '.join(sentences)} The policy has no goal there.\n"


def _late_to_the_end(run: PromisedRun) -> list[str]:
    """From when on no interval's mean was within the promise."""
    late = _from_last(run, lambda each: each.mean_ms is None or each.mean_ms > PROMISE_MS)
    if not late:
        return []
    known = [each.mean_ms for each in late if each.mean_ms is not None]
    return [
        (
            f"From {late[0].at_s - INTERVAL_S:.0f} s on records wait to the end: the mean is above "
            f"the promise in all {len(late)} intervals ({median(known):,.0f} ms in the median)."
        )
    ]


def _at_most(run: PromisedRun) -> list[str]:
    """From when on the policy gave all that it may."""
    most = _from_last(run, lambda each: each.instances >= MOST)
    return [f"The policy gives its maximum of {MOST} from {most[0].at_s:.0f} s on."] if most else []


def _from_last(run: PromisedRun, holds: Callable[[Interval], bool]) -> Sequence[Interval]:
    """The intervals at the end of a run in which something holds without a break."""
    breaks = [i for i, each in enumerate(run.intervals) if not holds(each)]
    return run.intervals[breaks[-1] + 1 if breaks else 0 :]
