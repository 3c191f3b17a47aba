"""Builds a job of the model from the data of a job file, and collects every problem on the way."""

import difflib
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trilithon.errors import InvalidJob, Problem
from trilithon.model.intent import Constraint, Intent, Metric, Threshold, sequence_of
from trilithon.model.job import (
    Bounds,
    Edge,
    Field,
    Grouping,
    HeldTasks,
    Job,
    Join,
    Operator,
    Parallelism,
    Sink,
    Source,
    Table,
    TimeWindow,
    Watermark,
    Work,
)
from trilithon.model.profile import Distribution, Profile
from trilithon.model.utility import UTILITIES, Utilities, Utility
from trilithon.model.validation import validate
from trilithon.spec.column_check import check_columns
from trilithon.spec.column_schema import parse_schema
from trilithon.spec.durations import parse_milliseconds, parse_seconds
from trilithon.spec.fields import (
    MAPPING,
    PLAIN,
    InputSpec,
    IntentSpec,
    JobSpec,
    OperatorSpec,
    ProfileSpec,
    SinkSpec,
    ThresholdSpec,
)
from trilithon.spec.kafka_options import SINK_OPTIONS, SOURCE_OPTIONS, check_options

# Dropping an invalid field can reveal the next one; after this many passes validation gives up.
MAX_VALIDATION_PASSES: Final = 8
# Upper bound on reported field problems, for a file that is wrong throughout.
MAX_FIELD_PROBLEMS: Final = 200

# Problem codes of the file itself; `model.validation` has those of the job it describes.
CODES: Final[dict[str, str]] = {
    "AGGREGATE_NOT_HERE": "an aggregate function in an expression over single rows",
    "ANCHOR": "a YAML anchor, alias or merge",
    "BAD_COLUMN_NAME": "a column name with characters that are not allowed",
    "BAD_KEY": "a mapping key that is not a plain string, or is too long",
    "BAD_SCHEMA": "a schema that Spark cannot parse",
    "BAD_VALUE": "a value that its field does not accept",
    "COLUMNS_DIFFER": "inputs of one operator or sink with different columns",
    "DUPLICATE_KEY": "a key that occurs twice in one mapping",
    "EXPRESSION_NOT_ALLOWED": "SQL beyond a plain expression: a query, a comment, a parameter",
    "EXPRESSION_SYNTAX": "an expression that Spark cannot parse",
    "EXPRESSION_TOO_LONG": "an expression that is too long or too deeply nested",
    "RESULT_TOO_LARGE": "a function that would make more of a record than it may",
    "FILE_TOO_LARGE": "a file above 256 KiB",
    "FUNCTION_NOT_ALLOWED": "a function that is not on the list of allowed functions",
    "MISSING_FIELD": "a required field is missing",
    "NEEDS_ALIAS": "a computed column without `AS` and a name",
    "NOT_AN_AGGREGATE": "an entry of `aggregate` that does not give one value per group",
    "NOT_A_JOB": "a file that does not describe a job",
    "NOT_YAML": "a file that is not YAML in UTF-8",
    "OPTION_NOT_ALLOWED": "a Kafka option that a job may not set",
    "OPTION_LOSES_DATA": "a Kafka option with which records could be lost without a trace",
    "PYTHON_FAILED": "a job file in Python that raised an exception",
    "SEVERAL_DOCUMENTS": "more than one YAML document in a file",
    "STATE_GROWS": "an aggregate that keeps every value of a group, without a window",
    "TAG": "a YAML tag",
    "TOO_DEEP": "more than 32 levels of nesting",
    "TOO_MANY_NODES": "more than 10,000 values in a file",
    "UNKNOWN_COLUMN": "a column that the input does not have",
    "UNKNOWN_FIELD": "a field that a job file does not have",
    "WRONG_TYPE": "a value of the wrong type",
}


def build_job(data: Mapping[str, Any], utilities: Utilities = UTILITIES) -> Job:
    """Build the job that the data describes. Raises `InvalidJob` with every problem found.

    An invalid field is reported and dropped, so that the rest of the file is checked as well.
    Problems that only follow from the dropped field are not reported.
    """
    name = str(data.get("name", "the job"))
    spec, problems = _parse_spec(dict(data))
    if spec is None:
        raise InvalidJob(problems, name)
    invalid_nodes = {_node(problem.path) for problem in problems if problem.code != "UNKNOWN_FIELD"}
    job_problems: list[Problem] = []
    job = _job(spec, job_problems)
    job_problems += _option_problems(spec)
    job_problems += validate(job, utilities)
    bad_schema = any(problem.code == "BAD_SCHEMA" for problem in job_problems)
    if not bad_schema and not invalid_nodes:
        job_problems += check_columns(job)
    # A dropped input leaves its parents without a reader, which is not their fault.
    input_dropped = any(".input" in problem.path for problem in problems)
    consequences = {"DEAD_END", "CONSTRAINT_BROKEN"} if input_dropped else set()
    problems += [
        problem
        for problem in job_problems
        if _node(problem.path) not in invalid_nodes and problem.code not in consequences
    ]
    if problems:
        raise InvalidJob(problems, name)
    return job


def _parse_spec(data: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """The spec without its invalid fields, and the problems with those.

    The spec is None if a required field is missing.
    """
    problems: list[Problem] = []
    remaining = deepcopy(data)
    for _ in range(MAX_VALIDATION_PASSES):
        try:
            return JobSpec.model_validate(remaining), problems
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
        reported = {(problem.code, problem.path) for problem in problems}
        more = [_field_problem(detail) for detail in details[:MAX_FIELD_PROBLEMS]]
        problems += [problem for problem in more if (problem.code, problem.path) not in reported]
        if len(details) > MAX_FIELD_PROBLEMS or not all(_drop(remaining, d) for d in details):
            break
    return None, problems


def _drop(data: Any, detail: ErrorDetails) -> bool:
    """Remove the invalid field from the data; False if it cannot be removed."""
    keys = [key for key in detail["loc"] if key not in {PLAIN, MAPPING}]
    # An invalid list item is dropped together with the field that holds the list.
    while keys and isinstance(keys[-1], int):
        keys.pop()
    if not keys or detail["type"] == "missing":
        return False
    for key in keys[:-1]:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(data, dict) and data.pop(keys[-1], None) is not None


def _node(path: str) -> str:
    """The top-level part that a path lies in: `operators[2]`, `intent`, `name`."""
    return re.split(r"[.]", path, maxsplit=1)[0]


def _option_problems(spec: JobSpec) -> Iterator[Problem]:
    for i, source in enumerate(spec.sources):
        yield from check_options(source.options, SOURCE_OPTIONS, f"sources[{i}].options")
    for i, sink in enumerate(spec.sinks):
        yield from check_options(sink.options, SINK_OPTIONS, f"sinks[{i}].options")


def _job(spec: JobSpec, problems: list[Problem]) -> Job:
    def schema(written: str | dict[str, str], path: str) -> tuple[Field, ...]:
        try:
            return parse_schema(written)
        except ValueError as error:
            problems.append(Problem("BAD_SCHEMA", path, f"{_sentence(error)}.", ""))
            return ()

    return Job(
        tenant=spec.tenant,
        name=spec.name,
        sources=tuple(
            Source(
                source.name,
                schema(source.schema_, f"sources[{i}].schema"),
                _options(source.options),
                source.partitions,
                tuple(source.metadata.items()),
            )
            for i, source in enumerate(spec.sources)
        ),
        operators=tuple(_operator(operator) for operator in spec.operators),
        edges=tuple(edge for node in spec.operators for edge in _edges(node))
        + tuple(edge for node in spec.sinks for edge in _edges(node)),
        sinks=tuple(
            Sink(sink.name, _options(sink.options), sink.weight, sink.key) for sink in spec.sinks
        ),
        intent=intent_of(spec.intent),
        bounds=Bounds(
            spec.bounds.max_instances, spec.bounds.preserve_order, tuple(spec.bounds.fixed)
        ),
        tables=tuple(
            Table(
                table.name,
                schema(table.schema_, f"tables[{i}].schema"),
                None if table.rows is None else tuple(tuple(row) for row in table.rows),
                table.path,
                table.format,
            )
            for i, table in enumerate(spec.tables)
        ),
        batch_s=parse_seconds(spec.trigger.realTime),
        dead_letter_topic=spec.dead_letter_topic,
    )


def _options(written: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The options as Spark takes them: strings, with `true` and `false` for booleans."""
    return tuple(
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in written.items()
    )


def _edges(node: OperatorSpec | SinkSpec) -> Iterator[Edge]:
    inputs = ([] if node.input is None else [node.input]) + list(node.inputs)
    for input_ in inputs:
        if isinstance(input_, InputSpec):
            yield Edge(input_.from_, node.name, Grouping(input_.grouping), tuple(input_.key))
        else:
            yield Edge(input_, node.name)


def _operator(spec: OperatorSpec) -> Operator:
    wanted, work = spec.parallelism, _work(spec)
    if work.stateful and "parallelism" not in spec.model_fields_set:
        # State cannot be divided anew while it runs: by default there is room for growth.
        wanted = Parallelism().max
    if isinstance(wanted, int):
        parallelism = Parallelism(wanted, 1, max(wanted, Parallelism().max))
    else:
        tasks = None if wanted.tasks is None else HeldTasks(wanted.tasks)
        parallelism = Parallelism(wanted.initial, wanted.min, wanted.max, tasks)
    return Operator(spec.name, work, parallelism, profile_of(spec.profile))


def _work(spec: OperatorSpec) -> Work:
    watermark, join, window = spec.watermark, spec.join, spec.window
    return Work(
        watermark=Watermark(watermark.eventTime, parse_seconds(watermark.delayThreshold))
        if watermark
        else None,
        join=Join(join.table, tuple(join.on), join.how) if join else None,
        where=spec.where,
        explode=tuple(spec.explode.items()),
        select=tuple(spec.select),
        deduplicate=tuple(spec.deduplicate),
        group_by=tuple(spec.group_by),
        window=TimeWindow(
            window.timeColumn,
            parse_seconds(window.windowDuration),
            parse_seconds(window.slideDuration) if window.slideDuration is not None else None,
        )
        if window
        else None,
        aggregate=tuple(spec.aggregate.items()),
    )


def profile_of(spec: ProfileSpec | None) -> Profile | None:
    if spec is None:
        return None
    distribution = Distribution(spec.distribution) if spec.distribution else None
    return Profile(**spec.model_dump(exclude={"distribution"}), distribution=distribution)


def intent_of(spec: IntentSpec) -> Intent:
    return Intent(
        thresholds=tuple(_threshold(threshold) for threshold in spec.slo),
        priority=spec.priority,
        constraints=tuple(
            Constraint(
                sequence_of(c.sequence), parse_milliseconds(c.at_most), parse_seconds(c.over)
            )
            for c in spec.constraints
        ),
    )


def _threshold(spec: ThresholdSpec) -> Threshold:
    value = parse_milliseconds(spec.at_most) if spec.at_most is not None else spec.at_least
    return Threshold(Metric(spec.metric), float(value or 0), spec.statistic, _utility(spec))


def _utility(spec: ThresholdSpec) -> Utility:
    if isinstance(spec.utility, str):
        return Utility(spec.utility)
    params = spec.utility.model_dump(exclude_none=True, exclude={"function"})
    if "points" in params:
        params["points"] = tuple((float(x), float(y)) for x, y in params["points"])
    return Utility(spec.utility.function, params)


def _field_problem(detail: ErrorDetails) -> Problem:
    keys = [key for key in detail["loc"] if key not in {PLAIN, MAPPING}]
    path = path_of(keys)
    kind = detail["type"]
    if kind == "missing":
        return Problem("MISSING_FIELD", path, f"The field {keys[-1]!r} is missing.", "Add it.")
    if kind == "extra_forbidden":
        fields = _sibling_fields(detail["loc"])
        near = difflib.get_close_matches(str(keys[-1]), fields, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return Problem(
            "UNKNOWN_FIELD",
            path,
            f"There is no field {str(keys[-1])!r} here.",
            f"{hint}The fields are: {', '.join(fields)}.",
        )
    if kind == "value_error":
        return Problem("BAD_VALUE", path, f"{_sentence(detail['ctx']['error'])}.", "")
    bad_value = {"literal_error", "string_pattern_mismatch", "too_short", "string_too_short"}
    code = "BAD_VALUE" if kind in bad_value else "WRONG_TYPE"
    return Problem(code, path, f"{detail['input']!r:.80} is not valid here.", f"{detail['msg']}.")


def _sentence(error: object) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def path_of(keys: list[Any]) -> str:
    """`operators`, 2, `where` → `operators[2].where`."""
    path = ""
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else (f".{key}" if path else str(key))
    return path


def _sibling_fields(loc: tuple[int | str, ...]) -> list[str]:
    """The fields that are allowed in the mapping that holds the last key of `loc`."""
    model: Any = JobSpec
    for key in loc[:-1]:
        if isinstance(key, int) or key in {PLAIN, MAPPING}:
            continue
        annotation = next(
            field.annotation
            for name, field in model.model_fields.items()
            if key in {name, field.alias}
        )
        model = _model_within(annotation)
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_within(annotation: Any) -> Any:
    """The model inside `list[Model]`, `Model | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in (*getattr(annotation, "__args__", ()), getattr(annotation, "__origin__", None)):
        if part is not None and (model := _model_within(part)) is not None:
            return model
    return None
