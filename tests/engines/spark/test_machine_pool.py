"""Machines that join and leave, over executors and a cluster that are fakes: what goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from trilithon.contract.engine import Ability, AddMachines, How, RemoveMachines, Status
from trilithon.engines.spark import machine_pool
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.executors import Executor, Executors
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.machine_pool import MachinePool
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.standalone import StandaloneCluster, WorkerRecord
from trilithon.engines.spark.warm_up import WARM_UP
from trilithon.errors import ClusterUnavailable, UnknownMachine


class FakeExecutors:
    """Executors of 8 slots, each with a worker whose page has the port 100 + its number."""

    def __init__(self, count: int, *, removable: bool = True) -> None:
        self.removable = removable
        self.all = {str(i): Executor(str(i), 8, 2, False, 100 + i) for i in range(count)}
        self.killed: tuple[list[str], int] | None = None
        self.unkillable = False

    def list(self) -> dict[str, Executor]:
        return dict(self.all)

    def exclude(self, executors: Sequence[str]) -> None:
        self._mark(executors, excluded=True)

    def include(self, executors: Sequence[str]) -> None:
        self._mark(executors, excluded=False)

    def _mark(self, executors: Sequence[str], *, excluded: bool) -> None:
        self.all |= {id_: replace(self.all[id_], excluded=excluded) for id_ in executors}

    def empty(self) -> None:
        """What the end of a batch does to excluded executors."""
        self.all = {
            id_: replace(executor, running=0 if executor.excluded else executor.running)
            for id_, executor in self.all.items()
        }

    def kill(self, executors: Sequence[str], keep: int) -> None:
        self.killed = (list(executors), keep)
        if not self.unkillable:
            self.all = {id_: e for id_, e in self.all.items() if id_ not in executors}


class FakeCluster:
    """A cluster whose workers get executors, unless it is `barren`."""

    def __init__(self, executors: FakeExecutors, *, barren: bool = False) -> None:
        self.executors, self.barren, self.asked_for = executors, barren, 2
        self.removed: list[int] = []
        self.fault: ClusterUnavailable | None = None

    def add_workers(self, count: int) -> tuple[int, ...]:
        if self.fault is not None:
            raise self.fault
        first = len(self.executors.all)
        numbers = tuple(range(first, first + count))
        for number in () if self.barren else numbers:
            self.executors.all[str(number)] = Executor(str(number), 8, 0, False, 100 + number)
        return numbers

    def remove_workers(self, numbers: Sequence[int]) -> None:
        self.removed += numbers
        for number in numbers:
            self.executors.all.pop(str(number), None)

    def worker_at(self, port: int) -> WorkerRecord | None:
        return WorkerRecord(port - 100, 1, port, 8, 512)


class FakeControl:
    """A job whose batch ends at once, unless it is stuck."""

    def __init__(self, executors: FakeExecutors, *, stuck: bool = False) -> None:
        self.executors, self.stuck, self.number = executors, stuck, 0

    def batches(self) -> dict[str, str]:
        return {"t/a": self.batch("t/a")}

    def batch(self, _job: str) -> str:
        return f"run:{self.number}"

    def end_batch(self, _job: str, _batch: str) -> None:
        if not self.stuck:
            self.number += 1
            self.executors.empty()


def pool_of(
    executors: FakeExecutors, cluster: FakeCluster | None = None, *, stuck: bool = False
) -> MachinePool:
    control = cast("ProbeControl", FakeControl(executors, stuck=stuck))
    ledger = Ledger(100, 32, entries={"t/a": Entry("t", 6, 4)})
    names: dict[str, Any] = {str(i): f"host/{i}" for i in range(10)}
    return MachinePool(
        cast("Executors", executors),
        control,
        Boundaries(control),
        ledger,
        names,
        cast("StandaloneCluster | None", cluster),
        queries=lambda: {"t/a"},
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTER_S", "GONE_S", "END_BATCH_S"):
        monkeypatch.setattr(machine_pool, name, 0.2)


def test_a_batch_of_a_query_that_has_died_is_not_awaited() -> None:
    executors = FakeExecutors(2)
    pool = pool_of(executors, FakeCluster(executors), stuck=True)
    assert pool.jobs() == ["t/a"]
    pool.queries = frozenset
    assert pool.jobs() == []
    executors.all["1"] = replace(executors.all["1"], running=0)
    outcome = pool.remove_machines(RemoveMachines("in", ("host/1",)))
    assert (outcome.status, outcome.message) == (Status.DONE, "")


def test_new_machines_are_warmed_up_beside_those_that_were_there() -> None:
    executors = FakeExecutors(2)
    warmed: list[int] = []
    pool = pool_of(executors, FakeCluster(executors))
    pool.warm_up = warmed.append
    assert pool.add_machines(AddMachines("a", 2)).status is Status.DONE
    assert warmed == [4]
    assert pool.add_machines(AddMachines("a", 2)).status is Status.UNCHANGED
    assert warmed == [4]


def test_the_tasks_of_machines_leave_out_excluded_ones_and_those_of_jobs_the_warm_up() -> None:
    executors = FakeExecutors(2)
    pool = pool_of(executors, FakeCluster(executors))
    assert pool.tasks_per_machine() == {"host/0": 8, "host/1": 8}
    executors.exclude(["1"])
    assert pool.tasks_per_machine() == {"host/0": 8}
    pool.ledger.entries[WARM_UP] = Entry(WARM_UP, 3, 0)
    assert (pool.tasks_of_jobs(), pool.tasks()) == (6, 9)
    assert pool_of(FakeExecutors(1, removable=False)).tasks_per_machine() == {}


def test_a_machine_is_joining_until_it_is_warm_or_has_failed() -> None:
    executors = FakeExecutors(2)
    cluster = FakeCluster(executors)
    pool = pool_of(executors, cluster)
    seen: list[bool] = []
    pool.warm_up = lambda _: seen.append(pool.joining)
    assert pool.add_machines(AddMachines("a", 1)).status is Status.DONE
    assert (seen, pool.joining) == ([True], False)
    cluster.fault = ClusterUnavailable("no memory is left")
    assert pool.add_machines(AddMachines("b", 1)).status is Status.FAILED
    assert not pool.joining


def test_slots_follow_the_machines_that_join_and_leave() -> None:
    executors = FakeExecutors(2)
    cluster = FakeCluster(executors)
    pool = pool_of(executors, cluster)
    assert pool.slots_per_machine() == {"host/0": 16, "host/1": 16}
    assert pool.add_machines(AddMachines("a", 1)).status is Status.DONE
    assert pool.ledger.slots == 48
    # One that died will be replaced: the jobs on it keep their slots.
    died = executors.all.pop("1")
    pool.slots_per_machine()
    assert pool.ledger.slots == 48
    executors.all["1"] = died
    assert pool.remove_machines(RemoveMachines("b", ("host/2",))).status is Status.DONE
    assert (pool.ledger.slots, cluster.removed) == (32, [2])
    # A host that is started with three machines divides as the first one did.
    again = FakeExecutors(3)
    assert pool_of(again, FakeCluster(again)).ledger.slots == 48


def test_workers_whose_executors_do_not_register_are_ended_again() -> None:
    executors = FakeExecutors(2)
    cluster = FakeCluster(executors, barren=True)
    outcome = pool_of(executors, cluster).add_machines(AddMachines("a", 2))
    assert (outcome.status, outcome.code) == (Status.FAILED, "ENGINE_FAILED")
    assert "did not register within" in outcome.message
    assert cluster.removed == [2, 3]


def test_a_cluster_that_starts_no_worker_is_told_with_its_reason() -> None:
    executors = FakeExecutors(2)
    cluster = FakeCluster(executors)
    cluster.fault = ClusterUnavailable("No master runs.", "Start one.")
    outcome = pool_of(executors, cluster).add_machines(AddMachines("a", 1))
    assert (outcome.status, outcome.code) == (Status.FAILED, "CLUSTER_UNAVAILABLE")
    assert outcome.message == "No master runs. Start one."


def test_a_machine_whose_batch_does_not_end_is_used_again() -> None:
    executors = FakeExecutors(3)
    cluster = FakeCluster(executors)
    outcome = pool_of(executors, cluster, stuck=True).remove_machines(
        RemoveMachines("r", ("host/1",))
    )
    assert (outcome.status, outcome.code) == (Status.FAILED, "ENGINE_FAILED")
    assert "The batch of t/a did not end" in outcome.message
    assert not any(executor.excluded for executor in executors.all.values())
    assert not cluster.removed


def test_on_a_cluster_of_others_executors_are_ended_and_the_rest_is_kept() -> None:
    executors = FakeExecutors(3)
    pool = pool_of(executors)
    assert pool.abilities()[Ability.ADD_MACHINES] is How.NOT_AT_ALL
    assert pool.abilities()[Ability.REMOVE_MACHINES] is How.AT_BOUNDARY
    refused = pool.add_machines(AddMachines("a", 1))
    assert (refused.status, refused.code) == (Status.REFUSED, "CANNOT_ADD_MACHINES")
    assert pool.remove_machines(RemoveMachines("r", ("host/1",))).status is Status.DONE
    assert executors.killed == (["1"], 2)


def test_an_executor_that_was_told_to_end_and_did_not_leaves_the_outcome_unknown() -> None:
    executors = FakeExecutors(3)
    executors.unkillable = True
    outcome = pool_of(executors).remove_machines(RemoveMachines("r", ("host/1",)))
    assert outcome.status is Status.UNKNOWN
    assert "were told to end and did not" in outcome.message


def test_what_cannot_leave_is_refused() -> None:
    local = pool_of(FakeExecutors(0, removable=False))
    assert set(local.abilities().values()) == {How.NOT_AT_ALL}
    assert local.slots_per_machine() == {}
    assert local.ledger.slots == 32
    refused = local.remove_machines(RemoveMachines("r", ("host/driver",)))
    assert (refused.status, refused.code) == (Status.REFUSED, "CANNOT_REMOVE_MACHINES")
    with pytest.raises(UnknownMachine, match="There are: host/0, host/1"):
        pool_of(FakeExecutors(2)).remove_machines(RemoveMachines("r", ("host/7",)))
