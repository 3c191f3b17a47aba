"""A job written in Python, in the manner of `pyspark.pipelines`.

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

Functions describe, they do not compute: each is called once with a recorder in place of rows, and
the names of its parameters are its inputs. What comes out is the same model that a YAML file gives,
checked by the same rules; a problem points at the line of Python that it comes from.
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
    "job",
    "juice",
    "latency",
    "operator",
    "sink",
    "source",
    "table",
    "throughput",
]

Place = tuple[str, int]


@dataclass
class _Registry:
    """What was defined since the last job, in order, and where each part of it was written."""

    parts: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"sources": [], "operators": [], "sinks": [], "tables": []}
    )
    places: dict[str, Place] = field(default_factory=dict)

    def add(self, section: str, definition: dict[str, Any], place: Place) -> str:
        path = f"{section}[{len(self.parts[section])}]"
        self.parts[section].append(definition)
        self.places[path] = place
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
def definitions() -> Iterator[None]:
    """Definitions of their own: nothing from outside gets in, and nothing gets out."""
    token = _registry.set(_Registry())
    try:
        yield
    finally:
        _registry.reset(token)


class Rows:
    """What an operator does to its rows, written down step by step."""

    def __init__(self, path: str, registry: _Registry) -> None:
        self._path, self._registry = path, registry
        self._work: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        steps = ", ".join(step for step in vars(Rows) if not step.startswith("_"))
        raise _refused("UNKNOWN_FIELD", self._path, f"Rows have no step {name!r}.",
                       f"They have: {steps}. Columns are named in expressions.", _caller())  # fmt: skip

    def _set(self, part: str, value: Any) -> "Rows":
        place = _caller()
        if part in self._work:
            raise _refused("DUPLICATE_KEY", f"{self._path}.{part}", f"`{part}` is there twice.",
                           "Make two operators of it.", place)  # fmt: skip
        self._work[part] = value
        self._registry.places[f"{self._path}.{part}"] = place
        return self

    def watermark(self, eventTime: str, delayThreshold: str) -> "Rows":  # noqa: N803 - Spark's names
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
        written = {"timeColumn": timeColumn, "windowDuration": windowDuration}
        return self._set(
            "window",
            written if slideDuration is None else {**written, "slideDuration": slideDuration},
        )

    def aggregate(self, **aggregates: str) -> "Rows":
        return self._set("aggregate", dict(aggregates))


Definition = Callable[..., Any]


def source(
    *bare: Definition,
    subscribe: str = "",
    name: str | None = None,
    partitions: int | None = None,
    **options: str | bool | float,
) -> Callable[[Definition], Definition]:
    """A Kafka topic: the function returns the schema of its JSON values."""
    _not_bare(bare, 'tp.source(subscribe="topic")')

    def define(function: Definition) -> Definition:
        place = _place_of(function)
        definition = {
            "name": name or function.__name__,
            "options": {"subscribe": subscribe, **options},
            "schema": function(),
        }
        if partitions is not None:
            definition["partitions"] = partitions
        _current().add("sources", definition, place)
        return function

    return define


def table(
    *bare: Definition, rows: Sequence[Sequence[Any]] = (), name: str | None = None
) -> Callable[[Definition], Definition]:
    """A small table to join with: the function returns its schema."""
    _not_bare(bare, "tp.table(rows=[…])")

    def define(function: Definition) -> Definition:
        place = _place_of(function)
        definition = {
            "name": name or function.__name__,
            "schema": function(),
            "rows": [_plain_row(row) for row in rows],
        }
        _current().add("tables", definition, place)
        return function

    return define


@overload
def operator(function: Definition) -> Definition: ...


@overload
def operator(
    *,
    name: str | None = None,
    parallelism: int | Mapping[str, int] = 1,
    by_key: Mapping[str, Sequence[str]] | None = None,
    broadcast: Sequence[str] = (),
    profile: Mapping[str, Any] | None = None,
) -> Callable[[Definition], Definition]: ...


def operator(
    function: Definition | None = None,
    *,
    name: str | None = None,
    parallelism: int | Mapping[str, int] = 1,
    by_key: Mapping[str, Sequence[str]] | None = None,
    broadcast: Sequence[str] = (),
    profile: Mapping[str, Any] | None = None,
) -> Any:
    """A step, bare or with keywords: the parameters are its inputs, the result is its work."""

    def define(function: Definition) -> Definition:
        place = _place_of(function)
        registry = _current()
        path = f"operators[{len(registry.parts['operators'])}]"
        inputs = _parameters(function)
        for group in (by_key or {}, broadcast):
            if isinstance(group, str) or set(group) - set(inputs):
                raise _refused("UNKNOWN_INPUT", path, f"{function.__name__} groups by {group!r}.",
                               f"Name its inputs: {', '.join(inputs)}.", place)  # fmt: skip
        rows = Rows(path, registry)
        result = function(*(rows for _ in inputs))
        if result is not rows and result is not None:
            raise _refused("WRONG_TYPE", path, f"{function.__name__} must return its rows.",
                           "Return what the last step returned.", place)  # fmt: skip
        definition: dict[str, Any] = {
            "name": name or function.__name__,
            "inputs": [_input(one, by_key or {}, broadcast) for one in inputs],
            **rows._work,  # noqa: SLF001 - the recorder is ours
            "parallelism": dict(parallelism) if isinstance(parallelism, Mapping) else parallelism,
        }
        if profile is not None:
            definition["profile"] = dict(profile)
        registry.add("operators", definition, place)
        return function

    return define if function is None else define(function)


def sink(
    *bare: Definition,
    topic: str = "",
    name: str | None = None,
    weight: float = 1.0,
    **options: str | bool | float,
) -> Callable[[Definition], Definition]:
    """A Kafka topic that gets the rows: the parameters of the function are its inputs."""
    _not_bare(bare, 'tp.sink(topic="topic")')

    def define(function: Definition) -> Definition:
        place = _place_of(function)
        definition = {
            "name": name or function.__name__,
            "inputs": _parameters(function),
            "options": {"topic": topic, **options},
            "weight": weight,
        }
        _current().add("sinks", definition, place)
        return function

    return define


def latency(*, utility: str | Mapping[str, Any] = "knee", **bound: str) -> dict[str, Any]:
    """`latency(p95="200 ms")`, `latency(mean="50 ms")`; `p99_9` is p99.9."""
    if len(bound) != 1:
        raise _refused("BAD_VALUE", "intent.slo", "A latency has one statistic and one bound.",
                       "Write latency(p95='200 ms').", _caller())  # fmt: skip
    ((statistic, at_most),) = bound.items()
    statistic = statistic.replace("_", ".")
    return {
        "metric": "latency",
        "statistic": statistic,
        "at_most": at_most,
        "utility": _plain(utility),
    }


def juice(*, at_least: float, utility: str | Mapping[str, Any] = "knee") -> dict[str, Any]:
    return {"metric": "juice", "at_least": at_least, "utility": _plain(utility)}


def throughput(*, at_least: float, utility: str | Mapping[str, Any] = "knee") -> dict[str, Any]:
    return {"metric": "throughput", "at_least": at_least, "utility": _plain(utility)}


def constraint(*sequence: str, at_most: str, over: str = "10 seconds") -> dict[str, Any]:
    """The mean latency of a part of the job: operators, and edges as `from->to`."""
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
    """The job of everything defined since the last one. Raises `InvalidJob` with every problem, each
    at the line where its part was written.
    """
    registry, place = _current(), _caller()
    _registry.set(_Registry())
    data: dict[str, Any] = {
        "tenant": tenant,
        "name": name,
        **registry.parts,
        "intent": {
            "priority": priority,
            "slo": _several(slo),
            "constraints": _several(constraints),
        },
    }
    optional = {"bounds": bounds, "trigger": trigger, "dead_letter_topic": dead_letter_topic}
    data |= {key: value for key, value in optional.items() if value is not None}
    try:
        return build_job(data, utilities)
    except InvalidJob as error:
        raise InvalidJob(
            [_located(problem, registry, place) for problem in error.problems], name
        ) from None


def _located(problem: Problem, registry: _Registry, job_place: Place) -> Problem:
    """The problem at the innermost part of its path that was written somewhere."""
    path = problem.path
    while path:
        if path in registry.places:
            return problem.located(*registry.places[path])
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return problem.located(*job_place)


def _input(name: str, by_key: Mapping[str, Sequence[str]], broadcast: Sequence[str]) -> Any:
    if name in by_key:
        return {"from": name, "grouping": "by_key", "key": _listed(by_key[name])}
    if name in broadcast:
        return {"from": name, "grouping": "broadcast"}
    return name


def _parameters(function: Definition) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    for one in parameters:
        if one.kind is not one.POSITIONAL_OR_KEYWORD or one.default is not one.empty:
            raise _refused("BAD_VALUE", "", f"{function.__name__}: {str(one)!r} is not a plain input.",
                           "Its parameters are the names of its inputs.", _place_of(function))  # fmt: skip
    return [one.name for one in parameters]


def _several(given: Any) -> Any:
    """One or many: who writes one need not write a list."""
    if isinstance(given, Mapping):
        return [dict(given)]
    return [dict(g) if isinstance(g, Mapping) else g for g in given] if given else []


def _not_bare(given: tuple[Definition, ...], example: str) -> None:
    if given:
        raise _refused("MISSING_FIELD", "", "This decorator needs to know its topic or rows.",
                       f"Write @{example}.", _caller())  # fmt: skip


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _plain(utility: str | Mapping[str, Any]) -> Any:
    return utility if isinstance(utility, str) else dict(utility)


def _place_of(function: Definition) -> Place:
    code = getattr(function, "__code__", None)
    if code is None:
        raise _refused("WRONG_TYPE", "", f"{function!r} is not a function.",
                       "Put the decorator on a function.", _caller())  # fmt: skip
    return code.co_filename, code.co_firstlineno


def _caller() -> Place:
    """The file and line outside of this module that is being run."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to the line that the user wrote
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _refused(code: str, path: str, message: str, hint: str, place: Place) -> InvalidJob:
    return InvalidJob([Problem(code, path, message, hint, *place)])


def _plain_row(row: Any) -> Any:
    return list(row) if isinstance(row, list | tuple) else row
