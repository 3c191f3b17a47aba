"""Whatever happens, in whatever order, the promises of the controller hold: a state
machine over it, with a fake engine.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.cluster import FakeCluster, chain
from tests.control.conftest import quick_folder
from tests.control.scene import World
from trilithon.contract.engine import Condition, Health
from trilithon.control.journal.rows import DesiredState
from trilithon.control.rules import Limits, Rules
from trilithon.errors import JobEnding
from trilithon.model.action import Action, Outcome, Reallocate, Status
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.registry import policy

SLOTS, QUOTA = 14, 8
NAMES = ("a", "b", "c")
LIMITS = Limits(cool_down_s=10.0, down_delay_s=20.0, fresh_s=10.0, healthy_within_s=60.0)
names = st.sampled_from(NAMES)


def job(name: str, most: int = 4) -> Job:
    # The first two are of a tenant with a quota.
    return chain(name, "ads" if name != "c" else "search", p95_ms=80.0, most=most)


class Watched(FakeCluster):
    """Remembers every change of an allocation, and how busy the operators were at that time."""

    def __init__(self) -> None:
        super().__init__(slots=SLOTS)
        self.lowered_while_saturated: list[object] = []
        self.highest: dict[str, int] = {}
        self.went_back: list[object] = []

    def apply(self, action: Action) -> Outcome:
        before = self.allocations.get(getattr(action, "job", ""))
        outcome = super().apply(action)
        if outcome.changed and isinstance(action, Reallocate) and before is not None:
            for name, count in action.allocation.parallelism.items():
                if count < before.parallelism[name] and self.busy(action.job, name) >= 0.9:
                    self.lowered_while_saturated.append(action)
            self._note(action.job)
        return outcome

    def submit(self, job: Job, *given: object, **named: object) -> Outcome:
        outcome = super().submit(job, *given, **named)  # type: ignore[arg-type]
        if outcome.changed:
            self._note(job.id)
        return outcome

    def _note(self, name: str) -> None:
        generation = self.allocations[name].generation
        if generation < self.highest.get(name, 0):
            self.went_back.append((name, generation))
        self.highest[name] = generation

    def busy(self, job: str, operator: str) -> float:
        count = self.allocations[job].parallelism[operator]
        return min(1.0, self.done_per_s[job] * self.service_s.get((job, operator), 0.01) / count)


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = quick_folder()
        self.world = World(
            self.folder,
            Watched(),
            Rules(limits=LIMITS, quotas={"ads": QUOTA}),
            policy("threshold", {"window_s": 10.0}),
        )

    @property
    def cluster(self) -> Watched:
        assert isinstance(self.world.cluster, Watched)
        return self.world.cluster

    @rule(name=names, mode=st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.ADVISE]))
    def apply(self, name: str, mode: Mode) -> None:
        try:
            self.world.commands.apply(job(name), mode)
        except JobEnding:
            assert self._wish(name) is DesiredState.DELETE

    @rule(name=names, most=st.integers(2, 5))
    def apply_another_version(self, name: str, most: int) -> None:
        try:
            self.world.commands.apply(job(name, most))
        except JobEnding:
            assert self._wish(name) is DesiredState.DELETE

    @rule(name=names, what=st.sampled_from(["delete", "pause", "resume"]))
    def wish(self, name: str, what: str) -> None:
        if self._wish(name) in {DesiredState.RUN, DesiredState.PAUSE}:
            getattr(self.world.commands, what)(job(name).id)

    @rule(name=names, rate=st.sampled_from([0.0, 5.0, 60.0, 150.0, 400.0]))
    def load(self, name: str, rate: float) -> None:
        self.cluster.rates[job(name).id] = rate

    @rule(rounds=st.integers(1, 6))
    def tick(self, rounds: int) -> None:
        self.world.rounds(rounds)

    @rule(name=names)
    def lose_metrics(self, name: str) -> None:
        self.cluster.silent ^= {job(name).id}

    @rule()
    def stale_metrics(self) -> None:
        """The daemon slept: nobody looked for a while."""
        self.cluster.advance(200.0)

    @rule(
        status=st.sampled_from([Status.REFUSED, Status.FAILED, Status.UNKNOWN]),
        times=st.integers(1, 4),
    )
    def failing_actions(self, status: Status, times: int) -> None:
        self.cluster.fails = [status] * times

    @rule(name=names, ill=st.booleans())
    def health(self, name: str, ill: bool) -> None:
        ill_condition = Condition(Health.DEGRADED, "It died.")
        self.cluster.condition[job(name).id] = ill_condition if ill else Condition()

    @rule(jump_s=st.sampled_from([-7200.0, -15.0, 25.0, 7200.0]))
    def clock_jump(self, jump_s: float) -> None:
        self.cluster.now_s += jump_s

    @rule()
    def restart(self) -> None:
        self.world.start()

    @rule(name=names)
    def engine_loses_a_job(self, name: str) -> None:
        self.cluster.cancel(job(name).id, keep=True)

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def never_above_capacity_or_quota(self) -> None:
        allocations = self.cluster.allocations
        assert sum(allocation.instances for allocation in allocations.values()) <= SLOTS
        assert (
            sum(
                allocation.instances
                for id_, allocation in allocations.items()
                if id_.startswith("ads")
            )
            <= QUOTA
        )

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def bounds_are_kept(self) -> None:
        for id_, allocation in self.cluster.allocations.items():
            for operator in self.cluster.jobs_by_name[id_].operators:
                count = allocation.parallelism[operator.name]
                assert operator.parallelism.min <= count <= operator.parallelism.max

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def no_action_is_in_flight_twice(self) -> None:
        rows = self.world.rows(
            "SELECT job, count(*) FROM action WHERE ended_s IS NULL GROUP "
            "BY job HAVING count(*) > 1"
        )
        assert rows == []

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def generations_only_grow(self) -> None:
        assert self.cluster.went_back == []
        for held in self.world.controller.state.jobs.values():
            assert held.wanted.generation <= held.last_generation

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def a_saturated_operator_is_never_lowered(self) -> None:
        assert self.cluster.lowered_while_saturated == []

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def what_is_known_is_what_is_written(self) -> None:
        """A new daemon would know the same of every job."""
        rows = dict(self.world.rows("SELECT id, wish FROM job WHERE gone_s IS NULL"))
        jobs = self.world.controller.state.jobs
        assert rows == {name: held.desired.value for name, held in jobs.items()}

    def _wish(self, name: str) -> DesiredState | None:
        held = self.world.controller.state.jobs.get(job(name).id)
        return None if held is None else held.desired

    def teardown(self) -> None:
        """Under a constant load, with nothing failing, there is rest in the end."""
        if not hasattr(self, "world"):
            return
        try:
            self._settles()
        finally:
            assert self.world.journal is not None
            self.world.journal.close()
            shutil.rmtree(self.folder)

    def _settles(self) -> None:
        self.cluster.fails, self.cluster.silent = [], set()
        self.cluster.condition.clear()
        self.world.rounds(110)
        quiet = self.world.rounds(15)
        assert [outcome for done in quiet for outcome in done.outcomes] == []
        for name, held in self.world.controller.state.jobs.items():
            if held.desired is DesiredState.RUN and held.running:
                assert self.cluster.allocations[name] == held.wanted == held.accepted
        self.bounds_are_kept()
        self.never_above_capacity_or_quota()


TestTheController = Machine.TestCase
TestTheController.settings = settings(
    settings.get_profile("default"), max_examples=30, stateful_step_count=30
)


def test_the_machine_can_fail(tmp_path: Path) -> None:
    """The invariants are not empty: a cluster that breaks each of them is found out."""
    machine = Machine()
    machine.begin()
    machine.apply("a", Mode.AUTO)
    machine.tick(3)
    good = machine.cluster.allocations["ads/a"]
    for change, check in (
        ({"o0": 20, "o1": 1}, machine.never_above_capacity_or_quota),
        ({"o0": 5, "o1": 1}, machine.bounds_are_kept),
    ):
        machine.cluster.allocations["ads/a"] = replace(good, parallelism=change)
        try:
            check()
        except AssertionError:
            continue
        raise AssertionError(check)
    machine.cluster.allocations["ads/a"] = good
    machine.teardown()
