"""Compares two versions of a job of several parts: which parts change, and whether their links do.

Pure. A part that does not change runs on. A part whose work changes is restarted from its
checkpoint. If the cuts change, or the columns that they carry, what waits in them was written
for the old version.
"""

from trilithon.engines.spark.cuts import PartJob
from trilithon.engines.spark.held_tasks import follows_use
from trilithon.engines.spark.part_planner import PlannedJob
from trilithon.engines.spark.state_partitions import check_same_state
from trilithon.errors import NeedsNewCheckpoint


def relinked(before: PlannedJob, after: PlannedJob) -> bool:
    """Whether the version has other parts or other cuts, or other columns in them."""
    return _links(before) != _links(after)


def changed_parts(before: PlannedJob, after: PlannedJob) -> list[PartJob]:
    """The parts of the new version whose queries differ from those that run."""
    old = before.by_id
    return [part for part in after.parts if _query(part) != _query(old[part.id])]


def check_same_sources(before: PlannedJob, after: PlannedJob) -> None:
    """Raises `NeedsNewCheckpoint` if a part that reads sources has no checkpoint with offsets of
    them all.
    """
    old = before.by_id
    for part in after.parts:
        own = [source.topics for source in part.sources if not _internal(part, source.name)]
        same = part.id in old and part.topics == old[part.id].topics
        if own and not same:
            raise NeedsNewCheckpoint(
                f"{part.id} reads other topics than before, or in another order: there is no "
                "checkpoint with its offsets.",
                "Delete the job and submit it again.",
            )


def check_same_states(before: PlannedJob, after: PlannedJob) -> None:
    """Raises `NeedsNewCheckpoint` if a part keeps another state than before, or reads other topics
    than those up to whose offsets its state holds.
    """
    old, new = before.by_id, after.by_id
    for name in sorted(old.keys() | new.keys()):
        parts = [planned[name] for planned in (old, new) if name in planned]
        if not any(operator.work.stateful for part in parts for operator in part.operators):
            continue
        if name not in old or name not in new:
            raise NeedsNewCheckpoint(
                f"{name} keeps state and {'is new' if name in new else 'is left out'}.",
                "Apply it with --anew: it then starts without state.",
            )
        check_same_state(old[name], new[name])
        if old[name].topics != new[name].topics:
            raise NeedsNewCheckpoint(
                f"{name} keeps state and would get other columns, or from other operators: its "
                "checkpoint does not fit.",
                "Apply it with --anew: it then starts without state.",
            )


def _internal(part: PartJob, source: str) -> bool:
    return source in part.reads and part.reads[source].internal


def _links(planned: PlannedJob) -> set[tuple[object, ...]]:
    return {(part.id, part.topics, tuple(s.topic for s in part.sinks)) for part in planned.parts}


def _query(part: PartJob) -> tuple[object, ...]:
    """What a part's query is made of. Intents, bounds and profiles are not in it."""
    operators = [(o.name, o.work, o.tasks, follows_use(o)) for o in part.operators]
    tables = {o.work.join.table for o in part.operators if o.work.join is not None}
    return (
        part.sources,
        operators,
        part.edges,
        part.sinks,
        {name: cut.partitions for name, cut in part.writes.items()},
        {name: (cut.aggregated, cut.table_key) for name, cut in part.reads.items()},
        {name: cut.table_key for name, cut in part.writes.items()},
        [table for table in part.tables if table.name in tables],
        part.batch_s,
        part.dead_letter_topic,
        part.bounds.preserve_order,
    )
