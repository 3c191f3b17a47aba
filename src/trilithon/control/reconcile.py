"""Owns bringing an engine to what is wanted: each round looks at what there is and does what is missing.

It does not matter why something is missing: a daemon that died, a host that was started again, an action
whose outcome nobody knows. The next round mends it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trilithon.contract.engine import Accepted, Engine
from trilithon.control.changes import running_form
from trilithon.control.clock import Clock
from trilithon.control.cost import Costs
from trilithon.control.failpoints import hit
from trilithon.control.journal import Journal
from trilithon.control.observe import Observer
from trilithon.control.rows import DesiredState, SpecStatus
from trilithon.control.rules import Rules
from trilithon.control.state import (
    ControllerState,
    JobRecord,
    Version,
    last_allocation,
    last_good,
    last_numbers,
)
from trilithon.errors import TrilithonError
from trilithon.model.action import Outcome, Reallocate, RestartJob, Status
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Ability

HEALTHY: Final = "running"
LONGEST_WAIT_S: Final = 300.0


@dataclass
class Reconciler:
    engine: Engine
    journal: Journal
    books: ControllerState
    rules: Rules
    observer: Observer
    costs: Costs
    lock: threading.RLock
    clock: Clock

    def run(self, there: Mapping[str, Accepted], now_s: float) -> None:
        """One pass over all jobs. `there` is what the engine has."""
        for name, accepted in there.items():
            if name not in self.books.jobs:
                self._adopt(name, accepted, now_s)
        with self.lock:
            jobs = list(self.books.jobs.items())
        for name, record in jobs:
            self._one(name, record, there.get(name), now_s)

    def _adopt(self, name: str, accepted: Accepted, now_s: float) -> None:
        """A job that somebody else started is looked after from now on."""
        job, found, mode = accepted.job, accepted.allocation, self.rules.mode
        with self.lock:
            if name in self.books.jobs:
                return  # its owner was faster
            spec, generation = last_numbers(self.journal, name)
            self.journal.adopt(job, spec + 1, found, mode, now_s, accepted.checkpoint)
            self.books.jobs[name] = JobRecord(
                version=Version(spec + 1, job, accepted.checkpoint, now_s, SpecStatus.GOOD),
                last_spec=spec + 1,
                wish=DesiredState.RUN,
                mode=mode,
                accepted_s=now_s,
                wanted=found,
                last_generation=max(generation, found.generation),
                accepted=found,
                running=True,
            )

    def _one(self, name: str, record: JobRecord, there: Accepted | None, now_s: float) -> None:
        # Owners may change their minds at any moment: each is looked at once.
        wish, version = record.wish, record.version
        if wish is not DesiredState.RUN:
            self._end(name, record, there, now_s, keep=wish is DesiredState.PAUSE)
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
        """A job that is to pause keeps its checkpoint; one that is to be deleted does not."""
        if there is not None or not keep:
            outcome = self._tell("cancel", lambda: self.engine.cancel(name, keep=keep))
            if outcome.status not in {Status.DONE, Status.UNCHANGED}:
                record.problem = outcome.message
                return
        record.running, record.accepted, record.health, record.problem = False, None, "", ""
        self.observer.distrust(name)
        with self.lock:
            # Its owner may have changed their mind while it was being ended.
            if record.wish is DesiredState.DELETE and not keep:
                self.journal.gone(name, now_s)
                self.books.jobs.pop(name, None)

    def _replace(self, name: str, record: JobRecord, now_s: float) -> None:
        """Another version of a job that runs. The engine looks at it before it stops anything: one that is
        refused does not disturb the one that is good. One that cannot do so is told to stop and to start.
        """
        if _not_yet(record, now_s):
            return
        with self.lock:
            version, wanted = record.version, record.wanted
        # A round has its own time: what is tried again is another action.
        action = RestartJob(
            f"{name}@{version.generation}.{wanted.generation}.{now_s!r}",
            name,
            version.job,
            wanted,
            version.checkpoint,
        )
        outcome = self._over_quota(name, record) or self._tell(
            "replace", lambda: self.engine.apply(action)
        )
        if outcome.code == "NOT_AT_ALL":
            ended = self._tell("cancel", lambda: self.engine.cancel(name, keep=True))
            record.running = False
            self.observer.distrust(name)
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
        outcome = self._over_quota(name, record) or self._tell(
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
        """What came of starting a version; whether it runs."""
        with self.lock:
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                record.running, record.tries, record.try_at_s, record.problem = True, 0, 0.0, ""
                record.started_s, record.healthy_since_s = self.clock.now_s(), None
                self.observer.distrust(name)
                # Another version may be wanted by now; the next round brings that about.
                if record.version is version:
                    self._has(record, wanted, now_s, "It was started.")
                return True
            record.tries += 1
            record.try_at_s = now_s + min(
                LONGEST_WAIT_S, self.rules.limits.round_s * 2**record.tries
            )
            told = f"It was not started: {outcome.code} {outcome.message}"
            if told != record.problem:
                record.problem = told
                self.journal.event("not_started", name, told, now_s)
            if outcome.status is Status.UNKNOWN:
                return False  # perhaps it runs: the next round finds out
            if version.standing is SpecStatus.WANTED and record.version is version:
                self._roll_back(name, record, told, now_s)
        return False

    def _runs(
        self, name: str, record: JobRecord, version: Version, there: Accepted, now_s: float
    ) -> None:
        """It runs under the right spec: its allocation, and how it fares."""
        if record.started_s is None:
            record.started_s = now_s
        record.running, record.health = True, there.health
        record.problem = there.reason if there.health != HEALTHY else ""
        if there.health != HEALTHY:
            self.observer.distrust(name)
        with self.lock:
            if record.version is not version:
                return  # another is wanted since a moment ago
            found, wanted = there.allocation, record.wanted
            if found.generation > wanted.generation or (
                found.generation == wanted.generation and found != wanted
            ):
                # Somebody else changed it; that is what is wanted now.
                record.last_generation = max(record.last_generation, found.generation)
                record.wanted = found
                self._has(record, found, now_s, "Somebody else changed its allocation.")
                return
            if found.generation >= wanted.generation:
                if record.in_flight:
                    self._has(record, wanted, now_s, "It has the allocation that was wanted.")
                self._judge(name, record, now_s)
                return
        self._reassert(record, wanted, found, now_s)

    def _reassert(
        self, record: JobRecord, wanted: Allocation, found: Allocation, now_s: float
    ) -> None:
        outcome = None
        if wanted.instances > found.instances:
            outcome = self._over_quota(wanted.job, record)
        outcome = outcome or self._tell("reallocate", lambda: self.engine.apply(Reallocate(wanted)))
        with self.lock:
            if record.wanted is not wanted:
                return
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                self._has(
                    record, wanted, now_s, "It was brought to the allocation that was wanted."
                )
            elif outcome.status in {Status.REFUSED, Status.FAILED}:
                told = f"The engine did not take an allocation: {outcome.code} {outcome.message}"
                self._refused(record, wanted, found, now_s, told, outcome)

    def _refused(
        self,
        record: JobRecord,
        wanted: Allocation,
        found: Allocation,
        now_s: float,
        told: str,
        outcome: Outcome,
    ) -> None:
        """What the engine has is wanted again."""
        spec = record.version.generation
        self.journal.settle(wanted, spec, SpecStatus.REFUSED, now_s, told, outcome)
        record.wanted = record.accepted = found
        record.refused(now_s, self.rules.limits.cool_down_s)

    def _has(self, record: JobRecord, allocation: Allocation, now_s: float, told: str) -> None:
        self.journal.settle(allocation, record.version.generation, SpecStatus.ACCEPTED, now_s, told)
        record.accepted, record.changed_s = allocation, now_s

    def _judge(self, name: str, record: JobRecord, now_s: float) -> None:
        """Whether a new spec has become good, or did not in its time."""
        version, limits = record.version, self.rules.limits
        if version.standing is not SpecStatus.WANTED:
            return
        well = record.health == HEALTHY and name in self.observer.fresh_since_s
        record.healthy_since_s = (record.healthy_since_s or now_s) if well else None
        if (
            record.healthy_since_s is not None
            and now_s - record.healthy_since_s >= limits.good_after_s
        ):
            self.journal.spec_stands(
                name, version.generation, SpecStatus.GOOD, "It is healthy.", now_s
            )
            record.version = replace(version, standing=SpecStatus.GOOD)
        elif (
            record.healthy_since_s is None
            and record.started_s is not None
            and now_s - record.started_s > limits.healthy_within_s
        ):
            why = record.problem or "its metrics were not complete"
            told = f"It was not healthy within {limits.healthy_within_s:g} s: {why}."
            self._roll_back(name, record, told, now_s)

    def _roll_back(self, name: str, record: JobRecord, told: str, now_s: float) -> None:
        """The last good spec is wanted again. Without one there is nothing to go back to."""
        failed = record.version.generation
        good = last_good(self.journal, name, failed)
        if good is None:
            return
        before = last_allocation(self.journal, name, good.generation) or initial(good.job)
        wanted = replace(before, generation=record.next_generation())
        self.journal.roll_back(name, failed, told, good.generation, wanted, now_s)
        record.version, record.wanted, record.accepted = good, wanted, None
        record.started_s, record.healthy_since_s, record.tries, record.try_at_s = None, None, 0, 0.0
        record.problem = told

    def _over_quota(self, name: str, record: JobRecord) -> Outcome | None:
        """Why a job cannot have what it wants: its tenant's other jobs have taken too much."""
        tenant = record.job.tenant
        quota = self.rules.quotas.get(tenant)
        with self.lock:
            others = sum(
                other.wanted.instances
                for id_, other in self.books.jobs.items()
                if id_ != name and other.running and other.job.tenant == tenant
            )
        if quota is None or others + record.wanted.instances <= quota:
            return None
        told = (
            f"{name} needs {record.wanted.instances} slots; the tenant {tenant} may use {quota} and "
            f"uses {others}."
        )
        return Outcome(Status.REFUSED, "QUOTA", told)

    def _tell(self, name: str, call: Callable[[], Outcome]) -> Outcome:
        return told(name, call)


def _not_yet(record: JobRecord, now_s: float) -> bool:
    """Whether it is too early to try again; not if the clock was set back since."""
    return now_s < record.try_at_s and record.try_at_s - now_s <= LONGEST_WAIT_S


def told(name: str, call: Callable[[], Outcome]) -> Outcome:
    """Tells an engine something; if it does not answer, nobody knows what came of it."""
    hit(f"engine.{name}.before")
    try:
        outcome = call()
    except TrilithonError as error:
        outcome = Outcome(Status.UNKNOWN, error.code, error.message)
    hit(f"engine.{name}.after")
    return outcome
