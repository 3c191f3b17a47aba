"""Runs the policy `dhalion` on Spark: word count with each ailment, ten short runs of each.

All times are a tenth of the paper's: 30 s of symptoms, a look every 12 s, a wait of 18 s. Words are
numbers, sent by key to `count`, whose instances wait for some milliseconds per word. Spark has no
switch that slows one instance down, so in the runs with a slow instance the key groups that it has
at the start cost five times as much: rates are alike, its service time is not. What moves away
stays expensive, so the cure must divide the work.

A run is right if its first diagnosis is the one of its ailment, and none for the healthy. It is
healed if the job keeps up at its end.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trilithon.engines.spark.application import Setup
from trilithon.experiments.tenants import TenantJob, TenantLoad, load_generators, rules
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW, UNDER
from trilithon.service.system import RunningSystem, running_system
from trilithon.spec.job_file import parse_job

MASTER: Final = "local[32]"
RUNS: Final = 10
SCALE: Final = 0.1
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S, RUN_S, END_S = 40.0, 150.0, 15.0
PARAMETERS: Final[Mapping[str, Any]] = {
    "period_s": 120 * SCALE,
    "window_s": 300 * SCALE,
    "wait_s": 180 * SCALE,
}
INSTANCES, MOST = 4, 8
RATE_PER_S: Final = 300.0
KEYS: Final = 2000
NONE: Final = "none"
_DIAGNOSIS: Final = "DIAGNOSIS_"
# An instance with 10 ms per word is good for 100 of them a second.
JOB_TEXT: Final = """\
tenant: health
name: words
sources:
  - name: sentences
    options: {{subscribe: health-words, startingOffsets: latest}}
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
  - {{name: words, input: count, options: {{topic: health-counted}}}}
intent:
  slo: [{{metric: juice, at_least: 0.95}}]
"""
_WORD: Final = f"CAST(seq % {KEYS} AS STRING)"


@dataclass(frozen=True, slots=True)
class HealthCase:
    """An ailment on Spark: the right diagnosis, and what makes the job ill."""

    name: str
    right: str
    wait: str = "10"
    word: str = _WORD
    instances: int = INSTANCES

    @property
    def job(self) -> Job:
        return parse_job(
            JOB_TEXT.format(
                word=self.word, wait=self.wait, instances=self.instances, most=MOST
            ).encode()
        )


CASES: Final = (
    HealthCase(
        "slow instance",
        SLOW,
        # Key groups are dealt in turn: those of the first instance are every fourth.
        f"CASE WHEN pmod(pmod(xxhash64(word), 1024), {INSTANCES}) = 0 THEN 50 ELSE 10 END",
    ),
    HealthCase("hot key", SKEW, word=f"CASE WHEN seq % 100 < 25 THEN 'hot' ELSE {_WORD} END"),
    HealthCase("too few instances", UNDER, instances=2),
    HealthCase("too many instances", OVER, "2"),
    HealthCase("healthy", NONE),
)


@dataclass(frozen=True, slots=True)
class HealthRun:
    """One run: its first diagnosis, what was done, and whether the job kept up at the end."""

    case: str
    number: int
    diagnosis: str
    actions: tuple[str, ...]
    healed: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "HealthRun":
        return cls(**{**data, "actions": tuple(data["actions"])})


def run_health(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    runs: int = RUNS,
    run: "Callable[[HealthCase, int, Callable[[str], None]], HealthRun] | None" = None,
) -> Iterator[dict[str, Any]]:
    """Every case so many times, in turn; yields after each run, and goes on after those done."""
    results = [HealthRun.of(each) for each in done.get("runs", ())]
    known = {(each.case, each.number) for each in results}
    one = run or run_case
    for number in range(runs):
        for case in CASES:
            if (case.name, number) in known:
                continue
            results.append(one(case, number, tell))
            tell(f"{case.name}, run {number + 1} of {runs}: {results[-1].diagnosis}")
            yield {"runs": [asdict(each) for each in results]}
    yield {"runs": [asdict(each) for each in results]}


def run_case(
    case: HealthCase,
    number: int,
    tell: Callable[[str], None],
    warm_s: float = WARM_S,
    run_s: float = RUN_S,
) -> HealthRun:
    """One run, from the start of Spark to its end; the policy acts after the JVM is warm."""
    job = case.job
    acting = rules("dhalion", PARAMETERS, Mode.OFF)
    thresholds = (Threshold(Metric.JUICE, 0.95),)
    tenant = TenantJob("health", "wordcount", 1, thresholds, RATE_PER_S, {})
    load = _Load(tenant, {"rate": RATE_PER_S})
    with tempfile.TemporaryDirectory(prefix="trilithon-health-") as name:
        folder = Path(name)
        setup = Setup(MASTER, folder / "spark", slots=2 + MOST)
        with (
            running_system(setup, [job], acting, folder, tell) as system,
            load_generators(system.kafka, [load], warm_s + run_s),
        ):
            time.sleep(warm_s)
            began_s = time.time()
            system.daemon.commands.mode(job.id, Mode.AUTO)
            time.sleep(run_s - END_S)
            healed = _keeps_up(system)
            decided = system.decided(began_s)
    reasons = [row.reason for row in decided]
    kinds = [reason for reason in reasons if reason.startswith(_DIAGNOSIS)]
    actions = tuple(row.reason for row in decided if row.granted)
    first = kinds[0].removeprefix(_DIAGNOSIS).lower() if kinds else NONE
    return HealthRun(case.name, number, first, actions, healed)


@dataclass(frozen=True)
class _Load(TenantLoad):
    """Load for the topic of these jobs."""

    @property
    def topic(self) -> str:
        return "health-words"


def _keeps_up(system: RunningSystem) -> bool:
    """Whether all that arrives is processed, for the last seconds of a run."""
    met = []
    for _ in range(int(END_S)):
        time.sleep(1.0)
        met.append(all((job.get("utility") or 0.0) >= 1.0 for job in system.look()))
    return sum(met) >= len(met) / 2


def page(data: Mapping[str, Any]) -> str:
    """The confusion matrix of the runs on Spark, as Markdown."""
    results = [HealthRun.of(each) for each in data["runs"]]
    diagnoses = (NONE, UNDER, SLOW, SKEW, OVER)
    heads = " | ".join(name.replace("_", " ") for name in diagnoses)
    text = (
        "# Diagnoses on Spark\n\n"
        "Printed by `trilithon experiment dhalion spark-health --into docs/results/dhalion.md`, "
        "with a tenth of the paper's times (`experiments/dhalion/spark_health.py`). Rows are what "
        "ails the job, columns the first diagnosis.\n\n"
        f"| | {heads} | right | healed | changed |\n|{' --- |' * (len(diagnoses) + 4)}\n"
    )
    for case in CASES:
        of = [each for each in results if each.case == case.name]
        counted = Counter(each.diagnosis for each in of)
        cells = " | ".join(str(counted[name] or "") for name in diagnoses)
        right = sum(each.diagnosis == case.right for each in of)
        healed = sum(each.healed for each in of)
        changed = sum(bool(each.actions) for each in of)
        shares = f"{right} of {len(of)} | {healed} of {len(of)} | {changed}"
        text += f"| {case.name} | {cells} | {shares} |\n"
    return text
