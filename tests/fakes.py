"""Fakes that several tests share: an engine that keeps the contract and runs nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    Condition,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.errors import DoesNotFit
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.columns import Instances, Machines
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene


class FakePolicy:
    """What every policy has; those of tests decide."""

    name = "fake"
    lookback_s = 20.0
    feedback_rounds = 0
    parameters = Parameters()

    def decide(self, scene: Scene, state: State) -> Verdict:  # noqa: ARG002
        return Verdict((), state)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return {"round": scene.round, "state": dict(state)}


UNCHANGED = Outcome(Status.UNCHANGED)


def refused(code: str, message: str) -> Outcome:
    return Outcome(Status.REFUSED, code, message)


class FakeEngine:
    """Keeps books, counts a record per instance and report, and remembers what it was told."""

    def __init__(self, tasks: int = 100, slots: int = 20, machines: int = 2) -> None:
        self.ledger = Ledger(tasks, slots)
        self.jobs_by_name: dict[str, Job] = {}
        self.allocations: dict[str, Allocation] = {}
        self.machines = [f"m{i}" for i in range(machines)]
        self.done: list[Action] = []
        # The ids of all one-shot actions that came, also of those that came again.
        self.asked: list[str] = []
        # Per job the checkpoints that there are, and how many lives each served.
        self.checkpoints: dict[str, dict[str, int]] = {}
        self.runs_from: dict[str, str] = {}
        self.closed = False
        self._ids: set[str] = set()
        self._sequence = 0

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.jobs_by_name:
            return UNCHANGED
        try:
            self.ledger.reserve(job.id, Entry(job.tenant, job.tasks, allocation.instances))
        except DoesNotFit as error:
            return refused(error.code, error.message)
        self.jobs_by_name[job.id], self.allocations[job.id] = job, allocation
        self.runs_from[job.id] = checkpoint
        left = self.checkpoints.setdefault(job.id, {})
        left[checkpoint] = left.get(checkpoint, 0) + 1
        return Outcome(Status.DONE)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        if not keep:
            self.checkpoints.pop(job, None)
        if self.jobs_by_name.pop(job, None) is None:
            return UNCHANGED
        self.allocations.pop(job)
        self.ledger.release(job)
        return Outcome(Status.DONE)

    def apply(self, action: Action) -> Outcome:
        if isinstance(action, Reallocate):
            return self._reallocate(action)
        if isinstance(action, RestartInstance | RestartJob) and action.job not in self.jobs_by_name:
            return refused("NOT_FOUND", f"There is no job {action.job}.")
        if isinstance(action, RemoveMachines) and set(action.machines) - set(self.machines):
            return refused("NOT_FOUND", "There is no such machine.")
        self.asked.append(action.id)
        if action.id in self._ids:
            return UNCHANGED
        if isinstance(action, RestartJob):
            try:
                self._restart(action)
            except DoesNotFit as error:
                return refused(error.code, error.message)
        self._ids.add(action.id)
        self.done.append(action)
        if isinstance(action, AddMachines):
            self.machines += [f"m{len(self.machines) + i}" for i in range(action.count)]
        if isinstance(action, RemoveMachines):
            self.machines = [m for m in self.machines if m not in action.machines]
        return Outcome(Status.DONE)

    def _restart(self, action: RestartJob) -> None:
        name, job = action.job, action.spec or self.jobs_by_name[action.job]
        wanted = action.allocation or self.allocations[name]
        if action.allocation is None and action.spec is not None:
            wanted = carried_over(wanted, job).next_generation()
        self.ledger.reserve(name, Entry(job.tenant, job.tasks, wanted.instances))
        self.jobs_by_name[name], self.allocations[name] = job, wanted
        if action.checkpoint is not None:
            self.runs_from[name] = action.checkpoint
            left = self.checkpoints.setdefault(name, {})
            left[action.checkpoint] = left.get(action.checkpoint, 0) + 1

    def _reallocate(self, action: Reallocate) -> Outcome:
        wanted = action.allocation
        if (job := self.jobs_by_name.get(wanted.job)) is None:
            return refused("NOT_FOUND", f"There is no job {wanted.job}.")
        now = self.allocations[wanted.job]
        if wanted.generation <= now.generation:
            return UNCHANGED
        if set(wanted.parallelism) != set(now.parallelism):
            return refused("UNKNOWN_OPERATOR", "It names other operators than the job has.")
        for name, count in wanted.parallelism.items():
            if count > job.operator(name).parallelism.max:
                return refused(
                    "OUT_OF_RANGE", f"{name} has {job.operator(name).parallelism.max} tasks."
                )
        try:
            self.ledger.reserve(job.id, Entry(job.tenant, job.tasks, wanted.instances))
        except DoesNotFit as error:
            return refused(error.code, error.message)
        self.allocations[wanted.job] = wanted
        self.done.append(action)
        return Outcome(Status.DONE)

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(job, self.allocations[name], checkpoint=self.runs_from.get(name, ""))
            for name, job in self.jobs_by_name.items()
        }

    def conditions(self) -> Mapping[str, Condition]:
        return {name: accepted.condition for name, accepted in self.jobs().items()}

    def reports(self) -> Sequence[Report]:
        self._sequence += 1
        keys = [
            (job, operator, index)
            for job, allocation in self.allocations.items()
            for operator, count in allocation.parallelism.items()
            for index in range(count)
        ]
        counted = Instances.of(len(keys), taken=[float(self._sequence)] * len(keys))
        return [
            Report(
                "fake",
                self._sequence,
                float(self._sequence),
                instance_keys=tuple(keys),
                instances=counted,
                machine_keys=tuple(self.machines),
                machines=Machines.missing(len(self.machines)),
            )
        ]

    def capabilities(self) -> Capabilities:
        live = dict.fromkeys(Ability, How.LIVE)
        live[Ability.BATCHING] = How.NOT_AT_ALL
        return Capabilities(live, slots=self.ledger.slots, tasks=self.ledger.tasks)

    def close(self) -> None:
        self.closed = True
