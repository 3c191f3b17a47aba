"""Defines a job in Python, in the style of `pyspark.pipelines`.

    from trilithon import pipelines as tp

    @tp.source(subscribe="clicks")
    def clicks():
        return "user STRING, url STRING, at TIMESTAMP"

    @tp.operator(parallelism=2)
    def hosts(clicks):
        return clicks.where("url IS NOT NULL").select("user", "parse_url(url, 'HOST') AS host")

    @tp.sink(topic="hosts")
    def out(hosts): ...

    job = tp.job("pageload", tenant="ads", slo=[tp.latency(p95="200 ms")])

Functions describe the job, they do not process rows: each is called once with `Rows` that record
its steps, and the names of its parameters are its inputs. The result is the same model as from a
YAML file, checked by the same rules. A problem points at the line of Python that caused it.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, overload

from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Job
from trilithon.model.utility import UTILITIES, Utilities
from trilithon.spec.job_builder import build_job

__all__ = [
    "Rows",
    "constraint",
    "definitions",
    "emission",
    "job",
    "juice",
    "latency",
    "operator",
    "sink",
    "source",
    "table",
    "throughput",
]

# A file and a line in it.
Location = tuple[str, int]
# Gives a problem the file and the line of the part that it is about.
Locate = Callable[[Problem], Problem]


@dataclass
class _Registry:
    """The definitions since the last call of `job`, in order, and the location of each part."""

    parts: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"sources": [], "operators": [], "sinks": [], "tables": []}
    )
    locations: dict[str, Location] = field(default_factory=dict)
    # The jobs of a scope, each with what finds the lines of its parts; None outside of a scope.
    built: "list[tuple[Job, Locate]] | None" = None

    def add(self, section: str, definition: dict[str, Any], location: Location) -> str:
        path = f"{section}[{len(self.parts[section])}]"
        self.parts[section].append(definition)
        self.locations[path] = location
        return path


_registry: ContextVar[_Registry] = ContextVar("trilithon_pipelines")


def _current() -> _Registry:
    try:
        return _registry.get()
    except LookupError:
        registry = _Registry()
        _registry.set(registry)
        return registry


@contextmanager
def definitions() -> "Iterator[list[tuple[Job, Locate]]]":
    """A scope for definitions: those outside are not visible inside, nor the other way round.
    Yields the list of its jobs, to which `job` adds.
    """
    built: list[tuple[Job, Locate]] = []
    token = _registry.set(_Registry(built=built))
    try:
        yield built
    finally:
        _registry.reset(token)


class Rows:
    """Records the steps that an operator applies to its rows."""

    def __init__(self, path: str, registry: _Registry) -> None:
        self._path, self._registry = path, registry
        self._work: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        steps = ", ".join(step for step in vars(Rows) if not step.startswith("_"))
        raise _invalid(
            "UNKNOWN_FIELD",
            self._path,
            f"Rows have no step {name!r}.",
            f"The steps are: {steps}. Name columns inside expressions.",
            _caller(),
        )

    def _set(self, part: str, value: Any) -> "Rows":
        location = _caller()
        if part in self._work:
            raise _invalid(
                "DUPLICATE_KEY",
                f"{self._path}.{part}",
                f"The operator has two `{part}` steps.",
                "Split it into two operators.",
                location,
            )
        self._work[part] = value
        self._registry.locations[f"{self._path}.{part}"] = location
        return self

    # Parameters have Spark's names.
    def watermark(self, eventTime: str, delayThreshold: str) -> "Rows":  # noqa: N803
        return self._set("watermark", {"eventTime": eventTime, "delayThreshold": delayThreshold})

    def join(self, table: str, on: str | Sequence[str], how: str = "inner") -> "Rows":
        return self._set("join", {"table": table, "on": _listed(on), "how": how})

    def where(self, condition: str) -> "Rows":
        return self._set("where", condition)

    filter = where

    def explode(self, **columns: str) -> "Rows":
        return self._set("explode", dict(columns))

    def select(self, *expressions: str) -> "Rows":
        return self._set("select", list(expressions))

    def deduplicate(self, *columns: str) -> "Rows":
        return self._set("deduplicate", list(columns))

    def group_by(self, *expressions: str) -> "Rows":
        return self._set("group_by", list(expressions))

    def window(
        self,
        timeColumn: str,  # noqa: N803
        windowDuration: str,  # noqa: N803
        slideDuration: str | None = None,  # noqa: N803
    ) -> "Rows":
        window = {"timeColumn": timeColumn, "windowDuration": windowDuration}
        if slideDuration is not None:
            window["slideDuration"] = slideDuration
        return self._set("window", window)

    def aggregate(self, **aggregates: str) -> "Rows":
        return self._set("aggregate", dict(aggregates))


Definition = Callable[..., Any]


def source(
    *bare: Definition,
    subscribe: str = "",
    name: str | None = None,
    partitions: int | None = None,
    metadata: Mapping[str, str] | None = None,
    **options: str | bool | float,
) -> Callable[[Definition], Definition]:
    """Define a Kafka source: the function returns the schema of its JSON values. `metadata` adds
    columns, each with the part of the Kafka record that it holds: `metadata={"at": "timestamp"}`.
    """
    _not_bare(bare, 'tp.source(subscribe="topic")')

    def define(function: Definition) -> Definition:
        location = _location_of(function)
        definition = {
            "name": name or function.__name__,
            "options": {"subscribe": subscribe, **options},
            "schema": function(),
        }
        if partitions is not None:
            definition["partitions"] = partitions
        if metadata is not None:
            definition["metadata"] = dict(metadata)
        _current().add("sources", definition, location)
        return function

    return define


def table(
    *bare: Definition, rows: Sequence[Sequence[Any]] = (), name: str | None = None
) -> Callable[[Definition], Definition]:
    """Define a small table to join with: the function returns its schema."""
    _not_bare(bare, "tp.table(rows=[…])")

    def define(function: Definition) -> Definition:
        location = _location_of(function)
        definition = {
            "name": name or function.__name__,
            "schema": function(),
            "rows": [_plain_row(row) for row in rows],
        }
        _current().add("tables", definition, location)
        return function

    return define


@overload
def operator(function: Definition) -> Definition: ...


@overload
def operator(
    *,
    name: str | None = None,
    parallelism: int | Mapping[str, int | str] | None = None,
    by_key: Mapping[str, Sequence[str]] | None = None,
    broadcast: Sequence[str] = (),
    profile: Mapping[str, Any] | None = None,
) -> Callable[[Definition], Definition]: ...


def operator(
    function: Definition | None = None,
    *,
    name: str | None = None,
    parallelism: int | Mapping[str, int | str] | None = None,
    by_key: Mapping[str, Sequence[str]] | None = None,
    broadcast: Sequence[str] = (),
    profile: Mapping[str, Any] | None = None,
) -> Any:
    """Define an operator: the parameters are its inputs, the returned rows record its steps.

    Works as a plain decorator or with keywords.
    """

    def define(function: Definition) -> Definition:
        location = _location_of(function)
        registry = _current()
        path = f"operators[{len(registry.parts['operators'])}]"
        inputs = _parameters(function)
        for option, grouped in (("by_key", by_key or {}), ("broadcast", broadcast)):
            if isinstance(grouped, str) or set(grouped) - set(inputs):
                raise _invalid(
                    "UNKNOWN_INPUT",
                    path,
                    f"`{option}` of {function.__name__} names {grouped!r}, not its inputs.",
                    f"Its inputs are: {', '.join(inputs)}.",
                    location,
                )
        rows = Rows(path, registry)
        result = function(*(rows for _ in inputs))
        if result is not rows and result is not None:
            raise _invalid(
                "WRONG_TYPE",
                path,
                f"{function.__name__} must return its rows.",
                "Return the result of the last step.",
                location,
            )
        definition: dict[str, Any] = {
            "name": name or function.__name__,
            "inputs": [_input(parent, by_key or {}, broadcast) for parent in inputs],
            **rows._work,  # noqa: SLF001 - Rows is defined in this module
        }
        if parallelism is not None:
            definition["parallelism"] = (
                dict(parallelism) if isinstance(parallelism, Mapping) else parallelism
            )
        if profile is not None:
            definition["profile"] = dict(profile)
        registry.add("operators", definition, location)
        return function

    return define if function is None else define(function)


def sink(
    *bare: Definition,
    topic: str = "",
    name: str | None = None,
    weight: float = 1.0,
    key: str | None = None,
    **options: str | bool | float,
) -> Callable[[Definition], Definition]:
    """Define a Kafka sink: the parameters of the function are its inputs. `key` is an expression
    for the records' key.
    """
    _not_bare(bare, 'tp.sink(topic="topic")')

    def define(function: Definition) -> Definition:
        location = _location_of(function)
        definition = {
            "name": name or function.__name__,
            "inputs": _parameters(function),
            "options": {"topic": topic, **options},
            "weight": weight,
        }
        if key is not None:
            definition["key"] = key
        _current().add("sinks", definition, location)
        return function

    return define


def latency(*, utility: str | Mapping[str, Any] = "knee", **bound: str) -> dict[str, Any]:
    """An upper bound on latency: `latency(p95="200 ms")`, `latency(mean="50 ms")`; `p99_9` is
    p99.9.
    """
    if len(bound) != 1:
        raise _invalid(
            "BAD_VALUE",
            "intent.slo",
            f"A latency threshold has one statistic, not {len(bound)}.",
            "Write latency(p95='200 ms').",
            _caller(),
        )
    ((statistic, at_most),) = bound.items()
    statistic = statistic.replace("_", ".")
    return {
        "metric": "latency",
        "statistic": statistic,
        "at_most": at_most,
        "utility": _plain(utility),
    }


def juice(*, at_least: float, utility: str | Mapping[str, Any] = "knee") -> dict[str, Any]:
    """A lower bound on juice: the share of the input that was processed, 0…1."""
    return {"metric": "juice", "at_least": at_least, "utility": _plain(utility)}


def throughput(*, at_least: float, utility: str | Mapping[str, Any] = "knee") -> dict[str, Any]:
    """A lower bound on the records per second that all sinks write together."""
    return {"metric": "throughput", "at_least": at_least, "utility": _plain(utility)}


def emission(*, at_least: float, utility: str | Mapping[str, Any] = "knee") -> dict[str, Any]:
    """A lower bound on the records per second that all sources emit together."""
    return {"metric": "emission", "at_least": at_least, "utility": _plain(utility)}


def constraint(*sequence: str, at_most: str, over: str = "10 seconds") -> dict[str, Any]:
    """A bound on the mean latency of a path: operators, and edges as `from->to`."""
    return {"sequence": list(sequence), "at_most": at_most, "over": over}


def job(
    name: str,
    *,
    tenant: str = "default",
    priority: float = 1.0,
    slo: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    constraints: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    bounds: Mapping[str, Any] | None = None,
    trigger: Mapping[str, str] | None = None,
    dead_letter_topic: str | None = None,
    utilities: Utilities = UTILITIES,
) -> Job:
    """Build a job of everything defined since the last call. Raises `InvalidJob` with every
    problem, each at the line where its part is defined.
    """
    registry, location = _current(), _caller()
    _registry.set(_Registry(built=registry.built))
    data: dict[str, Any] = {
        "tenant": tenant,
        "name": name,
        **registry.parts,
        "intent": {
            "priority": priority,
            "slo": _as_list(slo),
            "constraints": _as_list(constraints),
        },
    }
    optional = {"bounds": bounds, "trigger": trigger, "dead_letter_topic": dead_letter_topic}
    data |= {key: value for key, value in optional.items() if value is not None}

    def locate(problem: Problem) -> Problem:
        return _located(problem, registry, location)

    try:
        built = build_job(data, utilities)
    except InvalidJob as error:
        raise InvalidJob([locate(problem) for problem in error.problems], name) from None
    if registry.built is not None:
        registry.built.append((built, locate))
    return built


def _located(problem: Problem, registry: _Registry, job_location: Location) -> Problem:
    """The problem at the innermost part of its path whose location is known."""
    path = problem.path
    while path:
        if path in registry.locations:
            return problem.located(*registry.locations[path])
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return problem.located(*job_location)


def _input(name: str, by_key: Mapping[str, Sequence[str]], broadcast: Sequence[str]) -> Any:
    if name in by_key:
        return {"from": name, "grouping": "by_key", "key": _listed(by_key[name])}
    if name in broadcast:
        return {"from": name, "grouping": "broadcast"}
    return name


def _parameters(function: Definition) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        plain = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if not plain or parameter.default is not parameter.empty:
            raise _invalid(
                "BAD_VALUE",
                "",
                f"{function.__name__}: {str(parameter)!r} is not a plain input.",
                "Name an input in each parameter, without a default.",
                _location_of(function),
            )
    return [parameter.name for parameter in parameters]


def _as_list(items: Any) -> Any:
    """A list of one or several: a single threshold need not be written as a list."""
    if isinstance(items, Mapping):
        return [dict(items)]
    return [dict(item) if isinstance(item, Mapping) else item for item in items] if items else []


def _not_bare(functions: tuple[Definition, ...], example: str) -> None:
    if functions:
        raise _invalid(
            "MISSING_FIELD",
            "",
            "This decorator needs arguments: the topic or the rows.",
            f"Write @{example}.",
            _caller(),
        )


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _plain(utility: str | Mapping[str, Any]) -> Any:
    return utility if isinstance(utility, str) else dict(utility)


def _location_of(function: Definition) -> Location:
    code = getattr(function, "__code__", None)
    if code is None:
        raise _invalid(
            "WRONG_TYPE",
            "",
            f"{function!r} is not a function.",
            "Put the decorator on a function.",
            _caller(),
        )
    return code.co_filename, code.co_firstlineno


def _caller() -> Location:
    """The file and line of the innermost frame outside of this module."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to the line that the user wrote
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _invalid(code: str, path: str, message: str, hint: str, location: Location) -> InvalidJob:
    return InvalidJob([Problem(code, path, message, hint, *location)])


def _plain_row(row: Any) -> Any:
    return list(row) if isinstance(row, list | tuple) else row
