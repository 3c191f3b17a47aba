"""Owns bringing an engine to what is wanted: each round looks at what there is and does what is missing.

It does not matter why something is missing: a daemon that died, a host that was started again, an action
whose outcome nobody knows. The next round mends it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trilithon.contract.engine import Accepted, Engine
from trilithon.control.books import Books, Held, Version, last_allocation, last_good, last_numbers
from trilithon.control.changes import running_form
from trilithon.control.clock import Clock
from trilithon.control.cost import Costs
from trilithon.control.failpoints import hit
from trilithon.control.journal import Journal
from trilithon.control.observe import Observer
from trilithon.control.rows import Stand, Wish
from trilithon.control.rules import Rules
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
    books: Books
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
        for name, held in jobs:
            self._one(name, held, there.get(name), now_s)

    def _adopt(self, name: str, accepted: Accepted, now_s: float) -> None:
        """A job that somebody else started is looked after from now on."""
        job, found, mode = accepted.job, accepted.allocation, self.rules.mode
        with self.lock:
            if name in self.books.jobs:
                return  # its owner was faster
            spec, generation = last_numbers(self.journal, name)
            self.journal.adopt(job, spec + 1, found, mode, now_s, accepted.checkpoint)
            self.books.jobs[name] = Held(
                version=Version(spec + 1, job, accepted.checkpoint, now_s, Stand.GOOD),
                last_spec=spec + 1,
                wish=Wish.RUN,
                mode=mode,
                accepted_s=now_s,
                wanted=found,
                last_generation=max(generation, found.generation),
                accepted=found,
                running=True,
            )

    def _one(self, name: str, held: Held, there: Accepted | None, now_s: float) -> None:
        # Owners may change their minds at any moment: each is looked at once.
        wish, version = held.wish, held.version
        if wish is not Wish.RUN:
            self._end(name, held, there, now_s, keep=wish is Wish.PAUSE)
        elif there is None:
            held.running = False
            self._start(name, held, now_s)
        elif there.job is not version.job and running_form(there.job) != version.form:
            self._replace(name, held, now_s)
        else:
            self._runs(name, held, version, there, now_s)

    def _end(
        self, name: str, held: Held, there: Accepted | None, now_s: float, *, keep: bool
    ) -> None:
        """A job that is to pause keeps its checkpoint; one that is to be deleted does not."""
        if there is not None or not keep:
            outcome = self._tell("cancel", lambda: self.engine.cancel(name, keep=keep))
            if outcome.status not in {Status.DONE, Status.UNCHANGED}:
                held.problem = outcome.message
                return
        held.running, held.accepted, held.health, held.problem = False, None, "", ""
        self.observer.distrust(name)
        with self.lock:
            # Its owner may have changed their mind while it was being ended.
            if held.wish is Wish.DELETE and not keep:
                self.journal.gone(name, now_s)
                self.books.jobs.pop(name, None)

    def _replace(self, name: str, held: Held, now_s: float) -> None:
        """Another version of a job that runs. The engine looks at it before it stops anything: one that is
        refused does not disturb the one that is good. One that cannot do so is told to stop and to start.
        """
        if _not_yet(held, now_s):
            return
        with self.lock:
            version, wanted = held.version, held.wanted
        # A round has its own time: what is tried again is another action.
        action = RestartJob(
            f"{name}@{version.generation}.{wanted.generation}.{now_s!r}",
            name,
            version.job,
            wanted,
            version.checkpoint,
        )
        outcome = self._over_quota(name, held) or self._tell(
            "replace", lambda: self.engine.apply(action)
        )
        if outcome.code == "NOT_AT_ALL":
            ended = self._tell("cancel", lambda: self.engine.cancel(name, keep=True))
            held.running = False
            self.observer.distrust(name)
            if ended.status in {Status.DONE, Status.UNCHANGED}:
                self._start(name, held, now_s)
            return
        if self._started(name, held, version, wanted, outcome, now_s):
            self.costs.began(name, Ability.RESTART_JOB, now_s)

    def _start(self, name: str, held: Held, now_s: float) -> None:
        if _not_yet(held, now_s):
            return
        with self.lock:
            version, wanted = held.version, held.wanted
        outcome = self._over_quota(name, held) or self._tell(
            "submit", lambda: self.engine.submit(version.job, wanted, version.checkpoint)
        )
        self._started(name, held, version, wanted, outcome, now_s)

    def _started(
        self,
        name: str,
        held: Held,
        version: Version,
        wanted: Allocation,
        outcome: Outcome,
        now_s: float,
    ) -> bool:
        """What came of starting a version; whether it runs."""
        with self.lock:
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                held.running, held.tries, held.try_at_s, held.problem = True, 0, 0.0, ""
                held.started_s, held.healthy_since_s = self.clock.now_s(), None
                self.observer.distrust(name)
                # Another version may be wanted by now; the next round brings that about.
                if held.version is version:
                    self._has(held, wanted, now_s, "It was started.")
                return True
            held.tries += 1
            held.try_at_s = now_s + min(LONGEST_WAIT_S, self.rules.limits.round_s * 2**held.tries)
            told = f"It was not started: {outcome.code} {outcome.message}"
            if told != held.problem:
                held.problem = told
                self.journal.event("not_started", name, told, now_s)
            if outcome.status is Status.UNKNOWN:
                return False  # perhaps it runs: the next round finds out
            if version.standing is Stand.WANTED and held.version is version:
                self._roll_back(name, held, told, now_s)
        return False

    def _runs(self, name: str, held: Held, version: Version, there: Accepted, now_s: float) -> None:
        """It runs under the right spec: its allocation, and how it fares."""
        if held.started_s is None:
            held.started_s = now_s
        held.running, held.health = True, there.health
        held.problem = there.reason if there.health != HEALTHY else ""
        if there.health != HEALTHY:
            self.observer.distrust(name)
        with self.lock:
            if held.version is not version:
                return  # another is wanted since a moment ago
            found, wanted = there.allocation, held.wanted
            if found.generation > wanted.generation or (
                found.generation == wanted.generation and found != wanted
            ):
                # Somebody else changed it; that is what is wanted now.
                held.last_generation = max(held.last_generation, found.generation)
                held.wanted = found
                self._has(held, found, now_s, "Somebody else changed its allocation.")
                return
            if found.generation >= wanted.generation:
                if held.in_flight:
                    self._has(held, wanted, now_s, "It has the allocation that was wanted.")
                self._judge(name, held, now_s)
                return
        self._reassert(held, wanted, found, now_s)

    def _reassert(self, held: Held, wanted: Allocation, found: Allocation, now_s: float) -> None:
        outcome = None
        if wanted.instances > found.instances:
            outcome = self._over_quota(wanted.job, held)
        outcome = outcome or self._tell("reallocate", lambda: self.engine.apply(Reallocate(wanted)))
        with self.lock:
            if held.wanted is not wanted:
                return
            if outcome.status in {Status.DONE, Status.UNCHANGED}:
                self._has(held, wanted, now_s, "It was brought to the allocation that was wanted.")
            elif outcome.status in {Status.REFUSED, Status.FAILED}:
                told = f"The engine did not take an allocation: {outcome.code} {outcome.message}"
                self._refused(held, wanted, found, now_s, told, outcome)

    def _refused(
        self,
        held: Held,
        wanted: Allocation,
        found: Allocation,
        now_s: float,
        told: str,
        outcome: Outcome,
    ) -> None:
        """What the engine has is wanted again."""
        spec = held.version.generation
        self.journal.settle(wanted, spec, Stand.REFUSED, now_s, told, outcome)
        held.wanted = held.accepted = found
        held.refused(now_s, self.rules.limits.cool_down_s)

    def _has(self, held: Held, allocation: Allocation, now_s: float, told: str) -> None:
        self.journal.settle(allocation, held.version.generation, Stand.ACCEPTED, now_s, told)
        held.accepted, held.changed_s = allocation, now_s

    def _judge(self, name: str, held: Held, now_s: float) -> None:
        """Whether a new spec has become good, or did not in its time."""
        version, limits = held.version, self.rules.limits
        if version.standing is not Stand.WANTED:
            return
        well = held.health == HEALTHY and name in self.observer.fresh_since_s
        held.healthy_since_s = (held.healthy_since_s or now_s) if well else None
        if held.healthy_since_s is not None and now_s - held.healthy_since_s >= limits.good_after_s:
            self.journal.spec_stands(name, version.generation, Stand.GOOD, "It is healthy.", now_s)
            held.version = replace(version, standing=Stand.GOOD)
        elif (
            held.healthy_since_s is None
            and held.started_s is not None
            and now_s - held.started_s > limits.healthy_within_s
        ):
            why = held.problem or "its metrics were not complete"
            told = f"It was not healthy within {limits.healthy_within_s:g} s: {why}."
            self._roll_back(name, held, told, now_s)

    def _roll_back(self, name: str, held: Held, told: str, now_s: float) -> None:
        """The last good spec is wanted again. Without one there is nothing to go back to."""
        failed = held.version.generation
        good = last_good(self.journal, name, failed)
        if good is None:
            return
        before = last_allocation(self.journal, name, good.generation) or initial(good.job)
        wanted = replace(before, generation=held.next_generation())
        self.journal.roll_back(name, failed, told, good.generation, wanted, now_s)
        held.version, held.wanted, held.accepted = good, wanted, None
        held.started_s, held.healthy_since_s, held.tries, held.try_at_s = None, None, 0, 0.0
        held.problem = told

    def _over_quota(self, name: str, held: Held) -> Outcome | None:
        """Why a job cannot have what it wants: its tenant's other jobs have taken too much."""
        tenant = held.job.tenant
        quota = self.rules.quotas.get(tenant)
        with self.lock:
            others = sum(
                other.wanted.instances
                for id_, other in self.books.jobs.items()
                if id_ != name and other.running and other.job.tenant == tenant
            )
        if quota is None or others + held.wanted.instances <= quota:
            return None
        told = (
            f"{name} needs {held.wanted.instances} slots; the tenant {tenant} may use {quota} and "
            f"uses {others}."
        )
        return Outcome(Status.REFUSED, "QUOTA", told)

    def _tell(self, name: str, call: Callable[[], Outcome]) -> Outcome:
        return told(name, call)


def _not_yet(held: Held, now_s: float) -> bool:
    """Whether it is too early to try again; not if the clock was set back since."""
    return now_s < held.try_at_s and held.try_at_s - now_s <= LONGEST_WAIT_S


def told(name: str, call: Callable[[], Outcome]) -> Outcome:
    """Tells an engine something; if it does not answer, nobody knows what came of it."""
    hit(f"engine.{name}.before")
    try:
        outcome = call()
    except TrilithonError as error:
        outcome = Outcome(Status.UNKNOWN, error.code, error.message)
    hit(f"engine.{name}.after")
    return outcome
