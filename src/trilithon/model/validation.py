"""Validates a job against the rules of its graph, its operators and its intent.

All broken rules are reported together, each with its path in the job file.
"""

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
# More than any cluster holds: larger numbers are typing errors.
MAX_INSTANCES: Final = 10_000
SECTIONS: Final = {
    NodeKind.SOURCE: "sources",
    NodeKind.OPERATOR: "operators",
    NodeKind.SINK: "sinks",
}

# Every problem code of a job. docs/reference/problems.md lists them, and a test compares.
CODES: Final[dict[str, str]] = {
    "BAD_NAME": "a name with characters that are not allowed in topics and paths",
    "BAD_TOPIC": "a Kafka topic that is missing or has an illegal name",
    "BATCH_TOO_SHORT": "a batch that is shorter than Spark's real-time mode allows",
    "BOUNDS_CROSSED": "a minimum above a maximum, or an initial value outside of them",
    "CONSTRAINT_BROKEN": "a constraint whose sequence is not a path through the job",
    "CYCLE": "a graph with a cycle",
    "DEAD_END": "an operator or source whose output reaches no sink",
    "DUPLICATE_EDGE": "an input that is named twice",
    "DUPLICATE_NAME": "a name that is used twice",
    "FEEDBACK_TOPIC": "a sink that writes to a topic which the same job reads",
    "INCOMPLETE_WORK": "a part of an operator or table without another part that it needs",
    "KEY_MISMATCH": "a key without `grouping: by_key`, or the other way round",
    "NO_INPUT": "an operator or a sink without an input",
    "NO_SINK": "a job without a sink",
    "NO_SOURCE": "a job without a source",
    "OUT_OF_RANGE": "a number outside of its range",
    "UNKNOWN_INPUT": "an input that is neither a source nor an operator",
    "UNKNOWN_OPERATOR": "an operator that the job does not have",
    "UNKNOWN_TABLE": "a join with a table that the job does not define",
    "UNKNOWN_TARGET": "an edge to something that is neither an operator nor a sink",
    "UNKNOWN_UTILITY": "a utility function that is not registered",
    "UTILITY_PARAMETERS": "a utility function or a statistic with invalid parameters",
}


def validate(job: Job, utilities: Utilities = UTILITIES) -> tuple[Problem, ...]:
    """Every problem of a job; empty if it is valid."""
    rules = (_operators, _tables, _topics)
    problems = tuple(problem for rule in rules for problem in rule(job))
    return validate_shape(job, utilities) + problems


def validate_shape(job: Job, utilities: Utilities = UTILITIES) -> tuple[Problem, ...]:
    """Problems of names, graph and intent: what measures need to know of a job."""
    rules = (_names, _ends, _edges, _graph)
    problems = tuple(problem for rule in rules for problem in rule(job))
    return problems + tuple(_intent(job, utilities))


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
                f"The name {name!r} is used twice.",
                "Choose another: the names of sources, operators and sinks must differ.",
            )
    tables: set[str] = set()
    for i, table in enumerate(job.tables):
        path = f"tables[{i}].name"
        named.append((path, table.name))
        if table.name in tables:
            message = f"Two tables have the name {table.name!r}."
            yield Problem("DUPLICATE_NAME", path, message, "Rename one of them.")
        tables.add(table.name)
    for path, name in named:
        if not NAME.fullmatch(name):
            yield Problem(
                "BAD_NAME",
                path,
                f"{name!r} is not a valid name.",
                "Use at most 63 lower-case letters, digits, - and _, beginning with a letter.",
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
                "Only operators and sinks have inputs.",
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
                "Add `key`, a list of columns, or set `grouping: shuffle`.",
            )
        if edge.key and edge.grouping is not Grouping.BY_KEY:
            yield Problem(
                "KEY_MISMATCH",
                path,
                f"A key is given, but the grouping is {edge.grouping.value}.",
                "Set `grouping: by_key` or remove the key.",
            )


def _graph(job: Job) -> Iterator[Problem]:
    kinds = dict(job.nodes())
    for i, operator in enumerate(job.operators):
        if not job.parents[operator.name]:
            yield _no_input(f"operators[{i}]", operator.name)
    for i, sink in enumerate(job.sinks):
        if not job.parents[sink.name]:
            yield _no_input(f"sinks[{i}]", sink.name)
    ordered = set(job.order)
    unordered = [name for name in kinds if name not in ordered]
    if unordered:
        cycle = _cycle(job, unordered)
        yield Problem(
            "CYCLE",
            "operators",
            f"The graph has a cycle: {' -> '.join(cycle)}.",
            "Remove one of these inputs.",
        )
    reaching_sink: set[str] = set()
    to_visit = [sink.name for sink in job.sinks]
    while to_visit:
        reaching_sink.add(name := to_visit.pop())
        parents = (edge.source for edge in job.parents.get(name, ()))
        to_visit += [parent for parent in parents if parent not in reaching_sink]
    position: Counter[NodeKind] = Counter()
    for name, kind in job.nodes():
        path = f"{SECTIONS[kind]}[{position[kind]}]"
        position[kind] += 1
        if name not in reaching_sink and name in ordered:
            yield Problem(
                "DEAD_END",
                path,
                f"The output of {name!r} reaches no sink.",
                f"Make it the input of an operator or sink, or remove {name!r}.",
            )


def _no_input(path: str, name: str) -> Problem:
    return Problem("NO_INPUT", path, f"{name!r} has no input.", "Set `input`.")


def _cycle(job: Job, unordered: list[str]) -> list[str]:
    """One cycle among the nodes that are not in the topological order."""
    walk = [unordered[0]]
    while True:
        parent = next(edge.source for edge in job.parents[walk[-1]] if edge.source in unordered)
        if parent in walk:
            return [parent, *reversed(walk[walk.index(parent) :])]
        walk.append(parent)


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
            f"The job starts with {job.instances} instances, more than `max_instances` ({limit}).",
            "Raise the limit or lower the operators' parallelism.",
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
            f"A batch of {job.batch_s:g} s is shorter than Spark's minimum of {MIN_BATCH_S:g} s.",
            "Use a few minutes; the latency does not depend on it.",
        )


def _parallelism(operator: Operator, path: str) -> Iterator[Problem]:
    wanted = operator.parallelism
    if not 1 <= min(wanted.initial, wanted.min, wanted.max) <= wanted.max <= MAX_INSTANCES:
        yield Problem(
            "OUT_OF_RANGE",
            path,
            f"The parallelism of an operator must lie between 1 and {MAX_INSTANCES}.",
            "Correct initial, min or max.",
        )
    elif not wanted.min <= wanted.initial <= wanted.max:
        yield Problem(
            "BOUNDS_CROSSED",
            path,
            f"initial ({wanted.initial}) must lie between min ({wanted.min}) and max "
            f"({wanted.max}).",
            "Set min ≤ initial ≤ max.",
        )


def _work(work: Work, path: str) -> Iterator[Problem]:
    yield from _incomplete_work(work, path)
    if work.window:
        slide = work.window.slide_s
        if work.window.duration_s <= 0 or (slide is not None and slide <= 0):
            message = "The durations of a window must be above 0."
            yield Problem("OUT_OF_RANGE", f"{path}.window", message, "Use 1 second or more.")
        elif slide is not None and slide > work.window.duration_s:
            yield Problem(
                "OUT_OF_RANGE",
                f"{path}.window.slideDuration",
                "slideDuration is larger than windowDuration: records in between would be lost.",
                "Set slideDuration ≤ windowDuration.",
            )
    if work.watermark and work.watermark.delay_s < 0:
        path = f"{path}.watermark.delayThreshold"
        yield Problem(
            "OUT_OF_RANGE", path, "The delay must not be negative.", "Use 0 seconds or more."
        )


def _incomplete_work(work: Work, path: str) -> Iterator[Problem]:
    def incomplete(part: str, message: str, hint: str) -> Problem:
        return Problem("INCOMPLETE_WORK", f"{path}.{part}", message, hint)

    if work.window and not work.aggregate:
        yield incomplete("window", "`window` needs `aggregate`.", "Add `aggregate`.")
    if work.group_by and not work.aggregate:
        hint = "Add `aggregate`, or use `deduplicate` for distinct values."
        yield incomplete("group_by", "`group_by` needs `aggregate`.", hint)
    if work.aggregate and not (work.group_by or work.window):
        message = "`aggregate` without a group would aggregate the whole unbounded stream."
        yield incomplete("aggregate", message, "Add `group_by`, `window`, or both.")
    for part, present in (("window", work.window), ("deduplicate", work.deduplicate)):
        if present and not work.watermark:
            message = f"`{part}` without a watermark keeps its state forever."
            hint = "Add `watermark` with `eventTime` and `delayThreshold`."
            yield incomplete(part, message, hint)
    if work.aggregate and work.deduplicate:
        message = "An operator cannot have both `deduplicate` and `aggregate`."
        yield incomplete("deduplicate", message, "Split it into two operators.")


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
    hints = {
        "cpu_share": "Use a number from 0 (all waiting) to 1 (all CPU).",
        "hot_key": "Use the part of the records that one key has, from 0 to 1.",
    }
    for name, hint in hints.items():
        value = getattr(profile, name)
        if value is not None and not 0 <= value <= 1:
            message = f"{value:g} does not lie between 0 and 1."
            yield Problem("OUT_OF_RANGE", f"{path}.{name}", message, hint)


def _tables(job: Job) -> Iterator[Problem]:
    tables = {table.name for table in job.tables}
    for i, table in enumerate(job.tables):
        if (table.rows is None) == (table.path is None):
            message = "A table needs either `rows` or `path`."
            yield Problem(
                "INCOMPLETE_WORK", f"tables[{i}]", message, "Give exactly one of the two."
            )
        for j, row in enumerate(table.rows or ()):
            if len(row) != len(table.schema):
                yield Problem(
                    "OUT_OF_RANGE",
                    f"tables[{i}].rows[{j}]",
                    f"The row has {len(row)} values, the schema has {len(table.schema)} columns.",
                    "Give one value per column.",
                )
    for i, operator in enumerate(job.operators):
        broadcast = {
            edge.source
            for edge in job.parents.get(operator.name, ())
            if edge.grouping is Grouping.BROADCAST
        }
        known = tables | broadcast
        if operator.work.join and operator.work.join.table not in known:
            yield Problem(
                "UNKNOWN_TABLE",
                f"operators[{i}].join.table",
                f"{operator.work.join.table!r} is no table of the job and no broadcast input.",
                f"Define it under `tables`, or use one of: {', '.join(sorted(known)) or 'none'}.",
            )


def _topics(job: Job) -> Iterator[Problem]:
    read: set[str] = set()
    for i, source in enumerate(job.sources):
        path = f"sources[{i}].options.subscribe"
        if not source.topics:
            message = f"The source {source.name!r} has no topic."
            yield Problem("BAD_TOPIC", path, message, "Name one in `subscribe`.")
        for topic in source.topics:
            read.add(topic)
            if not TOPIC.fullmatch(topic):
                yield _bad_topic(path, topic)
        if source.partitions is not None and source.partitions < 1:
            path = f"sources[{i}].partitions"
            hint = "Use 1 or more, or leave it out."
            yield Problem("OUT_OF_RANGE", path, "A topic has at least 1 partition.", hint)
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
                f"The job writes to the topic {topic!r}, which it also reads.",
                "Write to another topic: the job would read its own output forever.",
            )
    for i, sink in enumerate(job.sinks):
        if not 0 <= sink.weight < math.inf:
            message = f"The weight {sink.weight:g} is negative or infinite."
            yield Problem("OUT_OF_RANGE", f"sinks[{i}].weight", message, "Use 0 or more.")


def _bad_topic(path: str, topic: str) -> Problem:
    return Problem(
        "BAD_TOPIC",
        path,
        f"{topic!r} is not a valid name of a Kafka topic.",
        "Use 1 to 249 letters, digits, '.', '_' and '-'.",
    )


def _intent(job: Job, utilities: Utilities) -> Iterator[Problem]:
    if not 0 < job.intent.priority < math.inf:
        yield Problem(
            "OUT_OF_RANGE",
            "intent.priority",
            f"The priority must be above 0, but is {job.intent.priority:g}.",
            "The default is 1; a job of priority 7 is worth seven times as much.",
        )
    for i, threshold in enumerate(job.intent.thresholds):
        yield from _threshold(threshold, f"intent.slo[{i}]", utilities)
    for i, constraint in enumerate(job.intent.constraints):
        yield from _constraint(job, constraint, f"intent.constraints[{i}]")


def _threshold(threshold: Threshold, path: str, utilities: Utilities) -> Iterator[Problem]:
    if not 0 < threshold.value < math.inf:
        message = f"The threshold must be above 0, but is {threshold.value:g}."
        yield Problem("OUT_OF_RANGE", path, message, "Use a number above 0.")
        return
    if threshold.metric is Metric.JUICE and threshold.value > 1:
        yield Problem(
            "OUT_OF_RANGE",
            path,
            f"A threshold on juice must not exceed 1, but is {threshold.value:g}.",
            "Juice is the share of the input that was processed: use a number up to 1.",
        )
    if threshold.statistic is not None and threshold.metric is not Metric.LATENCY:
        yield Problem(
            "UTILITY_PARAMETERS",
            f"{path}.statistic",
            f"`statistic` is allowed for latency only, not for {threshold.metric.value}.",
            "Remove it.",
        )
        return
    try:
        _ = threshold.quantile  # raises InvalidIntent for an unknown statistic
        utilities.check(threshold.utility, threshold.value, threshold.sense)
    except NotFound as error:
        yield Problem("UNKNOWN_UTILITY", f"{path}.utility", error.message, error.hint)
    except InvalidIntent as error:
        yield Problem("UTILITY_PARAMETERS", path, error.message, error.hint)


def _constraint(job: Job, constraint: Constraint, path: str) -> Iterator[Problem]:
    if not (0 < constraint.mean_latency_ms < math.inf and 0 < constraint.over_s < math.inf):
        message = "`at_most` and `over` of a constraint must be above 0."
        yield Problem("OUT_OF_RANGE", path, message, "Use durations above 0.")
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
            # Two edges in a row would skip the operator between them.
            yield Problem(
                "CONSTRAINT_BROKEN",
                f"{path}.sequence",
                f"{str(after)!r} does not follow {str(before)!r} in the job.",
                "Name a path: operators and the edges between them, in order.",
            )
    if not constraint.sequence:
        hint = "Name operators, or edges as `from->to`."
        yield Problem("CONSTRAINT_BROKEN", f"{path}.sequence", "The sequence is empty.", hint)


def edge_paths(job: Job) -> list[str]:
    """The path of each edge in the job file: an input of the node that reads it."""
    node_paths = {sink.name: f"sinks[{i}]" for i, sink in enumerate(job.sinks)}
    node_paths |= {operator.name: f"operators[{i}]" for i, operator in enumerate(job.operators)}
    inputs: Counter[str] = Counter()
    paths = []
    for edge in job.edges:
        node_path = node_paths.get(edge.target)
        paths.append("edges" if node_path is None else f"{node_path}.inputs[{inputs[edge.target]}]")
        inputs[edge.target] += 1
    return paths
