"""Does Spark's offline repartitioning of state make a stateful operator elastic at a restart?

    python -m bench.state_repartition [--from 4] [--to 8]

The smallest program that shows it, in plain PySpark: a real-time query counts records by key, is
stopped after a committed batch, its checkpoint is repartitioned, and the query is started again on
it. The same is done in micro-batch mode, with the state's format set as real-time mode writes it,
with the operator's name in the checkpoint replaced by that of micro-batch mode, and with a
deduplication. It prints whether the repartitioning succeeded, with how many partitions the query
went on, and whether the counts were right afterwards. Of an error it prints the first line.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bench.proofs import figures
from bench.proofs.scene import Scene, scene
from bench.proofs.traffic import reader_of

KEYS = 20
RECORDS = 400
BATCH_S = 5
PATIENCE_S = 60.0
STREAMLINE = "StatefulStreamlineAggregate"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True)
class Attempt:
    """A mode, what is kept in the state, and how the checkpoint is prepared."""

    name: str
    mode: str = "real-time"
    deduplicates: bool = False
    # Real-time mode writes format 2 of state, whatever the setting says; its default is 1.
    format: int = 2
    rename: bool = False


ATTEMPTS = (
    Attempt("micro-batch", "micro-batch", format=1),
    Attempt("real-time", format=1),
    Attempt("real-time, format 2"),
    Attempt("real-time, format 2, renamed", rename=True),
    Attempt("real-time, format 2, deduplication", deduplicates=True),
)


class Counting:
    """A query that counts a topic's records by key, or drops keys that it has seen."""

    def __init__(self, around: Scene, attempt: Attempt) -> None:
        self.around, self.mode, self.deduplicates = around, attempt.mode, attempt.deduplicates
        name = attempt.name.replace(",", "").replace(" ", "-")
        self.source, self.sink = around.topic(f"{name}-in"), around.topic(f"{name}-out")
        self.checkpoint = around.folder / name
        self.sent: Counter[int] = Counter()
        self.query: Any = None

    def frame(self) -> DataFrame:
        options = {**self.around.kafka.options, "startingOffsets": "earliest"}
        read = self.around.spark.readStream.format("kafka").options(
            **options, subscribe=self.source
        )
        keys = read.load().select(F.col("value").cast("string").alias("k"))
        if self.deduplicates:
            counts = keys.dropDuplicates(["k"]).select("k", F.lit(1).alias("count"))
        else:
            counts = keys.groupBy("k").count()
        return counts.select(F.to_json(F.struct("k", "count")).alias("value"))

    def start(self) -> None:
        writer = self.frame().writeStream.format("kafka").options(**self.around.kafka.options)
        writer = writer.option("topic", self.sink).outputMode("update")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        # PySpark's type stubs lack real-time mode.
        trigger: Any = writer.trigger
        real_time = {"realTime": f"{BATCH_S} seconds"}
        chosen = real_time if self.mode == "real-time" else {"processingTime": "1 second"}
        self.query = trigger(**chosen).start()

    def send(self) -> None:
        producer = Producer({**self.around.kafka.client, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(self.source, str(number % KEYS))
            self.sent[number % KEYS] += 1
        assert producer.flush(30) == 0

    def counts(self) -> dict[int, int]:
        """The last count of each key that was written; of a key without counts, its rows."""
        consumer, last = reader_of(self.around.kafka, self.sink), Counter[int]()
        while (message := consumer.poll(3)) is not None:
            if (value := message.value()) is not None and message.error() is None:
                row = json.loads(value)
                key, before = int(row["k"]), last[int(row["k"])]
                last[key] = before + 1 if self.deduplicates else row["count"]
        consumer.close()
        return dict(last)

    @property
    def expected(self) -> dict[int, int]:
        return dict.fromkeys(self.sent, 1) if self.deduplicates else dict(self.sent)

    def await_counts(self) -> bool:
        """Whether each key has its count."""
        return (
            _until(lambda: self._failed() or self.counts() == self.expected) and not self._failed()
        )

    def await_commit(self) -> None:
        """Waits for a batch to be committed after all that was read."""
        folder = self.checkpoint / "commits"
        before = len([*folder.glob("[0-9]*")]) if folder.exists() else 0
        _until(lambda: self._failed() or len([*folder.glob("[0-9]*")]) > before)

    def _failed(self) -> bool:
        return self.query.exception() is not None

    def stop(self) -> str:
        """Stops the query; returns the first line of its error, or an empty string."""
        error = self.query.exception()
        self.query.stop()
        return "" if error is None else _first_line(error)

    @property
    def partitions(self) -> int:
        """The partitions of the state that a batch used last."""
        return len([*(self.checkpoint / "state" / "0").glob("[0-9]*")])


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _first_line(error: object) -> str:
    """The first lines of an error and of its causes."""
    lines, cause = [], getattr(error, "java_exception", None)
    while cause is not None:
        lines.append(str(cause.toString()))
        cause = cause.getCause()
    texts = lines or [str(error) or type(error).__name__]
    return " ← ".join(text.strip().splitlines()[0][:300] for text in texts)


def renamed(checkpoint: Path) -> int:
    """Gives the operator of real-time mode the name of that of micro-batch mode, whose state looks
    the same; returns the number of files that were changed.
    """
    count = 0
    for file in (checkpoint / "state").glob("*/_metadata/**/*"):
        if file.is_file() and not file.name.startswith(".") and STREAMLINE in file.read_text():
            file.write_text(file.read_text().replace(STREAMLINE, "stateStoreSave"))
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            count += 1
    return count


def tried(around: Scene, attempt: Attempt, options: argparse.Namespace) -> dict[str, Any]:
    counting = Counting(around, attempt)
    around.spark.conf.set("spark.sql.shuffle.partitions", str(options.before))
    counting.send()
    counting.start()
    result: dict[str, Any] = {"right_before": counting.await_counts()}
    counting.await_commit()
    result["stopped"] = counting.stop() or "cleanly"
    result["log"] = logged(counting.checkpoint)
    result["partitions_before"] = counting.partitions
    if attempt.rename:
        result["renamed"] = renamed(counting.checkpoint)
    manager: Any = around.spark._streamingCheckpointManager  # noqa: SLF001 - not public yet
    around.spark.conf.set(FORMAT, str(attempt.format))
    try:
        manager.repartition(str(counting.checkpoint), options.after)
        result["repartition"] = "done"
    except Exception as error:  # noqa: BLE001 - the error is the result
        result["repartition"] = _first_line(error)
    finally:
        around.spark.conf.unset(FORMAT)
    result["log_after"] = logged(counting.checkpoint)
    counting.send()
    try:
        counting.start()
        result["right_after"] = counting.await_counts()
        result["went_on"] = counting.stop() or "cleanly"
    except Exception as error:  # noqa: BLE001
        result["went_on"] = _first_line(error)
    result["partitions_after"] = counting.partitions
    return result


def logged(checkpoint: Path) -> str:
    """The batches in the logs of a checkpoint: those that began, and those that were committed."""
    return ", ".join(
        f"{log} {sorted(int(f.name) for f in (checkpoint / log).glob('[0-9]*'))}"
        for log in ("offsets", "commits")
    )


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--from", dest="before", type=int, default=4)
    arguments.add_argument("--to", dest="after", type=int, default=8)
    options = arguments.parse_args()
    results = {}
    with scene("local", cores=10) as around:
        around.spark.sparkContext.setLogLevel("OFF")
        for attempt in ATTEMPTS:
            results[attempt.name] = tried(around, attempt, options)
            figures.show(attempt.name, results[attempt.name])
    figures.emit("state_repartition", results)


if __name__ == "__main__":
    main()
