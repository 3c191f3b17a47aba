"""Makes and pushes the routing tables of an allocation: which tasks of an operator get records."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.errors import (
    BatchingUnsupported,
    InvalidAllocation,
    TooManyInstances,
    UnknownMachine,
    WeightsWithPlacement,
)
from trilithon.model.allocation import Allocation
from trilithon.model.groups import assign_key_groups
from trilithon.model.job import Grouping, Job


def keyed(job: Job) -> set[str]:
    """The operators with a keyed input."""
    return {edge.target for edge in job.edges if edge.grouping is Grouping.BY_KEY}


def check(job: Job, wanted: Allocation, machines: Collection[str]) -> None:
    """Raises for a facet of an allocation that the engine cannot realize; each has its own code.
    Before the first executor has reported, any machine name is accepted.
    """
    names = {operator.name for operator in job.operators}
    if set(wanted.parallelism) != names:
        raise InvalidAllocation(f"{job.id} has the operators {', '.join(sorted(names))}.")
    for operator in job.operators:
        if wanted.parallelism[operator.name] > operator.parallelism.max:
            raise TooManyInstances(
                f"{operator.name} holds {operator.parallelism.max} tasks and cannot have "
                f"{wanted.parallelism[operator.name]} instances."
            )
    for name, places in wanted.placement.items():
        if any(place is not None for place in places) and len({*wanted.weights.get(name, ())}) > 1:
            raise WeightsWithPlacement(
                f"{name} has both a placement and different weights.",
                "Instances on named machines get equal shares: leave out one of the two.",
            )
    asked = {name for places in wanted.placement.values() for name in places if name is not None}
    if machines and (unknown := sorted(asked - set(machines))):
        raise UnknownMachine(
            f"There is no machine {', '.join(unknown)}.",
            f"There are: {', '.join(sorted(machines))}.",
        )
    if wanted.batching_ms:
        raise BatchingUnsupported(
            f"{job.id} cannot have a batching time of its own: all jobs share one.",
            "Leave out batching_ms, and set spark.shuffle.streaming.networkBufferMaxWaitTimeMs.",
        )


def push(
    control: ProbeControl, job: Job, wanted: Allocation, groups: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Pushes the routing tables of an allocation; returns the instance of each key group."""
    assigned = dict(groups)
    for operator, count in wanted.parallelism.items():
        table = _table(wanted, operator, count, job.operator(operator).parallelism.max)
        if operator in keyed(job):
            weights = wanted.weights.get(operator, (1.0,) * count)
            assigned[operator] = wanted.groups.get(operator) or assign_key_groups(
                weights, assigned.get(operator)
            )
            table |= {"groups": assigned[operator], "ordered": job.bounds.preserve_order}
        control.set_table(job.id, operator, table)
    return assigned


def _table(wanted: Allocation, operator: str, count: int, tasks: int) -> dict[str, Any]:
    """The routing table of an operator: the weight of each task, or instances per executor."""
    machines = wanted.placement.get(operator, ())
    if any(machine is not None for machine in machines):
        named = [str(machine) for machine in machines if machine is not None]
        wishes = Counter(machine.rpartition("/")[2] for machine in named)
        anywhere = len(machines) - len(named)
        return {
            "generation": wanted.generation,
            "executors": dict(wishes),
            "anywhere": anywhere,
        }
    weights = list(wanted.weights.get(operator, (1.0,) * count))
    return {"generation": wanted.generation, "weights": weights + [0.0] * (tasks - count)}


def placed(
    control: ProbeControl, allocations: Collection[Allocation]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """The tasks that are the instances of each operator with a placement; other operators use their
    first tasks.
    """
    wished = [(wanted.job, operator) for wanted in allocations for operator in wanted.placement]
    if not wished:
        return {}
    tables = control.tables()
    tasks = {}
    for job, operator in wished:
        table = tables.get(f"{job}/{operator}", {}).get("effective", {})
        if table.get("placed"):
            weights = enumerate(table["weights"])
            tasks[job, operator] = tuple(task for task, weight in weights if weight > 0)
    return tasks
