"""Owns schemas as they are written: `user STRING, at TIMESTAMP`, or a mapping of column to type."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError

from trilithon.model.job import Field

MAX_LENGTH: Final = 16_384
_ALLOWED: Final = frozenset(
    """BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL TEXT VARCHAR CHAR BINARY VARBINARY DATE
    TIMESTAMP TIMESTAMPTZ TIMESTAMPNTZ TIMESTAMPLTZ ARRAY MAP STRUCT""".split()
)


def fields_of(schema: str | Mapping[str, str]) -> tuple[Field, ...]:
    """The columns of a schema. Raises ValueError with a sentence about what is expected."""
    if isinstance(schema, str):
        ddl = schema
    else:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
        if any("`" in name for name in schema):
            raise ValueError("a column's name cannot hold a backtick")
    if not ddl.strip():
        raise ValueError("a schema has at least one column: write `user STRING, at TIMESTAMP`")
    if len(ddl) > MAX_LENGTH or ddl.count("<") > 64:
        raise ValueError(f"a schema has at most {MAX_LENGTH} characters and 64 nested types")
    try:
        trees = Spark().parse(f"CREATE TABLE t ({ddl})")
    except (SqlglotError, RecursionError) as error:
        raise ValueError(f"{ddl!r} is not a schema: write `user STRING, at TIMESTAMP`") from error
    tree = trees[0] if len(trees) == 1 else None
    body = tree.this if isinstance(tree, exp.Create) else None
    if (
        not isinstance(body, exp.Schema)
        or tree is None
        or len(tree.args.get("expression") or ()) > 0
    ):
        raise ValueError(f"{ddl!r} is not a schema: write `user STRING, at TIMESTAMP`")
    columns = tuple(_field(column, ddl) for column in body.expressions)
    names = [column.name.lower() for column in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the column {twice!r} is there twice")
    return columns


def _field(column: exp.Expression, ddl: str) -> Field:
    kind = column.args.get("kind")
    if not isinstance(column, exp.ColumnDef) or not isinstance(kind, exp.DataType):
        raise ValueError(f"every column of {ddl!r} needs a name and a type")
    if column.args.get("constraints"):
        raise ValueError(f"the column {column.name!r} has more than a name and a type")
    for part in kind.find_all(exp.DataType):
        if getattr(part.this, "name", None) not in _ALLOWED:
            raise ValueError(
                f"{part.sql(dialect='spark')!r} is not a type that JSON values can have"
            )
    return Field(column.name, kind.sql(dialect="spark"))
