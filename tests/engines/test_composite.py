"""Several applications behind one contract: what happens to one does not happen to the others."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.suite import EngineContract
from tests.engines.test_tether import until
from tests.fakes import FakeEngine
from tests.model.test_validation import GOOD
from trilithon.contract.engine import (
    Ability,
    AddMachines,
    Engine,
    Health,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    Status,
)
from trilithon.contract.observer import Observer
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.application_names import ApplicationNames
from trilithon.engines.composite import IDLE_S, CompositeEngine, State
from trilithon.errors import EngineFailed, HostStarting, HostUnreachable, TrilithonError
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Job
from trilithon.model.report import Report


class FakeApplication:
    """A host that a test starts, kills and stops; each life has an engine of its own."""

    def __init__(self, name: str, *, up: bool = True) -> None:
        self.name, self.begun, self.ends, self.disconnects = name, 0, 0, 0
        self.died = self.launched = False
        self.failure = ""
        self.engine: FakeEngine | None = None
        if up:
            self.come_up()

    def come_up(self) -> None:
        self.engine, self.died, self.launched = PlacedEngine(), False, False

    def die(self) -> None:
        self.engine, self.died = None, True

    @property
    def reads(self) -> Engine:
        if self.engine is None:
            raise HostUnreachable(f"No host answers for {self.name}.")
        return self.engine

    changes = reads

    def connect(self) -> Engine:
        return self.reads

    def begin(self) -> None:
        self.begun += 1
        self.launched = self.engine is None

    @property
    def starting(self) -> bool:
        return self.launched

    @property
    def ended(self) -> bool:
        return self.engine is None and not self.died and not self.launched

    def end(self) -> None:
        self.ends += 1
        self.engine = None

    def disconnect(self) -> None:
        self.disconnects += 1


class PlacedEngine(FakeEngine):
    """Says which instances of an operator it uses, as Spark's engine does after a placement."""

    placed: Mapping[Any, tuple[int, ...]] | None = None

    def reports(self) -> Sequence[Report]:
        return [replace(report, placed=self.placed) for report in super().reports()]


class Hosts:
    """All applications of a composite engine, and its clocks."""

    def __init__(self, *, up: bool = True) -> None:
        self.up, self.now_s, self.returns = up, 1000.0, 0
        self.by_name: dict[str, FakeApplication] = {}

    def __getitem__(self, name: str) -> FakeApplication:
        return self.by_name[name]

    def make(self, name: str) -> FakeApplication:
        assert name not in self.by_name
        return self.by_name.setdefault(name, FakeApplication(name, up=self.up))

    def returned(self) -> None:
        self.returns += 1

    def engine(
        self, slots: int = 20, running: Sequence[str] = (), start_s: float = 10.0
    ) -> CompositeEngine:
        engine = CompositeEngine(
            self.make,
            lambda tenant: "both" if tenant in {"shop", "stock"} else tenant,
            slots=slots,
            how=REAL_TIME,
            running=running,
            start_s=start_s,
            clock=lambda: self.now_s,
            steady_clock=lambda: self.now_s,
        )
        engine.on_return = self.returned
        return engine


def job_of(tenant: str, name: str = "chain") -> Job:
    return replace(GOOD, tenant=tenant, name=name)


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


class TestCompositeEngine(EngineContract):
    @pytest.fixture
    def engine(self, hosts: Hosts) -> Engine:
        return hosts.engine()


def submit(engine: Engine, *jobs: Job) -> None:
    for job in jobs:
        assert engine.submit(job, initial(job)).status is Status.DONE


def test_tenants_have_applications_of_their_own_and_those_of_a_group_share_one(
    hosts: Hosts,
) -> None:
    engine = hosts.engine()
    jobs = [job_of("ads"), job_of("shop"), job_of("stock"), job_of("ads", "other")]
    submit(engine, *jobs)
    assert engine.jobs().keys() == {job.id for job in jobs}
    assert {name: set(host.reads.jobs()) for name, host in hosts.by_name.items()} == {
        "ads": {jobs[0].id, jobs[3].id},
        "both": {jobs[1].id, jobs[2].id},
    }
    assert [(a.name, a.state, len(a.jobs)) for a in engine.applications()] == [
        ("ads", State.RUNNING, 2),
        ("both", State.RUNNING, 2),
    ]


def test_an_application_is_started_by_its_first_job_and_the_caller_tries_again() -> None:
    hosts = Hosts(up=False)
    engine, job = hosts.engine(), job_of("ads")
    for _ in range(2):
        with pytest.raises(HostStarting, match="application ads is being started"):
            engine.submit(job, initial(job))
        assert engine.jobs() == {}
    assert [(a.name, a.state) for a in engine.applications()] == [("ads", State.STARTING)]
    assert hosts.returns == 0
    hosts["ads"].come_up()
    engine.conditions()
    assert hosts.returns == 1
    submit(engine, job)


def test_why_the_last_start_of_an_application_failed_is_what_its_jobs_say() -> None:
    hosts = Hosts(up=False)
    engine, job = hosts.engine(), job_of("ads")
    with pytest.raises(HostStarting):
        engine.submit(job, initial(job))
    hosts["ads"].failure = "CLUSTER_TOO_SMALL: no room."
    why = r"application ads did not start and is tried again\. CLUSTER_TOO_SMALL: no room"
    with pytest.raises(HostUnreachable, match=why):
        engine.submit(job, initial(job))


def test_an_application_can_be_wanted_before_it_has_a_job() -> None:
    hosts = Hosts(up=False)
    engine = hosts.engine()
    engine.want("shop")
    assert hosts.by_name == {}
    assert engine.jobs() == {}
    assert (hosts["both"].begun, engine.applications()[0].state) == (1, State.STARTING)
    hosts["both"].come_up()
    engine.jobs()
    engine.want("shop")
    engine.jobs()
    assert (hosts["both"].begun, engine.applications()[0].state) == (1, State.RUNNING)


def test_one_that_does_not_come_up_is_no_start_that_lasts_for_ever() -> None:
    hosts = Hosts(up=False)
    engine, job = hosts.engine(), job_of("ads")
    with pytest.raises(HostStarting):
        engine.submit(job, initial(job))
    hosts["ads"].launched, hosts["ads"].died = False, True
    hosts["ads"].begin = lambda: None  # type: ignore[method-assign]  # its back-off lasts
    with pytest.raises(HostUnreachable) as error:
        engine.submit(job, initial(job))
    assert error.value.code == "HOST_UNREACHABLE"


def test_one_that_dies_is_started_again_and_the_others_do_not_notice(hosts: Hosts) -> None:
    engine, ads, shop = hosts.engine(), job_of("ads"), job_of("shop")
    submit(engine, ads, shop)
    engine.jobs()
    hosts["ads"].die()
    hosts.now_s += 5
    conditions = engine.conditions()
    assert conditions[shop.id].health is Health.RUNNING
    assert (conditions[ads.id].health, conditions[ads.id].outside) == (Health.DEGRADED, True)
    assert conditions[ads.id].since_s == hosts.now_s
    assert "application ads" in conditions[ads.id].reason
    assert hosts["ads"].begun == 1
    assert (hosts["ads"].disconnects, hosts["both"].disconnects) == (1, 0)
    # Its jobs are still there: nobody submits them to a host that does not answer.
    assert {name: job.health for name, job in engine.jobs().items()} == {
        ads.id: Health.DEGRADED,
        shop.id: Health.RUNNING,
    }
    assert {key[0] for report in engine.reports() for key in report.instance_keys} == {shop.id}
    assert engine.apply(Reallocate(initial(shop).next_generation())).status is Status.DONE
    before = hosts.returns
    hosts["ads"].come_up()
    assert engine.conditions().keys() == {shop.id}
    assert hosts.returns == before + 1
    assert engine.jobs().keys() == {shop.id}
    submit(engine, ads)


def test_the_jobs_of_one_that_somebody_ended_are_gone_until_they_are_submitted_again(
    hosts: Hosts,
) -> None:
    engine, ads = hosts.engine(), job_of("ads")
    submit(engine, ads)
    hosts["ads"].end()
    assert engine.jobs() == {}
    assert engine.applications() == ()
    assert hosts["ads"].begun == 0
    with pytest.raises(HostStarting):
        engine.submit(ads, initial(ads))


def test_one_without_jobs_ends_after_a_while(hosts: Hosts) -> None:
    engine, ads, shop = hosts.engine(), job_of("ads"), job_of("shop")
    submit(engine, ads, shop)
    engine.cancel(ads.id, keep=True)
    engine.reports()
    hosts.now_s += IDLE_S - 1
    engine.reports()
    assert hosts["ads"].ends == 0
    hosts.now_s += 1
    engine.reports()
    assert (hosts["ads"].ends, hosts["both"].ends) == (1, 0)
    assert [a.name for a in engine.applications()] == ["both"]
    # To stop a job that does not run, nothing is started; to delete its checkpoint, it is.
    assert engine.cancel(ads.id, keep=True).status is Status.UNCHANGED
    assert hosts["ads"].begun == 0
    with pytest.raises(HostStarting):
        engine.cancel(ads.id)
    hosts["ads"].come_up()
    assert engine.cancel(ads.id).status is Status.UNCHANGED


def test_a_job_that_comes_in_time_keeps_it(hosts: Hosts) -> None:
    engine, ads = hosts.engine(), job_of("ads")
    submit(engine, ads)
    engine.cancel(ads.id, keep=True)
    engine.reports()
    hosts.now_s += IDLE_S - 1
    submit(engine, ads)
    hosts.now_s += IDLE_S
    engine.reports()
    assert hosts["ads"].ends == 0


def test_those_that_run_already_are_found_with_their_jobs(hosts: Hosts) -> None:
    ads = job_of("ads")
    submit(hosts.make("ads").reads, ads)
    again = Hosts()
    again.by_name = dict(hosts.by_name)
    again.make = lambda name: again.by_name.get(name) or FakeApplication(name, up=False)  # type: ignore[method-assign]
    engine = again.engine(running=["ads", "left-behind"])
    assert engine.jobs().keys() == {ads.id}
    assert [a.name for a in engine.applications()] == ["ads"]
    assert engine.submit(ads, initial(ads)).status is Status.UNCHANGED


def test_a_job_stays_where_it_runs_when_its_tenant_joins_a_group(hosts: Hosts) -> None:
    shop = job_of("shop")
    submit(hosts.make("shop").reads, shop)
    again = Hosts()
    again.make = lambda name: hosts.by_name.get(name) or hosts.make(name)  # type: ignore[method-assign]
    engine = again.engine(running=["shop"])
    assert engine.jobs().keys() == {shop.id}
    assert engine.submit(shop, initial(shop)).status is Status.UNCHANGED
    assert engine.apply(Reallocate(initial(shop).next_generation())).status is Status.DONE
    assert engine.cancel(shop.id, keep=True).status is Status.DONE
    submit(engine, shop)
    assert (hosts["shop"].reads.jobs(), set(hosts["both"].reads.jobs())) == ({}, {shop.id})


class SlowEngine(PlacedEngine):
    """Starts a job when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.refuse, self.asked_for = threading.Event(), False, 0

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        self.asked_for += 1
        assert self.go.wait(120)
        if self.refuse:
            return Outcome(Status.REFUSED, "NO", "It cannot be.")
        return super().submit(job, allocation, checkpoint)


@pytest.fixture
def slow(hosts: Hosts) -> Iterator[SlowEngine]:
    engine = hosts.make("ads").engine = SlowEngine()
    hosts.make = lambda name: hosts.by_name.setdefault(name, FakeApplication(name))  # type: ignore[method-assign]
    yield engine
    engine.go.set()


def outcome_of(engine: Engine, job: Job, allocation: Allocation) -> Outcome:
    """The outcome of a start, however long it takes."""
    outcomes: list[Outcome] = []

    def ended() -> bool:
        with suppress(HostStarting):
            outcomes.append(engine.submit(job, allocation))
        return bool(outcomes)

    until(ended)
    return outcomes[0]


def test_a_job_that_starts_slowly_holds_up_no_other_application(
    hosts: Hosts, slow: SlowEngine
) -> None:
    engine, ads, shop = hosts.engine(slots=4, start_s=0.05), job_of("ads"), job_of("shop")
    with pytest.raises(HostStarting, match=f"{ads.id} is being started"):
        engine.submit(ads, initial(ads))
    assert outcome_of(engine, shop, initial(shop)).status is Status.DONE
    # Its slots are taken, whoever asks; and it is not started a second time.
    assert engine.jobs().keys() == {shop.id}
    late = job_of("late")
    assert engine.submit(late, initial(late)).code == "DOES_NOT_FIT"
    with pytest.raises(HostStarting):
        engine.submit(ads, initial(ads))
    until(lambda: slow.asked_for == 1)
    before = hosts.returns
    slow.go.set()
    until(lambda: engine.jobs().keys() == {ads.id, shop.id})
    until(lambda: hosts.returns > before)
    assert engine.submit(ads, initial(ads)).status is Status.UNCHANGED


def test_a_refusal_that_comes_late_is_told_when_the_job_is_submitted_again(
    hosts: Hosts, slow: SlowEngine
) -> None:
    engine, ads = hosts.engine(start_s=0.05), job_of("ads")
    with pytest.raises(HostStarting):
        engine.submit(ads, initial(ads))
    slow.refuse = True
    slow.go.set()
    until(lambda: hosts.returns > 0)
    assert engine.submit(ads, initial(ads)).code == "NO"
    assert slow.asked_for == 1
    slow.refuse = False
    assert outcome_of(engine, ads, initial(ads)).status is Status.DONE


def test_the_outcome_of_one_version_is_not_that_of_another(hosts: Hosts, slow: SlowEngine) -> None:
    engine, ads = hosts.engine(start_s=0.05), job_of("ads")
    with pytest.raises(HostStarting):
        engine.submit(ads, initial(ads))
    slow.refuse = True
    slow.go.set()
    until(lambda: hosts.returns > 0)
    slow.refuse = False
    other = initial(ads).next_generation()
    assert outcome_of(engine, ads, other).status is Status.DONE
    assert slow.asked_for == 2


def test_one_ledger_bounds_all_and_slots_move_between_applications(hosts: Hosts) -> None:
    engine, ads, shop = hosts.engine(slots=6), job_of("ads"), job_of("shop")
    submit(engine, ads, shop)
    (name, *others) = initial(ads).parallelism
    most = 6 - initial(shop).instances - len(others)

    def wide(job: Job, generation: int, count: int) -> Allocation:
        parallelism = {**dict.fromkeys(others, 1), name: count}
        return Allocation(job.id, generation, parallelism)

    assert engine.capabilities().slots == 6
    too_many = engine.apply(Reallocate(wide(ads, 2, most + 1)))
    assert (too_many.status, too_many.code) == (Status.REFUSED, "DOES_NOT_FIT")
    assert "of 6 are free" in too_many.message
    assert engine.jobs()[ads.id].allocation == initial(ads)
    assert engine.apply(Reallocate(wide(ads, 2, most))).status is Status.DONE
    assert engine.apply(Reallocate(wide(shop, 2, 2))).code == "DOES_NOT_FIT"
    # What one application gives back, another gets.
    assert engine.apply(Reallocate(wide(ads, 3, 1))).status is Status.DONE
    assert engine.apply(Reallocate(wide(shop, 2, 2))).status is Status.DONE
    third = job_of("late")
    engine.jobs()
    outcome = engine.submit(third, replace(initial(third), parallelism={name: 9}))
    assert outcome.code == "DOES_NOT_FIT"
    assert third.id not in engine.jobs()


def test_what_an_application_refuses_costs_no_slots(hosts: Hosts) -> None:
    engine, ads = hosts.engine(slots=8), job_of("ads")
    submit(engine, ads)
    (name, *others) = initial(ads).parallelism
    parallelism = {**dict.fromkeys(others, 1), name: 6}
    wanted = Reallocate(Allocation(ads.id, 2, {**parallelism, "nothing": 1}))
    assert engine.apply(wanted).code == "UNKNOWN_OPERATOR"
    submit(engine, job_of("shop"))


def test_machines_and_senders_are_told_apart_and_make_one_snapshot(hosts: Hosts) -> None:
    engine, ads, shop = hosts.engine(), job_of("ads"), job_of("shop")
    submit(engine, ads, shop)
    operator = next(iter(initial(ads).parallelism))
    for name, job, index in (("ads", ads, 2), ("both", shop, 3)):
        host = hosts[name].engine
        assert isinstance(host, PlacedEngine)
        host.placed = {(job.id, operator): (index,)}
    observer = Observer(60.0)
    observer.observe(engine, 1.0)
    observer.observe(engine, 2.0)
    layout = observer.series.last.layout
    assert layout.machines == ("m0/ads", "m0/both", "m1/ads", "m1/both")
    assert layout.jobs == (ads.id, shop.id)
    # Each application tells where its own instances are, and neither forgets the other's.
    assert {(ads.id, operator, 2), (shop.id, operator, 3)} <= layout.instance_row.keys()


def test_a_placement_is_passed_on_by_the_names_of_the_application(hosts: Hosts) -> None:
    engine, ads = hosts.engine(), job_of("ads")
    submit(engine, ads)
    (name, *_) = parallelism = dict(initial(ads).parallelism)
    parallelism[name] = 3
    placement = {name: ("m1/ads", "m0/both", None)}
    wanted = Allocation(ads.id, 2, parallelism, placement=placement)
    assert engine.apply(Reallocate(wanted)).status is Status.DONE
    host = hosts["ads"].reads.jobs()[ads.id]
    # A machine of another application is unknown here, which Spark's engine refuses.
    assert host.allocation.placement == {name: ("m1", "m0/both", None)}
    assert engine.jobs()[ads.id].allocation.placement[name][::2] == ("m1/ads", None)


@pytest.mark.parametrize(
    ("own", "name"), [("10.0.0.7/2", "10.0.0.7/ads/2"), ("m1", "m1/ads"), ("h/ads", "h/ads/ads")]
)
def test_names_of_machines_can_be_translated_back(own: str, name: str) -> None:
    names = ApplicationNames("ads")
    assert names.machine(own) == name
    assert names.own_machine(name) == own
    assert ApplicationNames("shop").own_machine(name) == name


def test_capabilities_are_what_all_applications_can_do(hosts: Hosts) -> None:
    engine = hosts.engine()
    # Without any, they are those of the engine that would be started.
    assert engine.capabilities().of(Ability.RESTART_JOB) is How.WITH_OUTAGE
    assert engine.capabilities().tasks is None
    submit(engine, job_of("ads"), job_of("shop"))
    capabilities = engine.capabilities()
    assert capabilities.tasks == 200
    assert capabilities.of(Ability.PARALLELISM) is How.LIVE
    assert capabilities.of(Ability.BATCHING) is How.NOT_AT_ALL
    for action in (AddMachines("1", 1), RemoveMachines("2", ("m0/ads",))):
        assert engine.apply(action).status is Status.REFUSED


@pytest.mark.parametrize(
    ("error", "health"),
    [
        (HostUnreachable("It hangs."), Health.DEGRADED),
        (EngineFailed("It stumbled over one call."), Health.RUNNING),
    ],
)
def test_an_error_of_one_application_is_its_own(
    hosts: Hosts, error: TrilithonError, health: Health
) -> None:
    engine, ads, shop = hosts.engine(), job_of("ads"), job_of("shop")
    submit(engine, ads, shop)

    def fail() -> Any:
        raise error

    hosts["ads"].reads.jobs = fail  # type: ignore[method-assign]
    jobs = engine.jobs()
    assert (jobs[ads.id].health, jobs[shop.id].health) == (health, Health.RUNNING)


def test_to_close_it_leaves_the_applications_and_to_end_it_does_not(hosts: Hosts) -> None:
    engine = hosts.engine()
    submit(engine, job_of("ads"), job_of("shop"))
    engine.close()
    assert [host.ends for host in hosts.by_name.values()] == [0, 0]
    hosts["ads"].die()
    engine.end()
    assert [host.ends for host in hosts.by_name.values()] == [1, 1]
