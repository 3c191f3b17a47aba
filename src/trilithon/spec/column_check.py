"""Owns the way of the columns through a job: which there are where, and who asks for others."""

from collections.abc import Iterator, Sequence

from trilithon.errors import Problem
from trilithon.model.job import Job, Operator, Work
from trilithon.model.validation import edge_paths
from trilithon.spec.sql_expressions import (
    COLUMN_NAME,
    ExpressionProblem,
    ParsedExpression,
    bad_column_name,
    parse_expression,
    unknown_columns,
)

Columns = tuple[str, ...]
# All expressions of a job together: far more than one needs, and a bound for the time it takes.
MAX_WORDS = 6000


def check_columns(job: Job) -> tuple[Problem, ...]:
    """Every expression that Spark would refuse for its form, its functions or its columns.

    What follows from a mistake is not told again: after an operator with a problem, the columns are
    not known, and neither is what reads them.
    """
    return tuple(_ColumnCheck(job).problems())


class _ColumnCheck:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.tables = {t.name: tuple(f.name for f in t.schema) for t in job.tables}
        # None: not known, because something before went wrong.
        self.columns: dict[str, Columns | None] = {
            source.name: tuple(field.name for field in source.schema) for source in job.sources
        }
        self.found: list[Problem] = []
        self.words = 0
        self.path = {edge.name: path for edge, path in zip(job.edges, edge_paths(job), strict=True)}

    def problems(self) -> Iterator[Problem]:
        place = {operator.name: i for i, operator in enumerate(self.job.operators)}
        ordered = set(self.job.order)
        for name in self.job.order:
            if name in place:
                before = len(self.found)
                columns = self._operator(self.job.operator(name), f"operators[{place[name]}]")
                broken = len(self.found) > before
                self.columns[name] = None if broken else columns
        # Operators on a cycle have no place in the order; their expressions are checked alone.
        for name, i in place.items():
            if name not in ordered:
                self._work(self.job.operator(name).work, f"operators[{i}]", None)
        for sink in self.job.sinks:
            self._inputs(sink.name)
        yield from self.found

    def _operator(self, operator: Operator, path: str) -> Columns | None:
        return self._work(operator.work, path, self._inputs(operator.name))

    def _inputs(self, name: str) -> Columns | None:
        """The columns of a node's input; several inputs must agree."""
        edges = self.job.parents[name]
        each = [self.columns.get(edge.source) for edge in edges]
        for edge, columns in zip(edges, each, strict=True):
            if columns is not None:
                self._complain(f"{self.path[edge.name]}.key", unknown_columns(edge.key, columns))
        known = [columns for columns in each if columns is not None]
        if len(known) < len(each) or not known:
            return None
        for edge, columns in zip(edges[1:], known[1:], strict=True):
            if _lower(columns) != _lower(known[0]):
                differing = sorted(_lower(columns) ^ _lower(known[0]))
                self.found.append(
                    Problem(
                        "COLUMNS_DIFFER",
                        self.path[edge.name],
                        f"{edge.source!r} and {edges[0].source!r} do not have the same columns: "
                        f"{', '.join(differing)}.",
                        "Let both select the same columns before they meet.",
                    )
                )
                return None
        return known[0]

    def _work(self, work: Work, path: str, columns: Columns | None) -> Columns | None:
        if work.watermark:
            self._need([work.watermark.event_time], columns, f"{path}.watermark.eventTime")
        if work.join:
            columns = self._join(work, path, columns)
        if work.where is not None:
            self._scalar(work.where, columns, f"{path}.where")
        for alias, text in work.explode:
            self._name(alias, f"{path}.explode.{alias}")
            self._scalar(text, columns, f"{path}.explode.{alias}")
            columns = None if columns is None else _with(columns, [alias])
        if work.select:
            columns = self._select(work.select, columns, path)
        self._need(work.deduplicate, columns, f"{path}.deduplicate")
        if work.aggregate:
            columns = self._aggregate(work, columns, path)
        return columns

    def _join(self, work: Work, path: str, columns: Columns | None) -> Columns | None:
        if work.join is None or (table := self.tables.get(work.join.table)) is None:
            return None
        self._need(work.join.on, columns, f"{path}.join.on")
        self._need(work.join.on, table, f"{path}.join.on")
        return None if columns is None else _with(columns, table)

    def _select(self, texts: Sequence[str], columns: Columns | None, path: str) -> Columns | None:
        chosen: list[str] = []
        for i, text in enumerate(texts):
            parsed = self._scalar(text, columns, f"{path}.select[{i}]")
            if parsed.star:
                chosen += columns or ()
            elif parsed.output is not None:
                chosen.append(parsed.output)
            elif not parsed.complaints:
                self._complain(f"{path}.select[{i}]", [_NEEDS_ALIAS])
        self._twice(chosen, f"{path}.select")
        return None if columns is None else tuple(chosen)

    def _aggregate(self, work: Work, columns: Columns | None, path: str) -> Columns | None:
        if work.window:
            self._need([work.window.time_column], columns, f"{path}.window.timeColumn")
        result: list[str] = ["window"] if work.window else []
        for i, text in enumerate(work.group_by):
            parsed = self._scalar(text, columns, f"{path}.group_by[{i}]")
            if parsed.output is not None:
                result.append(parsed.output)
            elif not parsed.complaints:
                self._complain(f"{path}.group_by[{i}]", [_NEEDS_ALIAS])
        for name, text in work.aggregate:
            place = f"{path}.aggregate.{name}"
            self._name(name, place)
            parsed = self._expression(text, columns, place)
            if not parsed.complaints and (not parsed.aggregates or parsed.bare_columns):
                self._complain(place, [_NOT_AN_AGGREGATE])
            result.append(name)
        self._twice(result, f"{path}.aggregate")
        return tuple(result)

    def _scalar(self, text: str, columns: Columns | None, path: str) -> ParsedExpression:
        parsed = self._expression(text, columns, path)
        if parsed.aggregates:
            self._complain(path, [_aggregate_not_here(parsed.aggregates)])
        return parsed

    def _expression(self, text: str, columns: Columns | None, path: str) -> ParsedExpression:
        if self.words > MAX_WORDS:
            return ParsedExpression((_TOO_MUCH,))
        parsed = parse_expression(text)
        self.words += parsed.words
        if self.words > MAX_WORDS:
            self._complain(path, [_TOO_MUCH])
        self._complain(path, parsed.complaints)
        self._need(parsed.columns, columns, path)
        return parsed

    def _need(self, names: Sequence[str], columns: Columns | None, path: str) -> None:
        if columns is not None:
            self._complain(path, unknown_columns(names, columns))

    def _name(self, name: str, path: str) -> None:
        if not COLUMN_NAME.fullmatch(name):
            self._complain(path, [bad_column_name(name)])

    def _twice(self, names: Sequence[str], path: str) -> None:
        lower = [name.lower() for name in names]
        for name in sorted({name for name in lower if lower.count(name) > 1}):
            self._complain(
                path,
                [
                    ExpressionProblem(
                        "DUPLICATE_NAME", f"Two columns are named {name!r}.", "Rename one with AS."
                    )
                ],
            )

    def _complain(
        self, path: str, complaints: Sequence[ExpressionProblem] | Iterator[ExpressionProblem]
    ) -> None:
        self.found += [Problem(c.code, path, c.message, c.hint) for c in complaints]


_TOO_MUCH = ExpressionProblem(
    "EXPRESSION_TOO_LONG",
    f"The expressions of the job have more than {MAX_WORDS} words in all.",
    "Make two jobs of it.",
)
_NEEDS_ALIAS = ExpressionProblem(
    "NEEDS_ALIAS", "The result has no name of its own.", "Add `AS` and a name to the expression."
)
_NOT_AN_AGGREGATE = ExpressionProblem(
    "NOT_AN_AGGREGATE",
    "This does not give one value per group.",
    "Put every column into an aggregate function such as count, sum or max.",
)


def _aggregate_not_here(names: Sequence[str]) -> ExpressionProblem:
    return ExpressionProblem(
        "AGGREGATE_NOT_HERE",
        f"{', '.join(names)}: an aggregate needs a group.",
        "Move it to `aggregate`, with `group_by`, `window`, or both.",
    )


def _with(columns: Columns, more: Sequence[str]) -> Columns:
    have = _lower(columns)
    return (*columns, *(name for name in more if name.lower() not in have))


def _lower(columns: Columns) -> set[str]:
    return {name.lower() for name in columns}
