"""Runs the policy `dhalion` on Spark: word count with each ailment, ten short runs of each.

In a run five jobs share an application, one for each ailment and a healthy one, and read the same
records: the policy must tell the ill ones from their neighbours. All times are a tenth of the
paper's: 30 s of symptoms, an examination every 12 s, a wait of 18 s. Words are numbers, sent by key
to `count`, whose instances wait for some milliseconds per word. The slow instance is the task 0 of
`count`: it waits five times as long as its peers for any word, in every batch. What moves to
another task is as cheap there as all other words.

A run is right if its first diagnosis is the one of its ailment, and none for the healthy. The SLO
is met if the job reads at least 95 % of what arrives: at the gate a job reads no more than it
processes. It is measured before the policy may act and in the last minute. A run is cured if
something was changed, the SLO was missed before and is met at the end. Alerts change nothing and
are counted by themselves.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from trilithon.control.journal.rows import DecisionRow
from trilithon.engines.spark.application import Setup
from trilithon.experiments.dhalion import confusion
from trilithon.experiments.dhalion.confusion import NONE, first_diagnosis
from trilithon.experiments.markdown import table
from trilithon.experiments.tenants import TenantJob, TenantLoad, load_generators, rules
from trilithon.model.change import ALERT
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.model.snapshot import present
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW, UNDER
from trilithon.policies.dhalion.resolvers import SCALE_UP
from trilithon.service.system import RunningSystem, running_system
from trilithon.spec.job_file import parse_job

MASTER: Final = "local[80]"
TOPIC: Final = "health-words"
RUNS: Final = 10
SCALE: Final = 0.1
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S, RUN_S = 40.0, 300.0
# The windows before the policy may act and at the end of a run, how often the system is looked at,
# and what a load lasts longer.
BEFORE_S, END_S, LOOK_S, SPARE_S = 20.0, 60.0, 5.0, 60.0
# Of what arrives, the share that a job must read to keep up: its SLO.
KEEPS_UP: Final = 0.95
RIGHT_GOAL: Final = 0.9
PARAMETERS: Final[Mapping[str, Any]] = {
    "period_s": 120 * SCALE,
    "window_s": 300 * SCALE,
    "wait_s": 180 * SCALE,
}
INSTANCES, MOST = 4, 8
# Of a job; five of them fit two cores.
RATE_PER_S: Final = 100.0
KEYS: Final = 2000
# Per word: an instance is good for 33 of them a second. Four of them are at work for three quarters
# of the time, and three would be at their limit.
WAIT_MS: Final = 30
# How many times as long the slow instance waits. With a weight for its speed all would be at work
# for 94 % of the time.
SLOWER: Final = 5
# The share of the words that are the same one, and the wait for which four instances are too many.
HOT_PERCENT: Final = 25
SHORT_WAIT_MS: Final = 6
JOB_TEXT: Final = """\
tenant: health
name: {name}
sources:
  - name: sentences
    options: {{subscribe: {topic}, startingOffsets: latest}}
    schema: {{user: STRING, url: STRING, at: TIMESTAMP, seq: BIGINT}}
    partitions: 2
operators:
  - name: split
    input: sentences
    select: ["{word} AS word", "at", "seq"]
    parallelism: {{initial: 2, min: 2, max: 2}}
  - name: count
    input: {{from: split, grouping: by_key, key: [word]}}
    select: ["word", "at", "seq", "wait({wait}) AS waited"]
    parallelism: {{initial: {instances}, max: {most}}}
sinks:
  - {{name: words, input: count, options: {{topic: health-{name}}}}}
intent:
  slo: [{{metric: juice, at_least: {keeps_up}}}]
"""
_WORD: Final = f"CAST(seq % {KEYS} AS STRING)"


@dataclass(frozen=True, slots=True)
class HealthCase:
    """An ailment on Spark: the right diagnosis, and what makes the job ill."""

    name: str
    right: str
    wait: str = str(WAIT_MS)
    word: str = _WORD
    instances: int = INSTANCES

    @property
    def text(self) -> str:
        """Its job file."""
        return JOB_TEXT.format(
            name=self.name.replace(" ", "-"),
            topic=TOPIC,
            word=self.word,
            wait=self.wait,
            instances=self.instances,
            most=MOST,
            keeps_up=KEEPS_UP,
        )

    @property
    def job(self) -> Job:
        return parse_job(self.text)


CASES: Final = (
    HealthCase(
        "slow instance",
        SLOW,
        f"CASE WHEN instance_number() = 0 THEN {SLOWER * WAIT_MS} ELSE {WAIT_MS} END",
    ),
    HealthCase(
        "hot key", SKEW, word=f"CASE WHEN seq % 100 < {HOT_PERCENT} THEN 'hot' ELSE {_WORD} END"
    ),
    HealthCase("too few instances", UNDER, instances=2),
    HealthCase("too many instances", OVER, str(SHORT_WAIT_MS)),
    HealthCase("healthy", NONE),
)


@dataclass(frozen=True, slots=True)
class HealthRun:
    """One run: its first diagnosis, what was changed, what people were told, and the share that the
    job read of what arrived, before the policy might act and in the last minute; None if that is
    not known.
    """

    case: str
    number: int
    diagnosis: str
    actions: tuple[str, ...]
    alerts: tuple[str, ...]
    read_before: float | None
    read_share: float | None

    @property
    def right(self) -> bool:
        """Whether its first diagnosis is the one of its ailment."""
        return next(case.right for case in CASES if case.name == self.case) == self.diagnosis

    @property
    def met_before(self) -> bool:
        """Whether the SLO was met before the policy might act."""
        return self.read_before is not None and self.read_before >= KEEPS_UP

    @property
    def met(self) -> bool:
        """Whether the SLO is met at the end."""
        return self.read_share is not None and self.read_share >= KEEPS_UP

    @property
    def cured(self) -> bool:
        """Whether changes brought the SLO back."""
        missed_before = self.read_before is not None and not self.met_before
        return bool(self.actions) and missed_before and self.met

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "HealthRun":
        return cls(**{**data, "actions": tuple(data["actions"]), "alerts": tuple(data["alerts"])})


def set_up_digest() -> str:
    """Identifies the jobs, the load, the times and the parameters of a run."""
    jobs = [case.text for case in CASES]
    times = (WARM_S, RUN_S, BEFORE_S, END_S, LOOK_S, SPARE_S)
    numbers = (RATE_PER_S, times, MASTER, KEEPS_UP, sorted(PARAMETERS.items()))
    return sha256(repr((jobs, numbers)).encode()).hexdigest()[:16]


def stored_runs(data: Mapping[str, Any]) -> list[HealthRun]:
    """The runs of a file. Those of an earlier version did not measure what was read before the
    policy might act, or at the end: they are left out, and run again.
    """
    wanted = {field.name for field in fields(HealthRun)}
    return [HealthRun.of(each) for each in data.get("runs", ()) if set(each) == wanted]


def run_health(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    runs: int = RUNS,
    run: "Callable[[int, Callable[[str], None]], list[HealthRun]] | None" = None,
) -> Iterator[dict[str, Any]]:
    """So many runs of all cases; yields after each, and goes on after those that are done."""
    results = stored_runs(done)
    known = {each.number for each in results}
    for number in sorted(set(range(runs)) - known):
        results += (run or run_cases)(number, tell)
        right = sum(each.right for each in results[-len(CASES) :])
        tell(f"run {number + 1} of {runs}: {right} of {len(CASES)} diagnoses are right")
        yield {"runs": [asdict(each) for each in results]}
    yield {"runs": [asdict(each) for each in results]}


def run_cases(
    number: int,
    tell: Callable[[str], None],
    warm_s: float = WARM_S,
    run_s: float = RUN_S,
    patience_s: float = 0.0,
) -> list[HealthRun]:
    """All cases side by side, from the start of Spark to its end; the policy acts after the JVM is
    warm. A run goes on for up to `patience_s` longer while an ill job has no diagnosis.
    """
    jobs = {case.name: case.job for case in CASES}
    acting = rules("dhalion", PARAMETERS, Mode.OFF)
    tenant = TenantJob("health", "wordcount", 1, (), RATE_PER_S, {})
    load = TenantLoad(tenant, {"rate": RATE_PER_S}, TOPIC)
    with tempfile.TemporaryDirectory(prefix="trilithon-health-") as name:
        folder = Path(name)
        setup = Setup(MASTER, folder / "spark", slots=len(CASES) * (2 + MOST))
        with (
            running_system(setup, list(jobs.values()), acting, folder, tell) as system,
            load_generators(system.kafka, [load], warm_s + run_s + patience_s + SPARE_S),
        ):
            _look(system, warm_s)
            before = system.window(BEFORE_S)
            began_s = time.time()
            for job in jobs.values():
                system.daemon.commands.mode(job.id, Mode.AUTO)
            _look(system, run_s)
            ends_s = time.monotonic() + patience_s
            while undiagnosed(system.decided(began_s)) and time.monotonic() < ends_s:
                _look(system, LOOK_S)
            window = system.window(END_S)
            decided = system.decided(began_s)
    return [
        health_run(
            case.name,
            number,
            [row for row in decided if row.job == jobs[case.name].id],
            read_share(before, jobs[case.name].id),
            read_share(window, jobs[case.name].id),
        )
        for case in CASES
    ]


def undiagnosed(rows: Sequence[DecisionRow]) -> list[str]:
    """The ill cases without any diagnosis among the decisions."""
    return [
        case.name
        for case in CASES
        if case.right != NONE
        and first_diagnosis(row.reason for row in rows if row.job == case.job.id) == NONE
    ]


def _look(system: RunningSystem, for_s: float) -> None:
    """Looks at the system from time to time, so that a window of its end is known."""
    end_s = time.monotonic() + for_s
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left_s))
        system.look()


def read_share(window: Window | None, job: str) -> float | None:
    """What a job read in a window, as a share of what arrived; None if a number is missing, or if
    nothing arrived.
    """
    if window is None or job not in window.layout.job_row:
        return None
    layout = window.layout
    rows = np.flatnonzero(layout.node_job[layout.source_nodes] == layout.job_row[job])
    arrived, taken = (
        present(c[rows].sum()) for c in (window.sources.arrived, window.sources.taken)
    )
    return None if taken is None or not arrived else taken / arrived


def health_run(
    case: str,
    number: int,
    rows: Sequence[DecisionRow],
    before: float | None,
    share: float | None,
) -> HealthRun:
    """A run by its decisions, the oldest first, and what it read before them and at its end."""
    first = first_diagnosis(row.reason for row in rows)
    granted = [(row.reason, {change.get("change") for change in row.granted}) for row in rows]
    actions = tuple(reason for reason, changes in granted if changes - {ALERT})
    alerts = tuple(reason for reason, changes in granted if changes == {ALERT})
    return HealthRun(case, number, first, actions, alerts, before, share)


def page(data: Mapping[str, Any]) -> str:
    """The confusion matrix of the runs on Spark and the goals, as Markdown."""
    results = {case: _of(data, case.name) for case in CASES}
    rows = []
    for case, of in results.items():
        right = sum(each.right for each in of)
        rows.append(
            (
                case.name,
                *confusion.cells(each.diagnosis for each in of),
                f"{right} of {len(of)}",
                *(
                    str(sum(map(bool, column)))
                    for column in (
                        [each.met_before for each in of],
                        [each.actions for each in of],
                        [each.met for each in of],
                        [each.cured for each in of],
                        [each.alerts for each in of],
                        [scaled_up_besides(each) for each in of],
                    )
                ),
            )
        )
    counts = (
        "right",
        "SLO met before",
        "changed",
        "SLO met after",
        "cured",
        "alerted",
        "scaled up besides",
    )
    heads = ("", *confusion.HEADS, *counts)
    return (
        "# Diagnoses on Spark\n\n"
        "Printed by `trilithon experiment dhalion spark-health --into docs/results/dhalion.md`. In "
        "each run five word counts share one Spark application, one job per row, each at "
        f"{RATE_PER_S:.0f} words a second. All times of the policy are a tenth of the paper's: "
        f"{PARAMETERS['window_s']:.0f} s of symptoms, an examination every "
        f"{PARAMETERS['period_s']:.0f} s, a wait of {PARAMETERS['wait_s']:.0f} s after an action. "
        f"The policy may act for {RUN_S:.0f} s (`experiments/dhalion/spark_health.py`).\n\n"
        "Rows are what ails a job, columns the first diagnosis in each run. The other columns "
        f"count runs. The SLO is met if a job reads at least {100 * KEEPS_UP:.0f} % of what "
        f"arrives, in {BEFORE_S:.0f} s before the policy may act and in the last {END_S:.0f} s. "
        "Cured are the runs in which something was changed, and the SLO was missed before and met "
        "after. Alerted are those in which the policy raised an alert. Scaled up besides are those "
        "in which a slow instance or a hot key was cured by its own cure and by more instances, "
        "too: while a backlog is worked off, all instances are always at work.\n\n"
        f"{table(heads, rows)}\n"
        f"{_ailments()}\n"
        "All jobs share one JVM. So the second cure of a slow instance, a spare task on another "
        "machine, is a spare task of the same machine here. Two machines are covered by "
        "`tests/engines/spark/test_two_executors.py`.\n\n"
        "## Goals\n\n" + "\n".join(f"- {sentence}" for sentence in _goals(results)) + "\n"
    )


def scaled_up_besides(run: HealthRun) -> bool:
    """Whether a job that lacked no instances got some."""
    right = next(case.right for case in CASES if case.name == run.case)
    return right in {SLOW, SKEW} and SCALE_UP.upper() in run.actions


def _ailments() -> str:
    """What ails the job of each row."""
    few = next(case.instances for case in CASES if case.right == UNDER)
    return (
        f"A healthy `count` has {INSTANCES} instances that wait {WAIT_MS} ms per word: they are at "
        f"work for {_busy(INSTANCES)} of the time, and {INSTANCES - 1} would be for "
        f"{_busy(INSTANCES - 1)}. The slow instance is one task that waits "
        f"{SLOWER * WAIT_MS} ms for every word. The hot key has {HOT_PERCENT} % of the words. With "
        f"too few instances there are {few}; with too many, each word takes {SHORT_WAIT_MS} ms.\n"
    )


def _busy(instances: int) -> str:
    """The share of the time for which so many instances are at work."""
    return f"{100 * RATE_PER_S / instances * WAIT_MS / 1000:.0f} %"


def _of(data: Mapping[str, Any], case: str) -> list[HealthRun]:
    return [each for each in stored_runs(data) if each.case == case]


def _goals(results: Mapping[HealthCase, Sequence[HealthRun]]) -> Iterator[str]:
    goal = f"at least {RUNS * RIGHT_GOAL:.0f} of {RUNS}"
    for case, of in results.items():
        right = sum(each.right for each in of)
        met = "met" if of and right >= RIGHT_GOAL * len(of) else "missed"
        yield f"{case.name}: {right} of {len(of)} are diagnosed right, the goal is {goal}: {met}."
    for case, of in results.items():
        if case.right == NONE:
            changed = sum(bool(each.actions) for each in of)
            met = "met" if of and not changed else "missed"
            yield f"{case.name}: {changed} of {len(of)} are changed, the goal is none: {met}."
