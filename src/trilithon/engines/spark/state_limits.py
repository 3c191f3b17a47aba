"""Says which uses of state Spark's real-time mode cannot run, each with an alternative. Pure."""

from collections.abc import Iterator

from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.errors import Problem
from trilithon.model.job import Job, Operator, Work


def unsupported_state(operator: Operator, path: str) -> Iterator[Problem]:
    """Every reason why this engine cannot keep an operator's state."""
    work = operator.work
    if not work.stateful:
        return
    for part, text in _other_steps(work).items():
        yield _problem(
            f"{path}.{part}",
            f"{operator.name!r} keeps state and has {text}. Records are divided by its keys before "
            "they reach it, so all its other work must be done by then.",
            f"Put `{part}` into an operator before it.",
        )
    for name, text in work.aggregate:
        if _distinct(text):
            yield _problem(
                f"{path}.aggregate.{name}",
                "Spark does not support DISTINCT in an aggregate over a stream.",
                "Use approx_count_distinct, or deduplicate in an operator before it.",
            )
    if work.deduplicate and work.watermark and work.watermark.event_time not in work.deduplicate:
        time = work.watermark.event_time
        yield _problem(
            f"{path}.deduplicate",
            f"Spark forgets a row only by an event time among these columns: without {time!r} the "
            "state would grow forever.",
            f"Add {time!r} to `deduplicate`: copies of a record have the same event time.",
        )
    if work.window and work.watermark and work.watermark.event_time != work.window.time_column:
        yield _problem(
            f"{path}.window.timeColumn",
            f"The windows are over {work.window.time_column!r}, the watermark over "
            f"{work.watermark.event_time!r}: it would never let go of a window's state.",
            "Use the same column in both.",
        )


def state_behind_state(job: Job) -> Iterator[Problem]:
    """Spark refuses an aggregate of rows that another aggregate updates. Behind a cut it would take
    them, but count those that a replay writes again, with other values, once more. A deduplication
    gives rows that a replay cannot change: behind a cut they may be counted. What an operator only
    looks up is no row that it gives.
    """
    graph = cut_into_parts(job)
    part_of = {operator.name: part.name for part in graph.parts for operator in part.operators}
    states = {operator.name: operator.work for operator in job.operators if operator.work.stateful}
    # Per node the operators with state before it.
    before: dict[str, set[str]] = {}
    tables = {job.broadcast_table(operator.name) for operator in job.operators}
    for name in job.order:
        parents = [edge.source for edge in job.parents[name] if edge not in tables]
        before[name] = {p for p in parents if p in states}.union(*(before[p] for p in parents))
        if name not in states:
            continue
        path = f"operators[{next(i for i, o in enumerate(job.operators) if o.name == name)}]"
        for other in sorted(before[name]):
            if part_of[other] == part_of[name]:
                why = f"{name!r} keeps state behind {other!r}, which keeps state, too: a query has "
                yield _problem(path, f"{why}one operator that does.", _separate(other, name))
            elif states[other].aggregate:
                why = f"{name!r} keeps state behind the aggregate {other!r}, which gives a row for "
                text = f"{why}each change of a group, and after a crash some of them again."
                yield _problem(path, text, _separate(other, name))


def _separate(before: str, behind: str) -> str:
    return (
        f"Compute both in one operator, or let {before!r} write to a topic, and let {behind!r} "
        "read it in a separate job."
    )


def _other_steps(work: Work) -> dict[str, str]:
    steps = {"join": work.join, "where": work.where, "explode": work.explode, "select": work.select}
    return {name: f"`{name}`" for name, step in steps.items() if step}


def _distinct(text: str) -> bool:
    try:
        tokens = Spark().tokenize(text)
    except SqlglotError:
        return False  # reported where expressions are checked
    return any(token.token_type is TokenType.DISTINCT for token in tokens)


def _problem(path: str, message: str, hint: str) -> Problem:
    return Problem("STATEFUL_OPERATOR", path, message, hint)
