"""Compares the latency that is measured at a sink with what the times of its records say."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow
from trilithon.engines.spark.kafka import Kafka
from trilithon.measures.sketch import quantile
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot

SPAN_S = 5.0


@dataclass
class SinkLatency:
    """The latency at a sink of one source's records, from its snapshots and from Kafka's logs."""

    spark: SparkSession
    kafka: Kafka
    flow: Flow
    snapshot: Callable[[], Snapshot]
    # The job and its sink.
    sink: tuple[str, str]
    source: str
    # The share of the records, their latency by the sketch and by their times.
    compared: list[tuple[float, float, float]] = field(default_factory=list)

    def agrees(self) -> bool:
        """Whether both say the same of the records of some seconds."""
        before, began = self.snapshot(), time.time()
        time.sleep(SPAN_S)
        after, ended = self.snapshot(), time.time()
        window = Series.of([before, after]).window()
        assert window is not None
        until(lambda: self.flow.got[-1].written_s > ended)
        origin = self.origins_s()
        got = [one for one in list(self.flow.got) if began < one.written_s < ended]
        # A copy for one of several readers has its record's id and the reader's name.
        seen = [1000 * (one.written_s - origin[one.id.partition(">")[0]]) for one in got]
        row = after.layout.sink_row[self.sink]
        for share in (0.5, 0.95):
            sketched = float(quantile(window.latencies, share)[row])
            self.compared.append((share, sketched, float(np.quantile(seen, share))))
        return all(abs(a - b) <= max(5.0, 0.1 * b) for _, a, b in self.compared[-2:])

    def origins_s(self) -> dict[str, float]:
        """The times of the source's records by their ids, as its log has them."""
        options = {**self.kafka.options, "subscribe": self.source}
        rows = self.spark.read.format("kafka").options(**options).load()
        ids = rows.selectExpr(
            "concat_ws('-', topic, partition, offset) AS id", "unix_micros(timestamp) / 1e6 AS at"
        )
        return {row.id: float(row.at) for row in ids.collect()}
