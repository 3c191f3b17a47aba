"""The parts of a job are started, changed and stopped together, without Spark."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.spark.test_part_versions import DIAMOND, planned, with_operator
from trilithon.contract.condition import Cause, Condition, Health
from trilithon.contract.engine import Outcome, RestartJob, Status
from trilithon.engines.spark.compiler import Chain, plan_chain
from trilithon.engines.spark.cut_lags import BOUND_RECORDS, FREE
from trilithon.engines.spark.cut_records import REMEMBERED_IDS
from trilithon.engines.spark.dags import HELD_FOR_S, Dags, worst
from trilithon.engines.spark.held_tasks import grown_tasks, held_tasks
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.part_planner import PlannedJob
from trilithon.engines.spark.reallocation import AT_BOUNDARY
from trilithon.errors import DoesNotFit, KafkaUnreachable
from trilithon.model.action import RESTARTED
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Job, Parallelism, Work

NAME = DIAMOND.id


@dataclass
class FakeChains:
    """Takes parts; refuses or fails those it is told to."""

    managed: dict[str, Any] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    fails: set[str] = field(default_factory=set)
    lacks_tasks: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    # The code of the outcome of a reallocation.
    code: str = ""

    def submit_chain(self, job: Job, allocation: Allocation, checkpoint: str) -> Outcome:
        self.calls.append(("submit", job.name))
        if job.name in self.refuses:
            return Outcome(Status.REFUSED, "SPARK_REFUSED", "no")
        self.managed[job.id] = SimpleNamespace(
            job=job,
            allocation=allocation,
            checkpoint=checkpoint,
            tasks=held_tasks(job, allocation, 1),
        )
        return Outcome(Status.DONE)

    def cancel_chain(self, job: str, keep: bool) -> Outcome:
        self.calls.append(("keep" if keep else "cancel", job.rpartition("/")[2]))
        if job.rpartition("/")[2] in self.fails:
            return Outcome(Status.FAILED, "THREADS_LEFT", "a thread goes on")
        return Outcome(Status.DONE if self.managed.pop(job, None) else Status.UNCHANGED)

    def reallocate_chain(self, wanted: Allocation, tasks: dict[str, int] | None = None) -> Outcome:
        name = wanted.job.rpartition("/")[2]
        self.calls.append(("grow" if tasks else "reallocate", name))
        if tasks and name in self.fails:
            return Outcome(Status.FAILED, "QUERY_NOT_STARTED", "it did not start")
        managed = self.managed[wanted.job]
        managed.allocation, managed.tasks = wanted, tasks or managed.tasks
        if tasks:
            return Outcome(Status.DONE, RESTARTED, f"{name} was restarted.")
        return Outcome(Status.DONE, self.code)

    def grown_tasks(self, wanted: Allocation, free: int) -> dict[str, int] | None:
        managed = self.managed[wanted.job]
        return grown_tasks(managed.job, wanted, 1, managed.tasks, free)

    def restart_chain(self, action: RestartJob) -> Outcome:
        name = action.job.rpartition("/")[2]
        self.calls.append(("restart", name))
        if name in self.lacks_tasks:
            raise DoesNotFit(f"{name} needs more tasks than are free.")
        if name in self.fails:
            return Outcome(Status.FAILED, "QUERY_NOT_STARTED", "it did not start")
        managed = self.managed[action.job]
        managed.job, managed.allocation = action.spec or managed.job, action.allocation
        return Outcome(Status.DONE)


class FakeTopics:
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.away = False

    def delete(self, job: str, keep: Collection[str] = ()) -> None:
        assert not keep  # nothing of a job that ends stays
        if self.away:
            raise KafkaUnreachable("Kafka does not answer.")
        self.deleted.append(job)


class PlannedDags(Dags):
    """Plans without Spark."""

    @property
    def planner(self) -> Any:
        return self

    def plan(self, job: Job, _checkpoint: str) -> PlannedJob:
        of = planned(job)
        return replace(of, chains=tuple(plan_chain(part) for part in of.parts))


def with_tasks(chain: Chain, share: Allocation) -> Chain:
    return replace(chain, tasks=held_tasks(chain.job, share, 1))


@pytest.fixture
def dags() -> PlannedDags:
    return PlannedDags(
        FakeChains(),
        SimpleNamespace(  # type: ignore[arg-type]
            with_tasks=with_tasks, incarnations=SimpleNamespace(begin=lambda: 100.0)
        ),
        Ledger(tasks=100, slots=20),
        SimpleNamespace(batch=lambda _: "run:1"),  # type: ignore[arg-type]
        FakeTopics(),  # type: ignore[arg-type]
        lambda _: {},
        lambda: None,
        lambda: 100.0,
    )


def calls(dags: Dags) -> list[tuple[str, str]]:
    assert isinstance(dags.chains, FakeChains)
    made, dags.chains.calls = dags.chains.calls, []
    return made


def started(dags: Dags) -> FakeChains:
    assert dags.submit(DIAMOND, initial(DIAMOND), "").status is Status.DONE
    calls(dags)
    assert isinstance(dags.chains, FakeChains)
    return dags.chains


def test_the_parts_behind_a_cut_start_first_and_each_has_its_entry(dags: Dags) -> None:
    assert dags.submit(DIAMOND, initial(DIAMOND), "").status is Status.DONE
    assert [name for _, name in calls(dags)] == ["j~d", "j~c", "j~b", "j~a"]
    # Readers and operators: 1 + 8, 8 + 8, 8 + 8, 16 + 8.
    assert {n: e.tasks for n, e in dags.ledger.entries.items()} == {
        f"{NAME}~a": 9,
        f"{NAME}~b": 16,
        f"{NAME}~c": 16,
        f"{NAME}~d": 24,
    }


def test_if_a_part_is_refused_none_runs(dags: Dags) -> None:
    assert isinstance(dags.chains, FakeChains)
    dags.chains.refuses = {"j~b"}
    outcome = dags.submit(DIAMOND, initial(DIAMOND), "")
    assert (outcome.status, outcome.code) == (Status.REFUSED, "SPARK_REFUSED")
    assert outcome.message == "The part b: no"
    assert not dags.chains.managed
    assert not dags.ledger.entries
    assert not dags.accepted


def test_a_job_without_room_starts_no_part(dags: Dags) -> None:
    dags.ledger.tasks = 64
    outcome = dags.submit(DIAMOND, initial(DIAMOND), "")
    assert (outcome.status, outcome.code) == (Status.REFUSED, DoesNotFit.code)
    assert calls(dags) == []
    assert not dags.ledger.entries


def test_only_parts_with_another_share_are_reallocated(dags: Dags) -> None:
    started(dags)
    wanted = initial(DIAMOND).rescaled({"b": 3, "d": 2}).next_generation()
    assert dags.reallocate(wanted).status is Status.DONE
    assert calls(dags) == [("reallocate", "j~b"), ("reallocate", "j~d")]
    assert dags.reallocate(wanted).status is Status.UNCHANGED
    assert sum(entry.slots for entry in dags.ledger.entries.values()) == 7


def test_parts_whose_batch_ends_for_a_change_stall_one_after_the_other(dags: Dags) -> None:
    """A placement on a new machine ended the batches of all parts at the same time."""
    chains, asked = started(dags), list[str]()

    def batch(part: str) -> str:
        """The next batch of a part begins when it was asked for a few times."""
        name = part.rpartition("/")[2]
        asked.append(name)
        changed = ("reallocate", name) in chains.calls
        return "run:2" if changed and asked.count(name) > 3 else "run:1"

    dags.control = SimpleNamespace(batch=batch)  # type: ignore[assignment]
    chains.code = AT_BOUNDARY
    wanted = initial(DIAMOND).rescaled({"b": 3, "d": 2}).next_generation()
    outcome = dags.reallocate(wanted)
    assert (outcome.status, outcome.code) == (Status.DONE, AT_BOUNDARY)
    assert asked == ["j~b"] * 4 + ["j~d"] * 4


def test_an_allocation_is_granted_whole_or_not_at_all(dags: Dags) -> None:
    started(dags)
    wanted = initial(DIAMOND).rescaled({"a": 8, "b": 8, "c": 8}).next_generation()
    before = dags.ledger.entries
    with pytest.raises(DoesNotFit):
        dags.reallocate(wanted)
    assert dags.ledger.entries == before
    assert calls(dags) == []
    # What one part gives back another may take, in the same change.
    full = initial(DIAMOND).rescaled({"a": 8, "b": 8, "c": 3}).next_generation()
    assert dags.reallocate(full).status is Status.DONE
    moved = full.rescaled({"a": 1, "d": 8}).next_generation()
    assert dags.reallocate(moved).status is Status.DONE


WIDE = with_operator(
    with_operator(DIAMOND, "b", parallelism=Parallelism(1, 1, 32)),
    "d",
    parallelism=Parallelism(1, 1, 32),
)


def tasks_of(dags: Dags) -> dict[str, int]:
    return {name[-1]: entry.tasks for name, entry in dags.ledger.entries.items()}


def test_only_parts_that_need_more_tasks_are_restarted(dags: Dags) -> None:
    dags.ledger.slots = 100
    assert dags.submit(WIDE, initial(WIDE), "").status is Status.DONE
    calls(dags)
    # Readers and operators: the topics before b and d have 8 partitions.
    assert tasks_of(dags) == {"a": 9, "b": 8 + 4, "c": 16, "d": 16 + 4}
    wanted = initial(WIDE).rescaled({"b": 6, "c": 2, "d": 4}).next_generation()
    outcome = dags.reallocate(wanted)
    assert calls(dags) == [("grow", "j~b"), ("reallocate", "j~c"), ("reallocate", "j~d")]
    assert (outcome.status, outcome.code) == (Status.DONE, RESTARTED)
    assert outcome.message == "j~b was restarted."
    assert tasks_of(dags) == {"a": 9, "b": 8 + 12, "c": 16, "d": 16 + 4}
    assert dags.accepted[NAME].allocation == wanted


def test_spare_tasks_of_several_parts_are_of_what_is_free(dags: Dags) -> None:
    assert dags.submit(WIDE, initial(WIDE), "").status is Status.DONE
    dags.ledger.tasks = sum(tasks_of(dags).values()) + 9
    wanted = initial(WIDE).rescaled({"b": 5, "d": 5}).next_generation()
    assert dags.reallocate(wanted).status is Status.DONE
    # b takes what it needs and its spare ones, d what is left.
    assert tasks_of(dags) == {"a": 9, "b": 8 + 10, "c": 16, "d": 16 + 7}
    before = dags.ledger.entries
    with pytest.raises(DoesNotFit, match="needs 27 tasks; 23 of 66 are free"):
        dags.reallocate(wanted.rescaled({"d": 11}).next_generation())
    assert dags.ledger.entries == before
    assert calls(dags)[-2:] == [("grow", "j~b"), ("grow", "j~d")]


def test_if_a_part_does_not_start_with_more_tasks_all_return_to_what_they_had(dags: Dags) -> None:
    assert dags.submit(WIDE, initial(WIDE), "").status is Status.DONE
    calls(dags)
    before = dags.ledger.entries
    assert isinstance(dags.chains, FakeChains)
    dags.chains.fails = {"j~d"}
    wanted = initial(WIDE).rescaled({"b": 5, "c": 2, "d": 5}).next_generation()
    outcome = dags.reallocate(wanted)
    assert (outcome.status, outcome.code) == (Status.FAILED, "QUERY_NOT_STARTED")
    assert calls(dags) == [
        ("grow", "j~b"),
        ("reallocate", "j~c"),
        ("grow", "j~d"),
        ("reallocate", "j~b"),
        ("reallocate", "j~c"),
    ]
    shares = [managed.allocation.parallelism for managed in dags.chains.managed.values()]
    assert {name: n for share in shares for name, n in share.items()} == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 1,
    }
    # What was restarted holds its tasks, what was not has none reserved.
    assert tasks_of(dags)["b"] == 8 + 10
    assert dags.ledger.entries[f"{NAME}~d"] == before[f"{NAME}~d"]
    assert dags.accepted[NAME].allocation.generation > wanted.generation


def test_a_version_that_does_not_start_leaves_all_parts_as_they_were(dags: Dags) -> None:
    chains = started(dags)
    version = DIAMOND
    for name in "abc":
        version = with_operator(version, name, work=Work(where="v > 1"))
    chains.fails = {"j~c"}
    outcome = dags.restart(RestartJob("v2", NAME, version))
    assert (outcome.status, outcome.code) == (Status.FAILED, "QUERY_NOT_STARTED")
    restarts = [("restart", name) for name in ("j~a", "j~b", "j~c", "j~a", "j~b")]
    assert calls(dags) == restarts
    works = {chains.managed[f"{NAME}~{name}"].job.operators[0].work.where for name in "abcd"}
    assert works == {None}
    assert dags.accepted[NAME].job is DIAMOND
    assert dags.restart(RestartJob("v2", NAME, version)).status is Status.UNCHANGED


def test_a_version_with_a_part_that_does_not_fit_leaves_all_parts_as_they_were(
    dags: Dags,
) -> None:
    """The refusal of the second part left the first one in the new version."""
    chains = started(dags)
    version = DIAMOND
    for name in "ab":
        version = with_operator(version, name, work=Work(where="v > 1"))
    chains.lacks_tasks = {"j~b"}
    outcome = dags.restart(RestartJob("v2", NAME, version))
    assert (outcome.status, outcome.code) == (Status.FAILED, DoesNotFit.code)
    assert calls(dags) == [("restart", name) for name in ("j~a", "j~b", "j~a")]
    assert chains.managed[f"{NAME}~a"].job.operators[0].work.where is None
    # If it is the first one, nothing was done.
    chains.lacks_tasks = {"j~a"}
    assert dags.restart(RestartJob("v3", NAME, version)).status is Status.REFUSED


def test_a_version_restarts_also_parts_that_need_more_tasks_under_it(dags: Dags) -> None:
    assert dags.submit(WIDE, initial(WIDE), "").status is Status.DONE
    calls(dags)
    version = with_operator(WIDE, "a", work=Work(where="v > 1"))
    wanted = initial(WIDE).rescaled({"b": 5, "d": 3}).next_generation()
    outcome = dags.restart(RestartJob("v2", NAME, version, wanted))
    assert outcome.status is Status.DONE
    assert calls(dags) == [("restart", "j~a"), ("restart", "j~b"), ("reallocate", "j~d")]


def test_a_restart_without_a_version_restarts_all_parts(dags: Dags) -> None:
    started(dags)
    assert dags.restart(RestartJob("r", NAME)).status is Status.DONE
    assert [name for _, name in calls(dags)] == ["j~a", "j~b", "j~c", "j~d"]


def test_a_part_that_does_not_end_keeps_the_job(dags: Dags) -> None:
    chains = started(dags)
    chains.fails = {"j~c"}
    assert dags.cancel(NAME, keep=False).code == "THREADS_LEFT"
    assert [name for _, name in calls(dags)] == ["j~a", "j~b", "j~c", "j~d"]
    assert NAME in dags.accepted
    assert dags.joined({})[NAME].health is Health.FAILED
    chains.fails = set()
    assert dags.cancel(NAME, keep=False).status is Status.DONE
    assert NAME not in dags.accepted
    assert isinstance(dags.topics, FakeTopics)
    assert dags.topics.deleted == [NAME]


def test_topics_that_could_not_be_deleted_are_told(dags: Dags) -> None:
    started(dags)
    assert isinstance(dags.topics, FakeTopics)
    dags.topics.away = True
    outcome = dags.cancel(NAME, keep=False)
    assert (outcome.status, outcome.code) == (Status.DONE, "TOPICS_LEFT")


def test_the_condition_of_a_job_is_that_of_its_worst_part() -> None:
    runs = Condition(since_s=3.0)
    degraded = Condition(Health.DEGRADED, "Kafka is away", Cause.KAFKA, 5.0, 6.0)
    failed = Condition(Health.FAILED, "a record", Cause.RECORD, 7.0)
    assert worst([("a", runs), ("b", degraded), ("c", failed)]) == replace(
        failed, reason="Part c: a record"
    )
    assert worst([("a", runs), ("b", degraded)]).reason == "Part b: Kafka is away"
    assert worst([("a", runs), ("b", Condition(since_s=4.0))]) == Condition(since_s=4.0)
    assert worst([("a", runs), ("b", Condition(reason="a note"))]).reason == "Part b: a note"


def test_the_part_before_a_full_cut_is_held_back_and_let_go(dags: Dags) -> None:
    started(dags)
    calls: list[tuple[str, str, float, float | None]] = []
    dags.control = SimpleNamespace(hold_back=lambda *call: calls.append(call))  # type: ignore[assignment]
    dags.lags.observe_ends({"a.b": BOUND_RECORDS + 1, "a.c": 5, "b.d": 0, "c.d": 0}, 100.0)
    dags.queries = SimpleNamespace(  # type: ignore[assignment]
        checkpoint=lambda _: Path("/nowhere")
    )
    dags.hold_back()
    assert calls == [(f"{NAME}~a", "a.b", HELD_FOR_S, None)]
    assert dags.waiting(dags.accepted[NAME].planned.by_id[f"{NAME}~b"]) == {"b": 1001.0}
    dags.lags.observe_ends({"a.b": 0, "a.c": 5, "b.d": 0, "c.d": 0}, 101.0)
    dags.hold_back()
    assert calls[1:] == [(f"{NAME}~a", "a.b", 0, 0)]


def test_an_edge_is_inside_one_part_or_between_two(dags: Dags) -> None:
    started(dags)
    assert dags.part_with(NAME, "a->b") is None
    assert dags.part_with("t/chain", "x->y") == "t/chain"  # a job of one part
    (part,) = (p for p in dags.accepted[NAME].planned.parts if p.id == f"{NAME}~a")
    whole = replace(part, operators=(*part.operators, replace(part.operators[0], name="next")))
    dags.accepted[NAME].planned = replace(dags.accepted[NAME].planned, parts=(whole,))
    assert dags.part_with(NAME, "a->next") == f"{NAME}~a"


def test_a_part_that_is_being_stopped_is_not_held_back(
    dags: Dags, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = started(dags)
    del chains.managed[f"{NAME}~a"]
    dags.control = SimpleNamespace(hold_back=lambda *call: pytest.fail(str(call)))  # type: ignore[assignment]
    monkeypatch.setattr(
        dags.lags, "pace_per_s", lambda _, topic, *__: 50.0 if topic == "a.b" else FREE
    )
    dags.hold_back()


def test_instances_that_write_to_a_cut_divide_its_pace(
    dags: Dags, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(dags)
    calls: list[tuple[str, str, float, float | None]] = []
    dags.control = SimpleNamespace(hold_back=lambda *call: calls.append(call))  # type: ignore[assignment]
    monkeypatch.setattr(
        dags.lags, "pace_per_s", lambda _, topic, *__: 50.0 if topic == "a.b" else FREE
    )
    dags.hold_back()
    instances = dags.chains.managed[f"{NAME}~a"].allocation.parallelism["a"]
    assert calls == [(f"{NAME}~a", "a.b", HELD_FOR_S, instances / 50)]


def test_what_was_committed_is_purged_except_the_records_whose_ids_tell_doubles(
    dags: Dags, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(dags)
    purged: list[dict[tuple[str, int], int]] = []
    committed = {
        f"{NAME}~a": {("t", 0): 9_000_000},  # the user's topic
        f"{NAME}~b": {("a.b", 0): REMEMBERED_IDS, ("a.b", 1): REMEMBERED_IDS + 5},
    }
    monkeypatch.setattr(dags, "_offsets", lambda part: committed.get(part, {}))
    monkeypatch.setattr(dags.topics, "purge", purged.append, raising=False)
    for _ in range(2):
        monkeypatch.setattr(dags, "_purged_s", -1e9)
        dags.purge()
    assert purged == [{("a.b", 1): 5}]
