"""What readers of partitions without records cost: our source beside Spark's own.

    python -m bench.idle_readers [--partitions 4 16 64] [--seconds 20] [--turns 2]

Prints the CPU of the JVM, in cores, while nothing is read: without a query, and with a query over
so many empty partitions, through Spark's own Kafka source and through ours, in turns. The short
form `--partitions 2 --seconds 3 --turns 1` takes half a minute.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import mean
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bench.proofs import figures
from bench.proofs.scene import Scene, scene
from trilithon.engines.spark.frame_sources import KAFKA_SOURCE

SOURCES: Final = {"Spark's own": "kafka", "ours": KAFKA_SOURCE}
SETTLE_S: Final = 8.0


def cpu_s(process: int) -> float:
    """The CPU time that a process has used."""
    parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def used_cores(around: Scene, for_s: float) -> float:
    jvm: Any = around.spark._jvm  # noqa: SLF001 - its process is the JVM's
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    before, began = cpu_s(process), time.monotonic()
    time.sleep(for_s)
    return (cpu_s(process) - before) / (time.monotonic() - began)


def with_query(around: Scene, source: str, topic: str, number: str, for_s: float) -> float:
    """The CPU while a query reads a topic without records."""
    frame = (
        around.spark.readStream.format(source)
        .options(**around.kafka.options, subscribe=topic, startingOffsets="earliest")
        .load()
        .select(F.col("value"))
    )
    writer: Any = (
        frame.writeStream.format("kafka")
        .options(**around.kafka.options, topic="sink")
        .option("checkpointLocation", str(around.folder / "checkpoints" / number))
        .outputMode("update")
        .trigger
    )
    query = writer(realTime="10 minutes").start()
    try:
        time.sleep(SETTLE_S)
        assert (failure := query.exception()) is None, str(failure)[:2000]
        return used_cores(around, for_s)
    finally:
        query.stop()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with scene("local", cores=max(options.partitions) // 2 + 2) as around:
        around.spark.sparkContext.setLogLevel("OFF")
        around.topic("sink")
        used: dict[str, dict[int, list[float]]] = {name: {} for name in SOURCES}
        for count in options.partitions:
            topic = around.topic(f"idle-{count}", count)
            for turn in range(options.turns):
                for name, source in SOURCES.items():
                    number = f"{name[0]}-{count}-{turn}"
                    cores = with_query(around, source, topic, number, options.seconds)
                    used[name].setdefault(count, []).append(cores)
        alone = used_cores(around, options.seconds)
    return {
        "no query": round(alone, 3),
        **{
            f"{name}, {count} partitions": round(mean(turns), 3)
            for name, counts in used.items()
            for count, turns in counts.items()
        },
    }


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--partitions", nargs="+", type=int, default=[4, 16, 64])
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--turns", type=int, default=2)
    result = measure(arguments.parse_args())
    figures.show("CPU of the JVM while nothing is read, in cores", result)
    figures.emit("idle_readers", result)


if __name__ == "__main__":
    main()
