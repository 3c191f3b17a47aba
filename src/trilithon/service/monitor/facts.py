"""Gathers the facts of a round: a few numbers and states of each job and of the cluster.

They are made once after each round; lists, streams, history, alerts and metrics read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from trilithon.contract.condition import Health
from trilithon.control.journal.rows import DesiredState
from trilithon.control.state import JobRecord
from trilithon.model.mode import Mode
from trilithon.service.monitor.hunger import ClippedJobs, Hunger, HungryJobs

if TYPE_CHECKING:
    from trilithon.control.loop import Controller, Round
    from trilithon.measures.assess import Assessment

_MISSING = "METRICS_MISSING"
# States in which what is measured of a job is of now.
MEASURED: Final = frozenset({"running", "degraded"})


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job after a round. What was not measured is None."""

    job: str
    tenant: str
    priority: float
    mode: Mode
    desired: DesiredState
    health: str
    state: str
    problem: str
    since_s: float | None
    slots: int
    has_slots: bool
    in_flight: bool
    hold_reason: str
    has_intent: bool
    utility: float | None
    max_utility: float
    met: bool | None
    p95_ms: float | None
    juice: float | None
    input_per_s: float | None
    output_per_s: float | None
    lag: float | None
    # Whether it misses its intent and what would help is not to be had; None if not measured.
    hungry: bool | None
    hunger: Hunger | None = None

    @property
    def lost_utility(self) -> float | None:
        """All of it if the job has failed: it processes nothing. None if it is not known."""
        if self.state == "failed" and self.has_intent:
            return self.max_utility
        return None if self.utility is None else max(0.0, self.max_utility - self.utility)

    @property
    def aspects(self) -> tuple[object, ...]:
        """What its conditions follow from, but for their messages."""
        return (self.state, self.met, self.in_flight, self.health, self.desired, self.hungry)

    @property
    def blind(self) -> bool:
        """Whether the controller holds the job because its metrics are missing."""
        return self.hold_reason == _MISSING


@dataclass(frozen=True, slots=True)
class MachineFacts:
    machine: str
    instances: int


@dataclass(frozen=True)
class RoundFacts:
    """Everything that is published about a round."""

    number: int
    time_s: float
    # Why the round saw nothing; empty if it did.
    blind: str
    policy: str
    slots: int | None
    slots_used: int
    quotas: Mapping[str, int]
    machines: tuple[MachineFacts, ...] = ()
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)

    @property
    def utility(self) -> float:
        """The sum over the jobs whose utility is known."""
        return sum(job.utility for job in self.jobs.values() if job.utility is not None)

    @property
    def max_utility(self) -> float:
        """The most that the jobs whose utility is known could have."""
        return sum(job.max_utility for job in self.jobs.values() if job.utility is not None)


class FactSource:
    """What the facts of jobs come from: the measures and statuses of one round."""

    def __init__(self, controller: "Controller", clipped: ClippedJobs | None = None) -> None:
        scene = controller.scene
        self.assessment = controller.assessment()
        self.clock_set_s = controller.freshness.observer.clock_set_s
        self._numbers = _Numbers(self.assessment)
        self._hungry = HungryJobs(controller, clipped or ClippedJobs())
        self._statuses = {} if scene is None else scene.statuses

    def job(self, name: str, record: JobRecord) -> JobFacts:
        """The facts of a job as its record is now."""
        status = self._statuses.get(name)
        hold = "" if status is None else status.hold_reason
        return _job(name, record, self._numbers, hold, self._hungry)


def gather(controller: "Controller", source: FactSource, done: "Round | None") -> RoundFacts:
    """The facts after a round; of what is known before the first one, if `done` is None."""
    with controller.lock:
        jobs = {name: source.job(name, record) for name, record in controller.state.jobs.items()}
        scene = controller.scene
        machines = () if scene is None else scene.machines
        return RoundFacts(
            number=controller.state.round,
            time_s=controller.clock.now_s() if done is None else done.time_s,
            blind="" if done is None else done.blind,
            policy=controller.policy.name,
            slots=controller.cluster.slots,
            slots_used=sum(job.slots for job in jobs.values() if job.has_slots),
            quotas=controller.rules.quotas,
            machines=tuple(MachineFacts(m.name, len(m.instances)) for m in machines),
            jobs=jobs,
        )


class _Numbers:
    """The numbers of jobs by name, from one assessment of all of them."""

    def __init__(self, assessment: "Assessment | None") -> None:
        self._rows: Mapping[str, int] = {}
        if assessment is None:
            return
        layout, window, intents = assessment.window.layout, assessment.window, assessment.intents
        self._rows = layout.job_row
        owner = layout.node_job[layout.source_nodes]
        arrived, lag = np.zeros(len(layout.jobs)), np.zeros(len(layout.jobs))
        np.add.at(arrived, owner, window.sources.arrived)
        np.add.at(lag, owner, window.lag)
        columns = {
            "utility": intents.utility,
            "max_utility": intents.max_utility,
            "met": assessment.met,
            "p95_ms": intents.values["latency.p95"],
            "juice": intents.values["juice"],
            "output_per_s": intents.values["throughput"],
            "input_per_s": arrived / window.span_s,
            "lag": lag,
        }
        # All rows at once: one by one they cost as much as the measures themselves.
        rows = [
            [value if finite else None for value, finite in zip(c.tolist(), fine, strict=True)]
            for c in columns.values()
            for fine in (np.isfinite(c).tolist(),)
        ]
        self._values = [dict(zip(columns, row, strict=True)) for row in zip(*rows, strict=True)]

    def of(self, job: str) -> Mapping[str, float | None]:
        row = self._rows.get(job)
        return {} if row is None else self._values[row]


def _job(
    name: str, record: JobRecord, numbers: _Numbers, hold: str, hungry: HungryJobs
) -> JobFacts:
    state = state_of(record)
    # The window of a job that has stopped or failed may still have numbers of before.
    known = numbers.of(name) if state in MEASURED else {}
    intent = record.job.intent
    has_intent = bool(intent.thresholds or intent.constraints)
    measured = known.get("met") if has_intent else None
    met = None if measured is None else bool(measured)
    hunger = hungry.reason(name, record.job.tenant) if met is False else None
    return JobFacts(
        job=name,
        tenant=record.job.tenant,
        priority=intent.priority,
        mode=record.mode,
        desired=record.desired,
        health=record.health,
        state=state,
        problem=record.problem,
        since_s=None if record.condition is None else record.condition.since_s,
        slots=record.wanted.instances,
        has_slots=has_slots(record),
        in_flight=record.in_flight and record.desired is DesiredState.RUN,
        hold_reason=hold,
        has_intent=has_intent,
        utility=known.get("utility"),
        max_utility=intent.max_utility,
        met=met,
        p95_ms=known.get("p95_ms"),
        juice=known.get("juice"),
        input_per_s=known.get("input_per_s"),
        output_per_s=known.get("output_per_s"),
        lag=known.get("lag"),
        hungry=None if has_intent and met is None else hunger is not None,
        hunger=hunger,
    )


def state_of(record: JobRecord) -> str:
    """A job's state in a word, for people."""
    if record.desired is DesiredState.DELETE:
        return "ending"
    if record.desired is DesiredState.PAUSE:
        return "pausing" if record.running else "paused"
    if not record.running:
        return "not started" if record.tries else "starting"
    if record.health == Health.FAILED and not record.failed:
        return "starting"  # its owner has asked for it, and the next round does it
    return record.health or "running"


def has_slots(record: JobRecord) -> bool:
    return record.running and not record.failed
