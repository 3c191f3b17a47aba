"""Decides how many tasks an operator holds: all that it may use, or as many as its use calls for.

Pure. Instances beyond the tasks of a running query need a restart; idle tasks cost connections,
memory and a longer pause between batches. So an operator with a small `max` holds all tasks from
the start. A larger one follows its use, at most twice the tasks that it needs: to get from 1
instance to n it restarts log2(n) times at most. Tasks are given back at restarts that happen
anyway.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from trilithon.model.allocation import Allocation
from trilithon.model.job import HeldTasks, Job, Operator

# Up to this `max` an operator holds all its tasks, unless its file says otherwise.
ALL_UP_TO: Final = 8
# So many an operator always holds, so that small jobs do not restart at every step.
FEWEST: Final = 4
# Tasks that an operator holds for each one that it needs.
FACTOR: Final = 2


def follows_use(operator: Operator) -> bool:
    """Whether the tasks of an operator follow its use. Those of state never change."""
    if operator.work.stateful:
        return False
    if (chosen := operator.parallelism.tasks) is None:
        return operator.tasks > ALL_UP_TO
    return chosen is HeldTasks.FOLLOW


def tasks_at_start(operator: Operator) -> int:
    """The tasks that an operator holds when its job starts as its file says."""
    return _ample(operator, operator.parallelism.initial)


def partitions_before(operator: Operator) -> int:
    """The partitions of a topic between two parts of a job, given the operator behind it. They do
    not follow its use: its readers find doubles by partition.
    """
    return min(operator.tasks, ALL_UP_TO) if follows_use(operator) else operator.tasks


def needed_tasks(operator: Operator, wanted: Allocation, machines: int) -> int:
    """The tasks without which an operator cannot have its share of an allocation. Spark spreads
    them over all machines: instances that are placed on one need as many on each.
    """
    needed = wanted.instance_tasks(operator.name, operator.tasks)[-1] + 1
    places = Counter(wanted.placement.get(operator.name, ()))
    places.pop(None, None)
    most = max(places.values(), default=0)
    return min(operator.tasks, max(needed, most * machines))


def held_tasks(
    job: Job, wanted: Allocation, machines: int, before: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The tasks of each operator for a query that is started now. What it held before and does not
    need is given back; it gets more than before only where it needs more.
    """
    tasks = {}
    for operator in job.operators:
        needed = needed_tasks(operator, wanted, machines)
        tasks[operator.name], had = _ample(operator, needed), (before or {}).get(operator.name)
        if follows_use(operator) and had is not None and had >= needed:
            tasks[operator.name] = min(had, tasks[operator.name])
    return tasks


def grown_tasks(
    job: Job, wanted: Allocation, machines: int, before: Mapping[str, int], free: int
) -> dict[str, int] | None:
    """The tasks of each operator for a restart that an allocation needs; None if the tasks that are
    held before suffice. An operator gets spare ones as far as so many tasks of the cluster are
    free; what it needs it gets in any case, and the ledger refuses what does not fit.
    """
    needed = {o.name: needed_tasks(o, wanted, machines) for o in job.operators}
    if all(count <= before.get(name, count) for name, count in needed.items()):
        return None
    ample = held_tasks(job, wanted, machines, before)
    tasks = {
        name: needed[name] if needed[name] > before.get(name, 0) else count
        for name, count in ample.items()
    }
    left = free + sum(before.values()) - sum(tasks.values())
    for name, count in ample.items():
        spare = max(0, min(count - tasks[name], left))
        tasks[name] += spare
        left -= spare
    return tasks


def growth_text(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """As in `enrich 4 → 12 tasks`; those that give tasks back are named, too."""
    changed = (name for name, count in after.items() if count != before.get(name))
    return ", ".join(f"{name} {before.get(name, 0)} → {after[name]} tasks" for name in changed)


def _ample(operator: Operator, needed: int) -> int:
    if not follows_use(operator):
        return operator.tasks
    return min(operator.tasks, max(FEWEST, FACTOR * needed))
