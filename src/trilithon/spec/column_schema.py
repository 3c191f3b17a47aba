"""Parses column schemas: `user STRING, at TIMESTAMP`, or a mapping of column to type."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp
from sqlglot.dialects import Spark

from trilithon.model.job import Field
from trilithon.spec.sql_expressions import COLUMN_NAME

MAX_LENGTH: Final = 16_384
MAX_NESTING: Final = 12
EXPECTED: Final = "write `user STRING, at TIMESTAMP`, or a mapping of column to type"
_TYPES: Final = frozenset(
    """BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL TEXT VARCHAR CHAR BINARY VARBINARY
    DATE TIMESTAMP TIMESTAMPTZ TIMESTAMPNTZ TIMESTAMPLTZ ARRAY MAP STRUCT""".split()
)
_PARTS: Final = (exp.DataType, exp.DataTypeParam, exp.Literal, exp.ColumnDef, exp.Identifier)


def parse_schema(schema: str | Mapping[str, str]) -> tuple[Field, ...]:
    """The columns of a schema. Raises ValueError with a sentence that says what to write.

    Types are rendered from the parsed tree, so that no other SQL can slip through.
    """
    if isinstance(schema, str):
        columns = tuple(_field(column) for column in _columns(schema))
    else:
        columns = tuple(_field_of_type(name, type_) for name, type_ in schema.items())
    if not columns:
        raise ValueError(f"a schema has at least one column: {EXPECTED}")
    names = [column.name.lower() for column in columns]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the schema has two columns named {duplicates[0]!r}")
    for column in columns:
        if not COLUMN_NAME.fullmatch(column.name):
            raise ValueError(
                f"{column.name!r} is not a column name: use letters, digits, '_', '-' and spaces"
            )
    return columns


def _field_of_type(name: str, type_: str) -> Field:
    columns = _columns(f"c {type_}")
    if len(columns) != 1:
        raise ValueError(f"{type_!r} is not one type: {EXPECTED}")
    return Field(name, _field(columns[0]).type)


def _columns(ddl: str) -> list[exp.Expression]:
    if len(ddl) > MAX_LENGTH or ddl.count("<") + ddl.count("(") > MAX_LENGTH // 16:
        raise ValueError(f"a schema has at most {MAX_LENGTH} characters")
    if _nesting(ddl) > MAX_NESTING:
        raise ValueError(f"types are nested at most {MAX_NESTING} levels deep")
    if any(sign in ddl for sign in (";", "--", "/*", "$", "\x00")):
        raise ValueError(f"{ddl!r:.80} is not a schema: {EXPECTED}")
    try:
        trees = Spark().parse(f"CREATE TABLE t ({ddl})")
    except Exception as error:  # third-party parser on untrusted text
        raise ValueError(f"{ddl!r:.80} is not a schema: {EXPECTED}") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Create) or not isinstance(tree.this, exp.Schema):
        raise ValueError(f"{ddl!r:.80} is not a schema: {EXPECTED}")
    if {name for name, value in tree.args.items() if value} - {"this", "kind"}:
        raise ValueError(f"{ddl!r:.80} has more than columns and types: {EXPECTED}")
    return list(tree.this.expressions)


def _nesting(ddl: str) -> int:
    deepest = depth = 0
    for sign in ddl:
        depth += (sign in "<(") - (sign in ">)")
        deepest = max(deepest, depth)
    return deepest


def _field(column: exp.Expression) -> Field:
    kind = column.args.get("kind")
    if not isinstance(column, exp.ColumnDef) or not isinstance(kind, exp.DataType):
        raise ValueError("every column needs a name and a type")
    if column.args.get("constraints"):
        raise ValueError(f"the column {column.name!r} has more than a name and a type")
    for part in kind.walk():
        if not isinstance(part, _PARTS):
            raise ValueError(f"the column {column.name!r} has more than a name and a type")
        if isinstance(part, exp.DataType) and getattr(part.this, "name", None) not in _TYPES:
            raise ValueError(
                f"{part.sql(dialect='spark')!r} is not a type that JSON values can have"
            )
        if isinstance(part, exp.Literal) and not (part.is_int and 0 <= int(part.this) <= 65_535):
            raise ValueError(f"{part.sql()} is not a length: use a whole number up to 65535")
        if isinstance(part, exp.DataType) and part.this is exp.DataType.Type.DECIMAL:
            _check_decimal(part)
    return Field(column.name, kind.sql(dialect="spark"))


def _check_decimal(kind: exp.DataType) -> None:
    digits = [int(p.name) for p in kind.expressions if p.name.isdigit()]
    if len(digits) != len(kind.expressions) or not all(d <= 38 for d in digits):
        raise ValueError("a DECIMAL has at most 38 digits: write DECIMAL(10, 2)")
    if len(digits) == 2 and digits[1] > digits[0]:
        raise ValueError("the scale of a DECIMAL must not exceed its precision: DECIMAL(10, 2)")
