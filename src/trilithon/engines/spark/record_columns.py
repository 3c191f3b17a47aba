"""Names the internal columns of a record, which travel beside the user's, and calls the probe."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from trilithon.engines.spark.session import CATALOG

# Internal columns begin with a character that no column of a job can have.
ORIGIN: Final = "$o"  # when the record was written to its source, µs: Kafka's timestamp
ID: Final = "$i"  # topic-partition-offset, for detecting duplicates; -position after an explode
DEAD: Final = "$d"  # the dead letter that the record is, as JSON; null if it is none
STAMP: Final = "$t"  # when it was sent over the edge, and by which executor
TASK: Final = "$p"  # the receiving task
SENDER: Final = "$s"  # which of several sources it came from


def named(name: str) -> Column:
    """The column of that name, whatever characters it has."""
    return F.col(f"`{name}`")


def call_probe(function: str, *arguments: Column) -> Column:
    return F.call_function(f"{CATALOG}.{function}", *arguments)
