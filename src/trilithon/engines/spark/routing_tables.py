"""Makes and pushes the routing tables of an allocation: which tasks of an operator get records."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from trilithon.engines.spark.cuts import PartJob
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.errors import (
    CannotSpread,
    InvalidAllocation,
    StateIsFixed,
    TooManyInstances,
    UnknownMachine,
    WeightsWithPlacement,
)
from trilithon.model.allocation import Allocation
from trilithon.model.groups import SPREAD, assign_key_groups
from trilithon.model.job import Grouping, Job, Operator


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
        if operator.work.stateful:
            _check_stateful(operator, wanted)
        if wanted.parallelism[operator.name] > operator.tasks:
            raise TooManyInstances(
                f"{operator.name} may hold {operator.tasks} tasks and cannot have "
                f"{wanted.parallelism[operator.name]} instances."
            )
    for name, places in wanted.placement.items():
        if any(place is not None for place in places) and len({*wanted.weights.get(name, ())}) > 1:
            raise WeightsWithPlacement(
                f"{name} has both a placement and different weights.",
                "Instances on named machines get equal shares: leave out one of the two.",
            )
    for name, tasks in wanted.avoided.items():
        if not all(task < job.operator(name).tasks for task in tasks):
            raise InvalidAllocation(f"{name} has no task {max(tasks)} to avoid.")
    asked = {name for places in wanted.placement.values() for name in places if name is not None}
    if machines and (unknown := sorted(asked - set(machines))):
        raise UnknownMachine(
            f"There is no machine {', '.join(unknown)}.",
            f"There are: {', '.join(sorted(machines))}.",
        )
    for name, owners in wanted.groups.items():
        if SPREAD in owners and not job.can_spread(name):
            raise CannotSpread(
                f"The key groups of {name} cannot be spread: each key needs one instance.",
                "Only where an operator keeps no state and the job no order.",
            )
    whole = job.whole if isinstance(job, PartJob) and job.whole is not None else job
    edges = {edge.name for edge in whole.edges}
    if strange := sorted(str(edge) for edge in wanted.batching_ms if edge not in edges):
        raise InvalidAllocation(f"{whole.id} has no edge {', '.join(strange)}.")


def _check_stateful(operator: Operator, wanted: Allocation) -> None:
    """The task of a key has its state: no table can send its records to another one."""
    name = operator.name
    if wanted.parallelism[name] != operator.tasks:
        raise StateIsFixed(
            f"{name} keeps state in {operator.tasks} partitions and cannot have "
            f"{wanted.parallelism[name]} instances.",
            "Apply the job with another `parallelism`: its state is divided anew at the restart.",
        )
    facets: dict[str, Mapping[str, tuple[Any, ...]]] = {
        "weights": wanted.weights,
        "groups": wanted.groups,
        "placement": wanted.placement,
        "avoided": wanted.avoided,
    }
    for facet, values in facets.items():
        if any(value is not None for value in values.get(name, ())):
            raise StateIsFixed(
                f"{name} keeps state: its keys stay with their instances, {facet} have no effect.",
                f"Leave {name} out of {facet}.",
            )


def push(
    control: ProbeControl,
    job: Job,
    wanted: Allocation,
    groups: Mapping[str, tuple[int, ...]],
    held: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:
    """Pushes the routing tables of an allocation, given the tasks that each operator holds; returns
    the instance of each key group.
    """
    assigned = dict(groups)
    for operator, count in wanted.parallelism.items():
        tasks = held[operator]
        table = _table(wanted, operator, count, tasks)
        if operator in keyed(job):
            weights = wanted.weights.get(operator, (1.0,) * count)
            assigned[operator] = wanted.groups.get(operator) or assign_key_groups(
                weights, assigned.get(operator)
            )
            owners = assigned[operator]
            if "weights" in table:
                # Without a placement a table names tasks.
                used = wanted.instance_tasks(operator, tasks)
                owners = tuple(i if i == SPREAD else used[i] for i in owners)
            table |= {"groups": owners, "ordered": job.bounds.preserve_order}
        control.set_table(job.id, operator, table)
    return assigned


def _table(wanted: Allocation, operator: str, count: int, tasks: int) -> dict[str, Any]:
    """The routing table of an operator: the weight of each task, or instances per executor with the
    tasks that are avoided.
    """
    machines = wanted.placement.get(operator, ())
    if any(machine is not None for machine in machines):
        named = [str(machine) for machine in machines if machine is not None]
        wishes = Counter(machine.rpartition("/")[2] for machine in named)
        anywhere = len(machines) - len(named)
        return {
            "generation": wanted.generation,
            "executors": dict(wishes),
            "anywhere": anywhere,
            "avoid": list(wanted.avoided.get(operator, ())),
        }
    weights = [0.0] * tasks
    given = wanted.weights.get(operator, (1.0,) * count)
    for task, weight in zip(wanted.instance_tasks(operator, tasks), given, strict=True):
        weights[task] = weight
    return {"generation": wanted.generation, "weights": weights}


def placed(
    control: ProbeControl, allocations: Collection[Allocation]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """The tasks that are the instances of each operator with a placement or avoided tasks; other
    operators use their first tasks.
    """
    wished = [
        (wanted, operator)
        for wanted in allocations
        for operator in {**wanted.placement, **wanted.avoided}
    ]
    if not wished:
        return {}
    tables = control.tables()
    tasks = {}
    for wanted, operator in wished:
        table = tables.get(f"{wanted.job}/{operator}", {}).get("effective", {})
        weights = table.get("weights", ())
        if table.get("placed"):
            used = tuple(task for task, weight in enumerate(weights) if weight > 0)
            tasks[wanted.job, operator] = used
        elif weights and wanted.avoided.get(operator):
            tasks[wanted.job, operator] = wanted.instance_tasks(operator, len(weights))
    return tasks


def without_tasks(control: ProbeControl, wanted: Allocation) -> bool:
    """Whether an operator has a placement on an executor that runs none of its tasks: one that
    joined during the running batch.
    """
    tables = control.tables() if wanted.placement else {}
    for operator in wanted.placement:
        table = tables.get(f"{wanted.job}/{operator}", {})
        unmet = table.get("effective", {}).get("unmet", {})
        if unmet.keys() - set(table.get("tasks", {}).values()):
            return True
    return False
