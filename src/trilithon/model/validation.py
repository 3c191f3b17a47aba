"""Owns the rules of a well-formed job. All broken ones are told at once, each with its place."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from trilithon.errors import InvalidIntent, NotFound, Problem
from trilithon.model.intent import Constraint, EdgeName, Metric, Threshold
from trilithon.model.job import Grouping, Job, NodeKind, Operator, Work
from trilithon.model.utility import UTILITIES, Utilities

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
MIN_BATCH_S: Final = 5.0
# Above what any cluster holds; it keeps a slip of the keyboard out of the sums.
MAX_INSTANCES: Final = 10_000
SECTIONS: Final = {
    NodeKind.SOURCE: "sources",
    NodeKind.OPERATOR: "operators",
    NodeKind.SINK: "sinks",
}

# Every code that a job can be refused with, and what it means. docs/reference/problems.md lists
# them; a test keeps the two the same.
CODES: Final[dict[str, str]] = {
    "BAD_NAME": "a name has characters that do not fit into topics and paths",
    "BAD_TOPIC": "a Kafka topic is missing or its name is not a legal one",
    "BATCH_TOO_SHORT": "a batch is shorter than Spark's real-time mode allows",
    "BOUNDS_CROSSED": "a minimum is above a maximum, or a start value outside of them",
    "CONSTRAINT_BROKEN": "the sequence of a constraint is not a path through the job",
    "CYCLE": "records could go round for ever",
    "DEAD_END": "what an operator or source produces reaches no sink",
    "DUPLICATE_EDGE": "an input is named twice",
    "DUPLICATE_NAME": "two things have the same name",
    "FEEDBACK_TOPIC": "a sink writes to a topic that the same job reads",
    "INCOMPLETE_WORK": "parts of an operator that only make sense together are not together",
    "KEY_MISMATCH": "a key without grouping by key, or the other way round",
    "NO_INPUT": "an operator or a sink reads from nothing",
    "NO_SINK": "a job without a sink",
    "NO_SOURCE": "a job without a source",
    "OUT_OF_RANGE": "a number outside of what it can be",
    "UNKNOWN_INPUT": "an input that is neither a source nor an operator",
    "UNKNOWN_OPERATOR": "an operator that the job does not have",
    "UNKNOWN_TABLE": "a join with a table that the job does not define",
    "UNKNOWN_TARGET": "an edge into something that is neither an operator nor a sink",
    "UNKNOWN_UTILITY": "a utility function that nobody registered",
    "UTILITY_PARAMETERS": "a utility function whose parameters make no sense",
}


def validate(job: Job, utilities: Utilities = UTILITIES) -> tuple[Problem, ...]:
    """Every broken rule, in the order of the file; empty for a good job."""
    rest = (_operators, _tables, _topics)
    more = tuple(problem for rule in rest for problem in rule(job))
    return validate_shape(job, utilities) + more


def validate_shape(job: Job, utilities: Utilities = UTILITIES) -> tuple[Problem, ...]:
    """The rules of names, graph and intent: all that measures need of a job."""
    rules = (_names, _ends, _edges, _shape)
    return tuple(problem for rule in rules for problem in rule(job)) + tuple(
        _intent(job, utilities)
    )


def _names(job: Job) -> Iterator[Problem]:
    named = [("tenant", job.tenant), ("name", job.name)]
    seen: Counter[str] = Counter()
    position: Counter[NodeKind] = Counter()
    for name, kind in job.nodes():
        path = f"{SECTIONS[kind]}[{position[kind]}].name"
        position[kind] += 1
        named.append((path, name))
        seen[name] += 1
        if seen[name] > 1:
            yield Problem(
                "DUPLICATE_NAME",
                path,
                f"The name {name!r} is taken.",
                "Sources, operators and sinks share one set of names: choose another.",
            )
    tables: set[str] = set()
    for i, table in enumerate(job.tables):
        named.append((f"tables[{i}].name", table.name))
        if table.name in tables:
            yield Problem(
                "DUPLICATE_NAME", f"tables[{i}].name", f"The name {table.name!r} is taken.",
                "Give each table a name of its own.",
            )  # fmt: skip
        tables.add(table.name)
    for path, name in named:
        if not NAME.fullmatch(name):
            yield Problem(
                "BAD_NAME",
                path,
                f"{name!r} is not a name.",
                "Use up to 63 lower-case letters, digits, - and _, beginning with a letter.",
            )


def _ends(job: Job) -> Iterator[Problem]:
    if not job.sources:
        yield Problem("NO_SOURCE", "sources", "The job reads nothing.", "Add a source.")
    if not job.sinks:
        yield Problem("NO_SINK", "sinks", "The job writes nothing.", "Add a sink.")


def _edges(job: Job) -> Iterator[Problem]:
    kinds = dict(job.nodes())
    inputs = sorted(name for name, kind in kinds.items() if kind is not NodeKind.SINK)
    seen: set[EdgeName] = set()
    for edge, path in zip(job.edges, edge_paths(job), strict=True):
        if kinds.get(edge.target, NodeKind.SOURCE) is NodeKind.SOURCE:
            what = "a source" if edge.target in kinds else "nothing in this job"
            yield Problem(
                "UNKNOWN_TARGET",
                path,
                f"{edge.source!r} is read by {edge.target!r}, which is {what}.",
                "Only operators and sinks read.",
            )
        if edge.source not in kinds or kinds[edge.source] is NodeKind.SINK:
            what = "a sink" if edge.source in kinds else "nothing in this job"
            yield Problem(
                "UNKNOWN_INPUT",
                path,
                f"{edge.target!r} reads {edge.source!r}, which is {what}.",
                f"Read one of: {', '.join(inputs)}.",
            )
        if edge.name in seen:
            yield Problem(
                "DUPLICATE_EDGE",
                path,
                f"{edge.target!r} reads {edge.source!r} twice.",
                "Name each input once.",
            )
        seen.add(edge.name)
        if edge.grouping is Grouping.BY_KEY and not edge.key:
            yield Problem(
                "KEY_MISMATCH",
                path,
                "Grouping by key needs a key.",
                "Add `key`, a list of columns, or group by shuffle.",
            )
        if edge.key and edge.grouping is not Grouping.BY_KEY:
            yield Problem(
                "KEY_MISMATCH",
                path,
                f"A key is given, but the grouping is {edge.grouping.value}.",
                "Set `grouping: by_key` or remove the key.",
            )


def _shape(job: Job) -> Iterator[Problem]:
    kinds = dict(job.nodes())
    for i, operator in enumerate(job.operators):
        if not job.parents[operator.name]:
            yield _no_input(f"operators[{i}]", operator.name)
    for i, sink in enumerate(job.sinks):
        if not job.parents[sink.name]:
            yield _no_input(f"sinks[{i}]", sink.name)
    ordered = set(job.order)
    stuck = [name for name in kinds if name not in ordered]
    if stuck:
        cycle = _cycle(job, stuck)
        yield Problem(
            "CYCLE",
            "operators",
            f"Records would go round: {' -> '.join(cycle)}.",
            "Remove one of these inputs.",
        )
    useful: set[str] = set()
    ahead = [sink.name for sink in job.sinks]
    while ahead:
        useful.add(name := ahead.pop())
        ahead += [edge.source for edge in job.parents.get(name, ()) if edge.source not in useful]
    position: Counter[NodeKind] = Counter()
    for name, kind in job.nodes():
        path = f"{SECTIONS[kind]}[{position[kind]}]"
        position[kind] += 1
        if name not in useful and name in ordered:
            yield Problem(
                "DEAD_END",
                path,
                f"What {name!r} produces reaches no sink.",
                "Let an operator or a sink read it, or remove it.",
            )


def _no_input(path: str, name: str) -> Problem:
    return Problem("NO_INPUT", path, f"{name!r} reads nothing.", "Name its `input`.")


def _cycle(job: Job, stuck: list[str]) -> list[str]:
    """One cycle among the nodes that no order could be found for."""
    walk = [stuck[0]]
    while True:
        before = next(edge.source for edge in job.parents[walk[-1]] if edge.source in stuck)
        if before in walk:
            return [before, *reversed(walk[walk.index(before) :])]
        walk.append(before)


def _operators(job: Job) -> Iterator[Problem]:
    for i, operator in enumerate(job.operators):
        yield from _parallelism(operator, f"operators[{i}].parallelism")
        yield from _work(operator.work, f"operators[{i}]")
        yield from _profile(operator, f"operators[{i}].profile")
    limit = job.bounds.max_instances
    if limit is not None and limit < job.instances:
        yield Problem(
            "BOUNDS_CROSSED",
            "bounds.max_instances",
            f"The job starts with {job.instances} instances and may have {limit}.",
            "Raise the bound or lower the operators' parallelism.",
        )
    names = {operator.name for operator in job.operators}
    for i, name in enumerate(job.bounds.fixed):
        if name not in names:
            yield Problem(
                "UNKNOWN_OPERATOR",
                f"bounds.fixed[{i}]",
                f"The job has no operator {name!r}.",
                f"It has: {', '.join(sorted(names)) or 'none'}.",
            )
    if not MIN_BATCH_S <= job.batch_s < math.inf:
        yield Problem(
            "BATCH_TOO_SHORT",
            "trigger.realTime",
            f"A batch of {job.batch_s:g} s is shorter than Spark's {MIN_BATCH_S:g} s.",
            "The latency does not depend on it: five minutes is a good length.",
        )


def _parallelism(operator: Operator, path: str) -> Iterator[Problem]:
    wanted = operator.parallelism
    if not 1 <= min(wanted.initial, wanted.min, wanted.max) <= wanted.max <= MAX_INSTANCES:
        yield Problem(
            "OUT_OF_RANGE",
            path,
            f"An operator has 1 to {MAX_INSTANCES} instances.",
            "Use a number between.",
        )
    elif not wanted.min <= wanted.initial <= wanted.max:
        yield Problem(
            "BOUNDS_CROSSED",
            path,
            f"{wanted.initial} instances do not lie between min {wanted.min} and max {wanted.max}.",
            "Set min ≤ initial ≤ max.",
        )


def _work(work: Work, path: str) -> Iterator[Problem]:
    if work.window and not work.aggregate:
        yield Problem(
            "INCOMPLETE_WORK", f"{path}.window", "A window without `aggregate` has no result.",
            "Add `aggregate`.",
        )  # fmt: skip
    if work.group_by and not work.aggregate:
        yield Problem(
            "INCOMPLETE_WORK", f"{path}.group_by", "`group_by` without `aggregate` has no result.",
            "Add `aggregate`, or `deduplicate` for distinct values.",
        )  # fmt: skip
    if work.aggregate and not (work.group_by or work.window):
        yield Problem(
            "INCOMPLETE_WORK", f"{path}.aggregate", "An aggregate over the whole endless stream.",
            "Add `group_by`, `window`, or both.",
        )  # fmt: skip
    for part, present in (("window", work.window), ("deduplicate", work.deduplicate)):
        if present and not work.watermark:
            yield Problem(
                "INCOMPLETE_WORK",
                f"{path}.{part}",
                f"`{part}` without a watermark keeps its state for ever.",
                "Add `watermark` with `eventTime` and `delayThreshold`.",
            )
    if work.aggregate and work.deduplicate:
        yield Problem(
            "INCOMPLETE_WORK",
            f"{path}.deduplicate",
            "`deduplicate` and `aggregate` keep two kinds of state.",
            "Make two operators of it.",
        )
    if work.window:
        slide = work.window.slide_s
        if work.window.duration_s <= 0 or (slide is not None and slide <= 0):
            yield Problem("OUT_OF_RANGE", f"{path}.window", "A window has a length.", "Use 1 second or more.")  # fmt: skip
        elif slide is not None and slide > work.window.duration_s:
            yield Problem(
                "OUT_OF_RANGE",
                f"{path}.window.slideDuration",
                "The window slides by more than its length: records between would be lost.",
                "Set slideDuration ≤ windowDuration.",
            )
    if work.watermark and work.watermark.delay_s < 0:
        yield Problem(
            "OUT_OF_RANGE", f"{path}.watermark.delayThreshold", "A delay cannot be negative.",
            "Use 0 seconds or more.",
        )  # fmt: skip


def _profile(operator: Operator, path: str) -> Iterator[Problem]:
    profile = operator.profile
    if profile is None:
        return
    for name in ("service_ms", "service_cv", "selectivity", "zipf", "state_bytes_per_key"):
        value = getattr(profile, name)
        if value is not None and not 0 <= value < math.inf:
            yield Problem(
                "OUT_OF_RANGE", f"{path}.{name}", f"{value:g} is below 0.", "Use 0 or more."
            )
    if profile.cpu_share is not None and not 0 <= profile.cpu_share <= 1:
        yield Problem(
            "OUT_OF_RANGE", f"{path}.cpu_share", f"{profile.cpu_share:g} is not a share.",
            "Use a number from 0 (all waiting) to 1 (all CPU).",
        )  # fmt: skip


def _tables(job: Job) -> Iterator[Problem]:
    tables = {table.name for table in job.tables}
    for i, table in enumerate(job.tables):
        if (table.rows is None) == (table.path is None):
            yield Problem(
                "INCOMPLETE_WORK", f"tables[{i}]", "A table has either `rows` or a `path`.",
                "Give exactly one of the two.",
            )  # fmt: skip
        for j, row in enumerate(table.rows or ()):
            if len(row) != len(table.schema):
                yield Problem(
                    "OUT_OF_RANGE",
                    f"tables[{i}].rows[{j}]",
                    f"The row has {len(row)} values, the schema {len(table.schema)} columns.",
                    "Give one value per column.",
                )
    for i, operator in enumerate(job.operators):
        if operator.work.join and operator.work.join.table not in tables:
            yield Problem(
                "UNKNOWN_TABLE",
                f"operators[{i}].join.table",
                f"The job defines no table {operator.work.join.table!r}.",
                f"Define it under `tables`, or use one of: {', '.join(sorted(tables)) or 'none'}.",
            )


def _topics(job: Job) -> Iterator[Problem]:
    read: set[str] = set()
    for i, source in enumerate(job.sources):
        path = f"sources[{i}].options.subscribe"
        if not source.topics:
            yield Problem("BAD_TOPIC", path, f"{source.name!r} reads no topic.", "Name one.")
        for topic in source.topics:
            read.add(topic)
            if not TOPIC.fullmatch(topic):
                yield _bad_topic(path, topic)
        if source.partitions is not None and source.partitions < 1:
            yield Problem(
                "OUT_OF_RANGE", f"sources[{i}].partitions", "A topic has at least 1 partition.",
                "Use 1 or more, or leave it out.",
            )  # fmt: skip
    written = [(f"sinks[{i}].options.topic", sink.topic) for i, sink in enumerate(job.sinks)]
    if job.dead_letter_topic is not None:
        written.append(("dead_letter_topic", job.dead_letter_topic))
    for path, topic in written:
        if not TOPIC.fullmatch(topic):
            yield _bad_topic(path, topic)
        elif topic in read:
            yield Problem(
                "FEEDBACK_TOPIC",
                path,
                f"The job reads the topic {topic!r} that it writes here.",
                "Write to another topic: its own output would come back for ever.",
            )
    for i, sink in enumerate(job.sinks):
        if not 0 <= sink.weight < math.inf:
            yield Problem("OUT_OF_RANGE", f"sinks[{i}].weight", "A weight is 0 or more.", "Use 1.")


def _bad_topic(path: str, topic: str) -> Problem:
    return Problem(
        "BAD_TOPIC",
        path,
        f"{topic!r} is not a Kafka topic.",
        "Use up to 249 letters, digits, '.', '_' and '-'.",
    )


def _intent(job: Job, utilities: Utilities) -> Iterator[Problem]:
    if not 0 < job.intent.priority < math.inf:
        yield Problem(
            "OUT_OF_RANGE", "intent.priority", f"{job.intent.priority:g} is not a priority.",
            "Use a number above 0; 1 is usual, 7 matters seven times more.",
        )  # fmt: skip
    for i, threshold in enumerate(job.intent.thresholds):
        yield from _threshold(threshold, f"intent.slo[{i}]", utilities)
    for i, constraint in enumerate(job.intent.constraints):
        yield from _constraint(job, constraint, f"intent.constraints[{i}]")


def _threshold(threshold: Threshold, path: str, utilities: Utilities) -> Iterator[Problem]:
    if not 0 < threshold.value < math.inf:
        yield Problem(
            "OUT_OF_RANGE", path, f"A threshold of {threshold.value:g} asks nothing.",
            "Use a number above 0.",
        )  # fmt: skip
        return
    if threshold.metric is Metric.JUICE and threshold.value > 1:
        yield Problem(
            "OUT_OF_RANGE", path, f"Juice of {threshold.value:g}: more than everything.",
            "Use a number up to 1: the share of what arrived that was processed.",
        )  # fmt: skip
    if threshold.statistic is not None and threshold.metric is not Metric.LATENCY:
        yield Problem(
            "UTILITY_PARAMETERS",
            f"{path}.statistic",
            f"`statistic` belongs to latency, not to {threshold.metric.value}.",
            "Remove it.",
        )
        return
    try:
        _ = threshold.quantile  # refuses a statistic that does not exist
        utilities.check(threshold.utility, threshold.value, threshold.sense)
    except NotFound as error:
        yield Problem("UNKNOWN_UTILITY", f"{path}.utility", error.message, error.hint)
    except InvalidIntent as error:
        yield Problem("UTILITY_PARAMETERS", path, error.message, error.hint)


def _constraint(job: Job, constraint: Constraint, path: str) -> Iterator[Problem]:
    if not (0 < constraint.mean_latency_ms < math.inf and 0 < constraint.over_s < math.inf):
        yield Problem(
            "OUT_OF_RANGE", path, "A constraint needs a latency and a span of time.",
            "Use numbers above 0.",
        )  # fmt: skip
    operators = {operator.name for operator in job.operators}
    edges = {edge.name for edge in job.edges}
    for part in constraint.sequence:
        if (part if isinstance(part, EdgeName) else None) in edges or part in operators:
            continue
        what = "edge" if isinstance(part, EdgeName) else "operator"
        yield Problem(
            "CONSTRAINT_BROKEN",
            f"{path}.sequence",
            f"The job has no {what} {str(part)!r}.",
            "Name operators, or edges as `from->to`.",
        )
        return
    for before, after in pairwise(constraint.sequence):
        leaves = before.target if isinstance(before, EdgeName) else before
        enters = after.source if isinstance(after, EdgeName) else after
        if leaves != enters or isinstance(before, str) == isinstance(after, str):
            # Two edges in a row would leave out the operator between them.
            yield Problem(
                "CONSTRAINT_BROKEN",
                f"{path}.sequence",
                f"{str(after)!r} does not follow {str(before)!r}.",
                "Name a path: operators and the edges between them, in order.",
            )
    if not constraint.sequence:
        yield Problem(
            "CONSTRAINT_BROKEN", f"{path}.sequence", "The sequence is empty.",
            "Name operators, or edges as `from->to`.",
        )  # fmt: skip


def edge_paths(job: Job) -> list[str]:
    """Where each edge stands in the file: below the node that reads it."""
    place = {sink.name: f"sinks[{i}]" for i, sink in enumerate(job.sinks)}
    place |= {operator.name: f"operators[{i}]" for i, operator in enumerate(job.operators)}
    count: Counter[str] = Counter()
    paths = []
    for edge in job.edges:
        where = place.get(edge.target)
        paths.append("edges" if where is None else f"{where}.inputs[{count[edge.target]}]")
        count[edge.target] += 1
    return paths
