"""Owns the two ways between a job file and the model: what a file means, and a job as a file."""

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

# A field that is left out may show another one that does not fit, but not for ever.
MOST_TRIES: Final = 8
# Of a file that is wrong throughout, that many problems with its form are enough.
MOST_PROBLEMS: Final = 200

# Codes of problems with the form of a file, beside those of the model.
CODES: Final[dict[str, str]] = {
    "AGGREGATE_NOT_HERE": "an aggregate function where single rows are meant",
    "ANCHOR": "a YAML anchor, alias or merge",
    "BAD_COLUMN_NAME": "a name with characters that a column's name should not have",
    "BAD_KEY": "a key of a mapping that is not a word",
    "BAD_SCHEMA": "a schema that Spark would not understand",
    "BAD_VALUE": "a value that is not what its field takes",
    "COLUMNS_DIFFER": "inputs of one operator that do not have the same columns",
    "DUPLICATE_KEY": "a key that stands twice in one mapping",
    "EXPRESSION_NOT_ALLOWED": "an expression that is more than an expression",
    "EXPRESSION_SYNTAX": "an expression that Spark would not understand",
    "EXPRESSION_TOO_LONG": "an expression that is too long or too deeply nested",
    "FILE_TOO_LARGE": "a file above 256 KiB",
    "FUNCTION_NOT_ALLOWED": "a function that is not on the list",
    "MISSING_FIELD": "a field that must be there",
    "NEEDS_ALIAS": "a result without a name",
    "NOT_AN_AGGREGATE": "a result of a group that is not one value",
    "NOT_A_JOB": "a file that does not describe a job",
    "NOT_YAML": "a file that is not YAML in UTF-8",
    "OPTION_NOT_ALLOWED": "an option that is not for a job to set",
    "PYTHON_FAILED": "a job file in Python that ended with an exception",
    "SEVERAL_DOCUMENTS": "more than one YAML document in a file",
    "TAG": "a YAML tag",
    "TOO_DEEP": "more than 32 levels",
    "TOO_MANY_NODES": "more than 10,000 values",
    "UNKNOWN_COLUMN": "a column that is not there",
    "UNKNOWN_FIELD": "a field that a job file does not have",
    "WRONG_TYPE": "a value of the wrong type",
}


def build_job(data: Mapping[str, Any], utilities: Utilities = UTILITIES) -> Job:
    """The job that a file describes. Raises `InvalidJob` with every problem there is.

    A field that does not fit is told and left out, so that the rest is looked at as well; what only
    follows from its absence is not told.
    """
    name = str(data.get("name", "the job"))
    form, problems = _form(dict(data))
    if form is None:
        raise InvalidJob(problems, name)
    broken = {_node(problem.path) for problem in problems if problem.code != "UNKNOWN_FIELD"}
    found: list[Problem] = []
    job = _job(form, found)
    found += _option_problems(form)
    found += validate(job, utilities)
    if not any(problem.code == "BAD_SCHEMA" for problem in found) and not broken:
        found += check_columns(job)
    # An input that was left out leaves others without a reader, which is not their fault.
    loose = (
        {"DEAD_END", "CONSTRAINT_BROKEN"}
        if any(".input" in problem.path for problem in problems)
        else set()
    )
    problems += [
        problem
        for problem in found
        if _node(problem.path) not in broken and problem.code not in loose
    ]
    if problems:
        raise InvalidJob(problems, name)
    return job


def _form(data: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """The form of some data without the fields that do not fit, and what was wrong with them.

    None when something is missing that a job cannot be without.
    """
    problems: list[Problem] = []
    rest = deepcopy(data)
    for _ in range(MOST_TRIES):
        try:
            return JobSpec.model_validate(rest), problems
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
        known = {(problem.code, problem.path) for problem in problems}
        more = [_form_problem(detail) for detail in details[:MOST_PROBLEMS]]
        problems += [problem for problem in more if (problem.code, problem.path) not in known]
        if len(details) > MOST_PROBLEMS or not all(_leave_out(rest, d) for d in details):
            break
    return None, problems


def _leave_out(data: Any, detail: ErrorDetails) -> bool:
    """Takes the field at fault out of the data; false if there is none to take."""
    place = [part for part in detail["loc"] if part not in {PLAIN, MAPPING}]
    # What stands in a list is left out with the field that holds the list.
    while place and isinstance(place[-1], int):
        place.pop()
    if not place or detail["type"] == "missing":
        return False
    for part in place[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(data, dict) and data.pop(place[-1], None) is not None


def _node(path: str) -> str:
    """The part of the file that a path lies in: `operators[2]`, `intent`, `name`."""
    return re.split(r"[.]", path, maxsplit=1)[0]


def _option_problems(form: JobSpec) -> Iterator[Problem]:
    for i, source in enumerate(form.sources):
        yield from check_options(source.options, SOURCE_OPTIONS, f"sources[{i}].options")
    for i, sink in enumerate(form.sinks):
        yield from check_options(sink.options, SINK_OPTIONS, f"sinks[{i}].options")


def _job(form: JobSpec, problems: list[Problem]) -> Job:
    def schema(written: str | dict[str, str], path: str) -> tuple[Field, ...]:
        try:
            return parse_schema(written)
        except ValueError as error:
            problems.append(Problem("BAD_SCHEMA", path, f"{_sentence(error)}.", ""))
            return ()

    return Job(
        tenant=form.tenant,
        name=form.name,
        sources=tuple(
            Source(
                source.name,
                schema(source.schema_, f"sources[{i}].schema"),
                _options(source.options),
                source.partitions,
            )
            for i, source in enumerate(form.sources)
        ),
        operators=tuple(_operator(operator) for operator in form.operators),
        edges=tuple(edge for node in form.operators for edge in _edges(node))
        + tuple(edge for node in form.sinks for edge in _edges(node)),
        sinks=tuple(Sink(sink.name, _options(sink.options), sink.weight) for sink in form.sinks),
        intent=intent_of(form.intent),
        bounds=Bounds(
            form.bounds.max_instances, form.bounds.preserve_order, tuple(form.bounds.fixed)
        ),
        tables=tuple(
            Table(
                table.name,
                schema(table.schema_, f"tables[{i}].schema"),
                None if table.rows is None else tuple(tuple(row) for row in table.rows),
                table.path,
                table.format,
            )
            for i, table in enumerate(form.tables)
        ),
        batch_s=parse_seconds(form.trigger.realTime),
        dead_letter_topic=form.dead_letter_topic,
    )


def _options(written: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """As Spark takes them: everything is text, and true is `true`."""
    return tuple(
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in written.items()
    )


def _edges(node: OperatorSpec | SinkSpec) -> Iterator[Edge]:
    written = ([] if node.input is None else [node.input]) + list(node.inputs)
    for one in written:
        if isinstance(one, InputSpec):
            yield Edge(one.from_, node.name, Grouping(one.grouping), tuple(one.key))
        else:
            yield Edge(one, node.name)


def _operator(form: OperatorSpec) -> Operator:
    wanted = form.parallelism
    if isinstance(wanted, int):
        parallelism = Parallelism(wanted, 1, max(wanted, Parallelism().max))
    else:
        parallelism = Parallelism(wanted.initial, wanted.min, wanted.max)
    return Operator(form.name, _work(form), parallelism, profile_of(form.profile))


def _work(form: OperatorSpec) -> Work:
    late, table, window = form.watermark, form.join, form.window
    return Work(
        watermark=Watermark(late.eventTime, parse_seconds(late.delayThreshold)) if late else None,
        join=Join(table.table, tuple(table.on), table.how) if table else None,
        where=form.where,
        explode=tuple(form.explode.items()),
        select=tuple(form.select),
        deduplicate=tuple(form.deduplicate),
        group_by=tuple(form.group_by),
        window=TimeWindow(
            window.timeColumn,
            parse_seconds(window.windowDuration),
            parse_seconds(window.slideDuration) if window.slideDuration is not None else None,
        )
        if window
        else None,
        aggregate=tuple(form.aggregate.items()),
    )


def profile_of(form: ProfileSpec | None) -> Profile | None:
    if form is None:
        return None
    shape = Distribution(form.distribution) if form.distribution else None
    return Profile(**form.model_dump(exclude={"distribution"}), distribution=shape)


def intent_of(form: IntentSpec) -> Intent:
    return Intent(
        thresholds=tuple(_threshold(threshold) for threshold in form.slo),
        priority=form.priority,
        constraints=tuple(
            Constraint(
                sequence_of(c.sequence), parse_milliseconds(c.at_most), parse_seconds(c.over)
            )
            for c in form.constraints
        ),
    )


def _threshold(form: ThresholdSpec) -> Threshold:
    value = parse_milliseconds(form.at_most) if form.at_most is not None else form.at_least
    return Threshold(Metric(form.metric), float(value or 0), form.statistic, _utility(form))


def _utility(form: ThresholdSpec) -> Utility:
    if isinstance(form.utility, str):
        return Utility(form.utility)
    given = form.utility.model_dump(exclude_none=True, exclude={"function"})
    if "points" in given:
        given["points"] = tuple((float(x), float(y)) for x, y in given["points"])
    return Utility(form.utility.function, given)


def _form_problem(detail: ErrorDetails) -> Problem:
    place = [part for part in detail["loc"] if part not in {PLAIN, MAPPING}]
    path = path_of(place)
    kind = detail["type"]
    if kind == "missing":
        return Problem("MISSING_FIELD", path, f"The field {place[-1]!r} is missing.", "Add it.")
    if kind == "extra_forbidden":
        known = _known_fields(detail["loc"])
        near = difflib.get_close_matches(str(place[-1]), known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return Problem(
            "UNKNOWN_FIELD",
            path,
            f"There is no field {str(place[-1])!r} here.",
            f"{hint}The fields are: {', '.join(known)}.",
        )
    message = detail["msg"]
    if kind == "value_error":
        return Problem("BAD_VALUE", path, f"{_sentence(detail['ctx']['error'])}.", "")
    if kind in {"literal_error", "string_pattern_mismatch", "too_short", "string_too_short"}:
        return Problem("BAD_VALUE", path, f"{detail['input']!r:.80} does not fit.", f"{message}.")
    return Problem("WRONG_TYPE", path, f"{detail['input']!r:.80} does not fit.", f"{message}.")


def _sentence(error: object) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def path_of(place: list[Any]) -> str:
    """`operators`, 2, `where` → `operators[2].where`."""
    path = ""
    for part in place:
        path += f"[{part}]" if isinstance(part, int) else (f".{part}" if path else str(part))
    return path


def _known_fields(loc: tuple[int | str, ...]) -> list[str]:
    """The fields of the mapping in which an unknown one was found."""
    form: Any = JobSpec
    for part in loc[:-1]:
        if isinstance(part, int) or part in {PLAIN, MAPPING}:
            continue
        form = next(
            field.annotation
            for name, field in form.model_fields.items()
            if part in {name, field.alias}
        )
        form = _form_within(form)
    return [field.alias or name for name, field in form.model_fields.items()]


def _form_within(annotation: Any) -> Any:
    """The model inside `list[Model]`, `Model | None` and their like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in (*getattr(annotation, "__args__", ()), getattr(annotation, "__origin__", None)):
        if part is not None and (found := _form_within(part)) is not None:
            return found
    return None
