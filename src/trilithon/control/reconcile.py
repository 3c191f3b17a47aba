"""Reconciles an engine with the desired state: each round compares both and does what is missing.

The cause does not matter (a daemon that died, a host that was restarted, an action whose outcome is
unknown): the next round repairs it.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from trilithon.contract.condition import Condition, Health
from trilithon.contract.engine import Accepted, Engine
from trilithon.control.clock import Clock
from trilithon.control.conditions import follow
from trilithon.control.cost import Costs
from trilithon.control.engine_calls import call_engine
from trilithon.control.feedback_log import FeedbackLog
from trilithon.control.freshness import Freshness
from trilithon.control.journal import Journal, PlannedAction
from trilithon.control.journal.rows import DesiredState, SpecStatus
from trilithon.control.planner import without_facet, without_refused_facet
from trilithon.control.rules import Rules
from trilithon.control.spec_changes import running_form
from trilithon.control.state import ControllerState, JobRecord, Version
from trilithon.errors import (
    BrokerUnavailable,
    DoesNotFit,
    HostStarting,
    HostUnreachable,
    KafkaUnreachable,
    QueryNotStarted,
)
from trilithon.model.action import Outcome, Reallocate, RestartJob, Status
from trilithon.model.allocation import Allocation, facets_between, initial
from trilithon.model.capability import Ability

HEALTHY: Final = "running"
LONGEST_WAIT_S: Final = 300.0
# Refusals that are not about the job: it is tried again soon, for as long as the outage lasts.
OUTAGES: Final = frozenset(
    {
        BrokerUnavailable.code,
        DoesNotFit.code,
        HostUnreachable.code,
        KafkaUnreachable.code,
        QueryNotStarted.code,
    }
)
OUTAGE_WAIT_S: Final = 15.0


@dataclass
class Reconciler:
    engine: Engine
    journal: Journal
    state: ControllerState
    rules: Rules
    freshness: Freshness
    costs: Costs
    feedback: FeedbackLog
    lock: threading.RLock
    clock: Clock

    def run(self, there: Mapping[str, Accepted], now_s: float) -> None:
        """One pass over all jobs. `there` is what the engine runs."""
        for name, accepted in there.items():
            if name not in self.state.jobs:
                self._adopt(name, accepted, now_s)
        with self.lock:
            jobs = sorted(self.state.jobs.items(), key=_rank)
        for name, record in jobs:
            self._one(name, record, there.get(name), now_s)

    def _adopt(self, name: str, accepted: Accepted, now_s: float) -> None:
        """Takes over a job that was started without this controller."""
        job, allocation, mode = accepted.job, accepted.allocation, self.rules.mode
        with self.lock:
            if name in self.state.jobs:
                return  # its owner submitted it meanwhile
            spec, generation = self.journal.last_generations(name)
            self.journal.adopt(job, spec + 1, allocation, mode, now_s, accepted.checkpoint)
            self.state.jobs[name] = JobRecord(
                version=Version(spec + 1, job, accepted.checkpoint, now_s, SpecStatus.GOOD),
                last_spec=spec + 1,
                desired=DesiredState.RUN,
                mode=mode,
                accepted_s=now_s,
                wanted=allocation,
                last_generation=max(generation, allocation.generation),
                accepted=allocation,
                running=True,
            )

    def _one(self, name: str, record: JobRecord, there: Accepted | None, now_s: float) -> None:
        # An owner may change both at any moment: each is read once.
        desired, version = record.desired, record.version
        if desired is not DesiredState.RUN:
            self._end(name, record, there, now_s, keep=desired is DesiredState.PAUSE)
        elif there is None:
            record.running = False
            self._start(name, record, now_s)
        elif there.job is not version.job and running_form(there.job) != version.form:
            self._replace(name, record, now_s)
        else:
            self._runs(name, record, version, there, now_s)

    def _end(
        self, name: str, record: JobRecord, there: Accepted | None, now_s: float, *, keep: bool
    ) -> None:
        """Stops a job. A paused job keeps its checkpoint, a deleted one does not."""
        if there is not None or not keep:
            outcome = call_engine("cancel", lambda: self.engine.cancel(name, keep=keep))
            if outcome.status not in {Status.DONE, Status.UNCHANGED}:
                record.problem = outcome.message
                return
        record.running, record.accepted, record.condition, record.problem = False, None, None, ""
        record.trouble_since_s = None
        self.freshness.distrust(name)
        # The pause of a job is not a gap that an action caused.
        self.costs.forget(name)
        with self.lock:
            # Its owner may have changed the desired state while the engine stopped it.
            if record.desired is DesiredState.DELETE and not keep:
                self.journal.gone(name, now_s)
                self.state.jobs.pop(name, None)

    def _replace(self, name: str, record: JobRecord, now_s: float) -> None:
        """Replaces the version of a running job. The engine validates the new one before it stops
        the old: a refused version does not disturb the running one. An engine that cannot replace
        is asked to stop the job and to start it.
        """
        if _not_yet(record, now_s):
            return
        with self.lock:
            version, wanted = record.version, record.wanted
        # The time makes the id unique: a retry is another action.
        action = RestartJob(
            f"{name}@{version.generation}.{wanted.generation}.{now_s!r}",
            name,
            version.job,
            wanted,
            version.checkpoint,
        )
        outcome = self._over_quota(name, record) or call_engine(
            "replace", lambda: self.engine.apply(action)
        )
        if outcome.code == "NOT_AT_ALL":
            ended = call_engine("cancel", lambda: self.engine.cancel(name, keep=True))
            record.running = False
            self.freshness.distrust(name)
            if ended.status in {Status.DONE, Status.UNCHANGED}:
                self._start(name, record, now_s)
            return
        if self._started(name, record, version, wanted, outcome, now_s):
            self.costs.began(name, Ability.RESTART_JOB, now_s)

    def _start(self, name: str, record: JobRecord, now_s: float) -> None:
        if _not_yet(record, now_s):
            return
        with self.lock:
            version, wanted = record.version, record.wanted
        outcome = self._over_quota(name, record) or call_engine(
            "submit", lambda: self.engine.submit(version.job, wanted, version.checkpoint)
        )
        self._started(name, record, version, wanted, outcome, now_s)

    def _started(
        self,
        name: str,
        record: JobRecord,
        version: Version,
        wanted: Allocation,
        outcome: Outcome,
        now_s: float,
    ) -> bool:
        """Records the outcome of starting a version; returns whether the job runs."""
        with self.lock:
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                record.running, record.tries, record.try_at_s = True, 0, 0.0
                follow(self.journal, name, record, Condition(), self.clock.now_s())
                record.started_s, record.healthy_since_s = self.clock.now_s(), None
                self.freshness.distrust(name)
                # Another version may be wanted by now; the next round starts that.
                if record.version is version:
                    self._has(record, wanted, now_s, "The engine started the job.")
                return True
            if outcome.code == HostStarting.code:
                record.problem = outcome.message
                return False  # the next round tries again; nobody looked at the version
            record.tries += 1
            outside = outcome.code in OUTAGES
            record.try_at_s = now_s + min(
                OUTAGE_WAIT_S if outside else LONGEST_WAIT_S,
                self.rules.limits.round_s * 2**record.tries,
            )
            message = f"The engine did not start the job. {outcome.code}: {outcome.message}"
            if self._retry_without_facet(record, version, wanted, outcome, now_s, message):
                return False
            if message != record.problem:
                record.problem = message
                self.journal.event("not_started", name, message, now_s)
            if outcome.status is Status.UNKNOWN or (outside and outcome.code != DoesNotFit.code):
                return False  # it may run, or nobody looked at the version: the next round sees
            if version.status is SpecStatus.WANTED and record.version is version:
                self._roll_back(name, record, message, now_s)
        return False

    def _retry_without_facet(
        self,
        record: JobRecord,
        version: Version,
        wanted: Allocation,
        outcome: Outcome,
        now_s: float,
        message: str,
    ) -> bool:
        """Whether the next round tries again without the facet because of which the engine does not
        start the job, such as a placement on a machine that is gone.
        """
        rest = without_facet(wanted, outcome)
        if rest is None or record.version is not version or record.wanted is not wanted:
            return False
        spec = version.generation
        self._close(wanted, spec, SpecStatus.REFUSED, now_s, message, outcome)
        record.wanted = replace(rest, generation=record.next_generation())
        self.journal.want(record.wanted, spec, now_s)
        record.problem, record.try_at_s = message, 0.0
        return True

    def _runs(
        self, name: str, record: JobRecord, version: Version, there: Accepted, now_s: float
    ) -> None:
        """The job runs under the wanted spec: compares its allocation, and judges its health."""
        if record.started_s is None:
            record.started_s = now_s
        record.running = True
        with self.lock:
            if record.version is not version:
                return  # its owner submitted another version meanwhile
            follow(self.journal, name, record, there.condition, now_s)
        if there.health is not Health.RUNNING:
            self.freshness.distrust(name)
        if there.health is Health.FAILED and not record.failed:
            self._start_again(name, record, now_s)
            return
        with self.lock:
            current, wanted = there.allocation, record.wanted
            if current.generation > wanted.generation or (
                current.generation == wanted.generation and current != wanted
            ):
                # Changed outside this controller: that is what is wanted now.
                record.last_generation = max(record.last_generation, current.generation)
                record.wanted = current
                self._has(
                    record,
                    current,
                    now_s,
                    "The allocation was changed outside this controller, which takes it over.",
                )
                return
            if current.generation >= wanted.generation:
                if record.in_flight:
                    self._has(record, wanted, now_s, "The engine has the wanted allocation.")
                self._judge(name, record, now_s)
                return
        self._reassert(record, wanted, current, now_s)

    def _start_again(self, name: str, record: JobRecord, now_s: float) -> None:
        """Starts a job that failed, from its checkpoint: its owner asked for it."""
        if _not_yet(record, now_s):
            return
        action = RestartJob(f"{name}@resumed.{record.resumed_s!r}", name)
        outcome = call_engine("restart", lambda: self.engine.apply(action))
        with self.lock:
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                record.tries, record.try_at_s = 0, 0.0
                record.started_s, record.healthy_since_s = self.clock.now_s(), None
                follow(self.journal, name, record, Condition(), self.clock.now_s())
                return
            record.tries += 1
            record.try_at_s = now_s + OUTAGE_WAIT_S
            message = f"The engine did not start the job. {outcome.code}: {outcome.message}"
            if message != record.problem:
                self.journal.event("not_started", name, message, now_s)
            record.problem = message

    def _reassert(
        self, record: JobRecord, wanted: Allocation, current: Allocation, now_s: float
    ) -> None:
        outcome, rest = None, None
        if wanted.instances > current.instances:
            outcome = self._over_quota(wanted.job, record)
        outcome = outcome or call_engine(
            "reallocate", lambda: self.engine.apply(Reallocate(wanted))
        )
        with self.lock:
            if record.wanted is not wanted:
                return
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                self._has(record, wanted, now_s, "The engine was brought to the wanted allocation.")
            elif outcome.status in {Status.REFUSED, Status.FAILED}:
                rest = self._refused(record, wanted, current, now_s, outcome)
        if rest is not None:
            self._reassert(record, rest, current, now_s)

    def _refused(
        self,
        record: JobRecord,
        wanted: Allocation,
        current: Allocation,
        now_s: float,
        outcome: Outcome,
    ) -> Allocation | None:
        """The engine refused wanted state. If that is because of one facet, the rest is wanted, and
        returned; otherwise what the engine has is wanted again.
        """
        spec = record.version.generation
        action = self.journal.open_reallocation(wanted)
        decision = None if action is None else action.decision
        planned = PlannedAction(
            "" if action is None else action.id,
            decision or "",
            Reallocate(wanted),
            spec,
            facets_between(current, wanted),
        )
        rest = without_refused_facet(planned, outcome, current, record.last_generation + 1)
        message = f"The engine refused an allocation: {outcome.code} {outcome.message}"
        self._close(wanted, spec, SpecStatus.REFUSED, now_s, message, outcome)
        if rest is None or not isinstance(rest.action, Reallocate):
            record.wanted = record.accepted = current
            record.refused(now_s, self.rules.limits.cool_down_s)
            return None
        record.wanted = replace(rest.action.allocation, generation=record.next_generation())
        if decision is None:
            self.journal.want(record.wanted, spec, now_s)
        else:
            self.journal.add_action(replace(rest, action=Reallocate(record.wanted)), now_s)
        return record.wanted

    def _has(self, record: JobRecord, allocation: Allocation, now_s: float, message: str) -> None:
        self._close(allocation, record.version.generation, SpecStatus.ACCEPTED, now_s, message)
        record.accepted, record.changed_s = allocation, now_s

    def _close(
        self,
        allocation: Allocation,
        spec: int,
        status: SpecStatus,
        now_s: float,
        message: str,
        outcome: Outcome | None = None,
    ) -> None:
        """Writes that the engine has, or refused, an allocation; open
        actions for the job have ended.
        """
        closed = self.journal.settle(allocation, spec, status, now_s, message, outcome)
        for decision, action, result in closed:
            self.feedback.acted(decision, action, result)

    def _judge(self, name: str, record: JobRecord, now_s: float) -> None:
        """Marks a new spec good once the job is healthy under it, or rolls it back when its time is
        over.
        """
        version, limits = record.version, self.rules.limits
        if version.status is not SpecStatus.WANTED:
            return
        if record.condition is not None and record.condition.outside:
            # An outage says nothing about the version: its time begins when the outage is over.
            record.started_s = now_s
        well = record.health == HEALTHY and name in self.freshness.fresh_since_s
        record.healthy_since_s = (record.healthy_since_s or now_s) if well else None
        if (
            record.healthy_since_s is not None
            and now_s - record.healthy_since_s >= limits.good_after_s
        ):
            self.journal.spec_stands(
                name,
                version.generation,
                SpecStatus.GOOD,
                "The job is healthy under this spec.",
                now_s,
            )
            record.version = replace(version, status=SpecStatus.GOOD)
        elif (
            record.healthy_since_s is None
            and record.started_s is not None
            and now_s - record.started_s > limits.healthy_within_s
        ):
            why = record.problem or "its metrics were incomplete"
            message = f"The job was not healthy within {limits.healthy_within_s:g} s: {why}."
            self._roll_back(name, record, message, now_s)

    def _roll_back(self, name: str, record: JobRecord, message: str, now_s: float) -> None:
        """Rolls back to the last good spec, if there is one."""
        failed = record.version.generation
        row = self.journal.last_good_spec(name, failed)
        if row is None:
            return
        good = Version.of(row)
        before = self.journal.last_allocation(name, good.generation) or initial(good.job)
        wanted = replace(before, generation=record.next_generation())
        self.journal.roll_back(name, failed, message, good.generation, wanted, now_s)
        record.version, record.wanted, record.accepted = good, wanted, None
        record.started_s, record.healthy_since_s, record.tries, record.try_at_s = None, None, 0, 0.0
        record.problem = message

    def _over_quota(self, name: str, record: JobRecord) -> Outcome | None:
        """A refusal if the wanted allocation exceeds the quota of the tenant."""
        tenant = record.job.tenant
        quota = self.rules.quotas.get(tenant)
        with self.lock:
            others = sum(
                other.wanted.instances
                for id_, other in self.state.jobs.items()
                if id_ != name and other.running and not other.failed
                if other.job.tenant == tenant
            )
        if quota is None or others + record.wanted.instances <= quota:
            return None
        message = (
            f"{name} needs {record.wanted.instances} slots; the quota of {tenant} is {quota}, "
            f"and its other jobs use {others}."
        )
        return Outcome(Status.REFUSED, "QUOTA", message)


def _rank(job: tuple[str, JobRecord]) -> float:
    """Jobs of higher priority come first: when a host comes back, they are started first."""
    return -job[1].job.intent.priority


def _not_yet(record: JobRecord, now_s: float) -> bool:
    """Whether the back-off of a retry lasts. It is over if the clock was set back since."""
    return now_s < record.try_at_s and record.try_at_s - now_s <= LONGEST_WAIT_S
