"""Follows the columns through a job and reports expressions that use columns which do not exist."""

from collections.abc import Iterable, Mapping, Sequence

from trilithon.errors import Problem
from trilithon.model.job import Edge, Job, Join, Operator, Source, Work
from trilithon.model.validation import edge_paths
from trilithon.spec.functions import KEEPING
from trilithon.spec.sql_expressions import (
    COLUMN_NAME,
    ExpressionProblem,
    ParsedExpression,
    bad_column_name,
    parse_expression,
    unknown_columns,
)

Columns = tuple[str, ...]
# Tokens in all expressions of a job: far more than a job needs, and a bound on parsing time.
MAX_JOB_TOKENS = 6000


def check_columns(job: Job) -> tuple[Problem, ...]:
    """Problems with expressions that Spark would refuse: syntax, functions or columns.

    Consequences of a problem are not reported: after an operator with a problem its columns are
    unknown, and expressions over unknown columns are checked for syntax and functions only.
    """
    return tuple(_ColumnCheck(job).problems())


class _ColumnCheck:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.tables = {t.name: tuple(f.name for f in t.schema) for t in job.tables}
        # The output columns of each node; None if they are unknown because of an earlier problem.
        self.columns: dict[str, Columns | None] = {
            source.name: tuple(field.name for field in source.columns) for source in job.sources
        }
        self.reported: list[Problem] = []
        self.tokens = 0
        self.path = {edge.name: path for edge, path in zip(job.edges, edge_paths(job), strict=True)}

    def problems(self) -> list[Problem]:
        for i, source in enumerate(self.job.sources):
            self._metadata(source, f"sources[{i}].metadata")
        position = {operator.name: i for i, operator in enumerate(self.job.operators)}
        ordered = set(self.job.order)
        for name in self.job.order:
            if name in position:
                before = len(self.reported)
                columns = self._operator(self.job.operator(name), f"operators[{position[name]}]")
                has_problem = len(self.reported) > before
                self.columns[name] = None if has_problem else columns
        # Operators on a cycle are not in the order; their expressions are checked without columns.
        for name, i in position.items():
            if name not in ordered:
                self._work(self.job.operator(name).work, f"operators[{i}]", None, {})
        for i, sink in enumerate(self.job.sinks):
            columns = self._inputs(self.job.parents[sink.name])
            if sink.key is not None:
                self._scalar(sink.key, columns, f"sinks[{i}].key")
        return self.reported

    def _metadata(self, source: Source, path: str) -> None:
        for column, _ in source.metadata:
            self._check_name(column, f"{path}.{column}")
        if source.metadata:
            self._check_duplicates([field.name for field in source.columns], path)

    def _operator(self, operator: Operator, path: str) -> Columns | None:
        table = self.job.broadcast_table(operator.name)
        edges = [edge for edge in self.job.parents[operator.name] if edge != table]
        rows = {} if table is None else {table.source: self.columns.get(table.source)}
        return self._work(operator.work, path, self._inputs(edges), rows)

    def _inputs(self, edges: Sequence[Edge]) -> Columns | None:
        """The columns of a node's inputs, which must have the same ones."""
        by_input = [self.columns.get(edge.source) for edge in edges]
        for edge, columns in zip(edges, by_input, strict=True):
            if columns is not None:
                self._report(f"{self.path[edge.name]}.key", unknown_columns(edge.key, columns))
        known = [columns for columns in by_input if columns is not None]
        if len(known) < len(by_input) or not known:
            return None
        for edge, columns in zip(edges[1:], known[1:], strict=True):
            if _lower(columns) != _lower(known[0]):
                differing = sorted(_lower(columns) ^ _lower(known[0]))
                self.reported.append(
                    Problem(
                        "COLUMNS_DIFFER",
                        self.path[edge.name],
                        f"{edge.source!r} and {edges[0].source!r} have different columns: "
                        f"{', '.join(differing)}.",
                        "Select the same columns in both.",
                    )
                )
                return None
        return known[0]

    def _work(
        self,
        work: Work,
        path: str,
        columns: Columns | None,
        broadcast: Mapping[str, Columns | None],
    ) -> Columns | None:
        if work.watermark:
            self._require([work.watermark.event_time], columns, f"{path}.watermark.eventTime")
        if work.join:
            columns = self._join(work.join, path, columns, {**self.tables, **broadcast})
        if work.where is not None:
            self._scalar(work.where, columns, f"{path}.where")
        for alias, text in work.explode:
            self._check_name(alias, f"{path}.explode.{alias}")
            self._scalar(text, columns, f"{path}.explode.{alias}")
            columns = None if columns is None else _with(columns, [alias])
        if work.select:
            columns = self._select(work.select, columns, path)
        self._require(work.deduplicate, columns, f"{path}.deduplicate")
        if work.aggregate:
            columns = self._aggregate(work, columns, path)
        return columns

    def _join(
        self,
        join: Join,
        path: str,
        columns: Columns | None,
        tables: Mapping[str, Columns | None],
    ) -> Columns | None:
        if (table := tables.get(join.table)) is None:
            return None
        self._require(join.on, columns, f"{path}.join.on")
        self._require(join.on, table, f"{path}.join.on")
        return None if columns is None else _with(columns, table)

    def _select(self, texts: Sequence[str], columns: Columns | None, path: str) -> Columns | None:
        selected: list[str] = []
        for i, text in enumerate(texts):
            parsed = self._scalar(text, columns, f"{path}.select[{i}]")
            if parsed.star:
                selected += columns or ()
            elif parsed.output is not None:
                selected.append(parsed.output)
            elif not parsed.problems:
                self._report(f"{path}.select[{i}]", [_NEEDS_ALIAS])
        self._check_duplicates(selected, f"{path}.select")
        return None if columns is None else tuple(selected)

    def _aggregate(self, work: Work, columns: Columns | None, path: str) -> Columns | None:
        if work.window:
            self._require([work.window.time_column], columns, f"{path}.window.timeColumn")
        result: list[str] = ["window"] if work.window else []
        for i, text in enumerate(work.group_by):
            parsed = self._scalar(text, columns, f"{path}.group_by[{i}]")
            if parsed.output is not None:
                result.append(parsed.output)
            elif not parsed.problems:
                self._report(f"{path}.group_by[{i}]", [_NEEDS_ALIAS])
        for name, text in work.aggregate:
            aggregate_path = f"{path}.aggregate.{name}"
            self._check_name(name, aggregate_path)
            parsed = self._expression(text, columns, aggregate_path)
            if not parsed.problems and (not parsed.aggregates or parsed.bare_columns):
                self._report(aggregate_path, [_NOT_AN_AGGREGATE])
            if work.window is None and (keeping := KEEPING.intersection(parsed.aggregates)):
                self._report(aggregate_path, [_state_grows(sorted(keeping))])
            result.append(name)
        self._check_duplicates(result, f"{path}.aggregate")
        return tuple(result)

    def _scalar(self, text: str, columns: Columns | None, path: str) -> ParsedExpression:
        parsed = self._expression(text, columns, path)
        if parsed.aggregates:
            self._report(path, [_aggregate_not_here(parsed.aggregates)])
        return parsed

    def _expression(self, text: str, columns: Columns | None, path: str) -> ParsedExpression:
        if self.tokens > MAX_JOB_TOKENS:
            return ParsedExpression((_TOO_MANY_TOKENS,))
        parsed = parse_expression(text)
        self.tokens += parsed.tokens
        if self.tokens > MAX_JOB_TOKENS:
            self._report(path, [_TOO_MANY_TOKENS])
        self._report(path, parsed.problems)
        self._require(parsed.columns, columns, path)
        return parsed

    def _require(self, names: Sequence[str], columns: Columns | None, path: str) -> None:
        if columns is not None:
            self._report(path, unknown_columns(names, columns))

    def _check_name(self, name: str, path: str) -> None:
        if not COLUMN_NAME.fullmatch(name):
            self._report(path, [bad_column_name(name)])

    def _check_duplicates(self, names: Sequence[str], path: str) -> None:
        lower = [name.lower() for name in names]
        for name in sorted({name for name in lower if lower.count(name) > 1}):
            message = f"Two columns are named {name!r}."
            problem = ExpressionProblem("DUPLICATE_NAME", message, "Rename one with AS.")
            self._report(path, [problem])

    def _report(self, path: str, problems: Iterable[ExpressionProblem]) -> None:
        self.reported += [Problem(p.code, path, p.message, p.hint) for p in problems]


_TOO_MANY_TOKENS = ExpressionProblem(
    "EXPRESSION_TOO_LONG",
    f"The expressions of the job have more than {MAX_JOB_TOKENS} tokens together.",
    "Split the job into two.",
)
_NEEDS_ALIAS = ExpressionProblem(
    "NEEDS_ALIAS", "The resulting column has no name.", "Add `AS` and a name to the expression."
)
# By function: what is close to it and keeps little.
_INSTEAD = {
    "collect_set": "approx_count_distinct",
    "median": "approx_percentile",
    "percentile": "approx_percentile",
}
_NOT_AN_AGGREGATE = ExpressionProblem(
    "NOT_AN_AGGREGATE",
    "The expression does not give one value per group.",
    "Use every column inside an aggregate function such as count, sum or max.",
)


def _state_grows(names: Sequence[str]) -> ExpressionProblem:
    verb = "keeps" if len(names) == 1 else "keep"
    return ExpressionProblem(
        "STATE_GROWS",
        f"{', '.join(names)} {verb} every value of a group, and without a `window` a group lasts "
        "for ever: its state would grow with each record.",
        "Add a `window`, with a `watermark` that lets go of it, or use an aggregate of fixed size: "
        f"{_bounded_instead(names)}.",
    )


def _bounded_instead(names: Sequence[str]) -> str:
    """What to compute instead."""
    return ", ".join(dict.fromkeys(_INSTEAD.get(name, "count, last or max_by") for name in names))


def _aggregate_not_here(names: Sequence[str]) -> ExpressionProblem:
    return ExpressionProblem(
        "AGGREGATE_NOT_HERE",
        f"{', '.join(names)}: aggregate functions are allowed only in `aggregate`.",
        "Move the expression to `aggregate`, with `group_by`, `window`, or both.",
    )


def _with(columns: Columns, more: Sequence[str]) -> Columns:
    existing = _lower(columns)
    return (*columns, *(name for name in more if name.lower() not in existing))


def _lower(columns: Columns) -> set[str]:
    return {name.lower() for name in columns}
