"""Makes the small tables of a job that its operators join with."""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Table


def local_table(spark: SparkSession, table: Table, path: str, job: str) -> DataFrame:
    """The rows as a local relation, made by the JVM: from Python they would start tasks on
    every core.
    """
    names = [field.name for field in table.schema]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows or ()]
    text = json.dumps(rows, default=str)
    kind = f"array<struct<{', '.join(f'`{f.name}`: {f.type}' for f in table.schema)}>>"
    try:
        values = spark.range(1).select(
            F.inline(F.from_json(F.lit(text), kind, {"mode": "FAILFAST"}))
        )
        parsed: Any = values._jdf.collectAsList()  # noqa: SLF001
    except Exception as error:  # from the JVM it comes as an error of py4j
        raise InvalidJob([_bad_rows(table, path)], job) from error
    if parsed.size() != len(rows):
        raise InvalidJob([_bad_rows(table, path)], job)
    jvm_session: Any = spark._jsparkSession  # noqa: SLF001
    schema: Any = values._jdf.schema()  # noqa: SLF001
    return ClassicFrame(jvm_session.createDataFrame(parsed, schema), spark)


def _bad_rows(table: Table, path: str) -> Problem:
    return Problem(
        "TABLE_ROWS",
        f"{path}.rows",
        f"The rows of the table {table.name!r} do not fit its schema.",
        f"Each row needs: {', '.join(str(field) for field in table.schema)}.",
    )
