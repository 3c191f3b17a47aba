"""The records of a query while it is built: a DataFrame, and the names of the user's columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN, named
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Field

# The internal columns that every record has between two operators.
CARRIED: Final = (ORIGIN, ID, DEAD)
# Columns that several steps use, one after the other.
ROW: Final = "$r"
VALUE: Final = "$v"


@dataclass(frozen=True)
class RecordStream:
    """A DataFrame and which of its columns are the user's."""

    frame: DataFrame
    columns: tuple[str, ...]
    # A column that must be evaluated before the record leaves the operator.
    evaluated: str = ORIGIN


def carried(frame: DataFrame, columns: Sequence[str], *more: str) -> DataFrame:
    """The user's columns and the internal ones that go on to the next operator."""
    return frame.select(*map(named, (*columns, *CARRIED, *more)))


def ddl(fields: Sequence[Field]) -> str:
    return ", ".join(f"`{field.name}` {field.type}" for field in fields)


def guarded(job: str, path: str, step: Any, stream: RecordStream, *arguments: Any) -> RecordStream:
    """Runs a step whose frame Spark analyses at once; a refusal gets the path in the job."""
    try:
        result: RecordStream = step(stream, *arguments)
    except InvalidJob as error:
        raise InvalidJob(error.problems, job) from error.__cause__
    except AnalysisException as error:
        raise InvalidJob([refused(error, path)], job) from error
    return result


def refused(error: PySparkException, path: str) -> Problem:
    message = str(error).splitlines()[0]
    return Problem(
        "SPARK_REFUSED", path, f"Spark refuses this: {message}", "Correct the expression."
    )
