"""Records pass a job while its cluster is disturbed again and again: none may be lost.

    python -m bench.chaos [--shape line diamond counted] [--records 100000] [--seed 1] [--rate 300]
        [--rescales 5] [--driver-kills 2] [--executor-kills 3] [--broker-kills 5] [--folder FOLDER]

A daemon and its host run as users run them, on a standalone cluster of two workers, with a broker
of their own. The job is a line of two operators, a Diamond (a fan-out and a merge: four queries) or
a line with a count by key; each shape is run by itself. The seed draws the order of the
disturbances and after how many records each comes. Every kill is SIGKILL; of drivers the host's
process and its JVM in turn. A disturbance comes when records flow again after the one before, so
that each hits a job that works; the time that this takes is printed beside it. Records are sent all
the time, and until the last disturbance is over: they may be more than `--records`.

At the end every record that was sent must have arrived, on both sides of the Diamond. Doubles are
counted as they are in the topic, and again after those with the same record id are dropped: that
leaves none, unless the job wrote one record under two ids. Of the count by key the last row of each
key must be right, and none too high. Exit code 1 if a record is lost, a double is left or a count
is wrong. With `--folder` logs and checkpoints stay in that folder, which must be new. The short
form takes some minutes for all three:
`--records 3000 --rate 100 --rescales 1 --driver-kills 0 --executor-kills 1 --broker-kills 1`
"""

import argparse
import json
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.proofs import figures
from bench.proofs.chaos_shapes import IN, OUT, SHAPES, Shape, Tally
from bench.proofs.deployment import await_that, deployed
from bench.proofs.disturbances import RETURN_S, Chaos, Disturbance, drawn
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.traffic import Load, reader_of
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.cut_records import ID_HEADER
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.standalone import StandaloneCluster

RATE_PER_S: Final = 300.0
WORKERS, WORKER_TASKS, WORKER_MB = 2, 16, 1024
PARTITIONS: Final = 2
# Records in flight may still arrive for so long after what they came from was killed.
EFFECT_S: Final = 1.0
# Doubles may come last: the output is complete when nothing has come for so long.
QUIET_S: Final = 5.0
FAULTS: Final = (
    "lost",
    "doubles_left_by_id",
    "keys_with_wrong_count",
    "keys_counted_too_high",
)
COUNTS: Final = {"rescale": 5, "driver-kill": 2, "executor-kill": 3, "broker-kill": 5}


class Sink:
    """Reads a topic into a tally."""

    def __init__(self, kafka: Kafka, topic: str, tally: Tally) -> None:
        self.tally = tally
        self._consumer = reader_of(kafka, topic)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.1):
                value, headers = message.value(), message.headers()
                if message.error() is not None or value is None:
                    continue
                id_ = dict(headers or ())[ID_HEADER]
                self.tally.take(
                    json.loads(value), id_.decode() if isinstance(id_, bytes) else str(id_)
                )

    def await_all(self, sent: int) -> None:
        """Waits until every record has arrived, or none has for a minute; then for silence."""
        expected = self.tally.expected(sent)
        _await_end(lambda: self.tally.distinct, RETURN_S / 5, expected)
        _await_end(lambda: self.tally.arrivals, QUIET_S)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def reading(kafka: Kafka, tally: Tally) -> Iterator[Sink]:
    """A reader of the output, ended at the end."""
    sink = Sink(kafka, OUT, tally)
    try:
        yield sink
    finally:
        sink.end()


def _await_end(count: Callable[[], int], silence_s: float, enough: float = math.inf) -> None:
    """Waits until there are enough, or there has been no other for some time."""
    seen, since = -1, time.monotonic()
    while (now := count()) < enough and time.monotonic() - since < silence_s:
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)


@contextmanager
def scene(folder: Path, shape: Shape, chosen: random.Random) -> Iterator[tuple[Chaos, Kafka]]:
    """A job on a cluster with a broker; everything ends at the end."""
    with ExitStack() as ending:
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        cluster = StandaloneCluster(folder / "state" / "cluster")
        ending.callback(cluster.stop)
        master = cluster.start(WORKERS, WORKER_TASKS, WORKER_MB).master
        kafka = Kafka(broker.address)
        for topic in (IN, OUT):
            make_topic(kafka, topic, PARTITIONS)
        options = ("--master", str(master), "--kafka", kafka.servers, "--log-json")
        deployment = ending.enter_context(deployed(folder / "state", *options))
        deployment.submit([shape.job])
        yield Chaos(deployment, cluster, broker, shape, chosen), kafka


@dataclass(frozen=True, slots=True)
class Run:
    """How a shape is disturbed: the plan, and the traffic."""

    seed: int
    records: int
    rate_per_s: float
    counts: Mapping[str, int]

    def of(self, shape: Shape, folder: Path) -> dict[str, Any]:
        began = time.monotonic()
        plan = drawn(self.seed, self.records, self.counts)
        choices = random.Random(self.seed + 1)  # noqa: S311 - not for secrets
        with (
            scene(folder, shape, choices) as (chaos, kafka),
            reading(kafka, shape.tally()) as sink,
        ):
            load = Load(kafka, IN, self.rate_per_s)
            try:
                await_that("records flow", lambda: sink.tally.newest >= 0, RETURN_S)
                started_s = round(time.monotonic() - began, 1)
                print(f"records flow after {started_s} s", flush=True)
                log = [self._strike(chaos, item, load, sink.tally) for item in plan]
                self._await_sent(load, self.records)
            except RuntimeError as error:
                with suppress(OSError, ValueError):
                    error.add_note(f"Problem of the job: {chaos.deployment.problems()}")
                raise
            finally:
                sent = load.stop()
            sink.await_all(sent)
        return {
            "seed": self.seed,
            **sink.tally.balance(sent),
            "first_record_s": started_s,
            "longest_until_flow_s": max((item["flows_again_s"] for item in log), default=None),
            "wall_s": round(time.monotonic() - began, 1),
            "disturbances": log,
        }

    def _strike(
        self, chaos: Chaos, disturbance: Disturbance, load: Load, tally: Tally
    ) -> dict[str, Any]:
        """Does what disturbs when its time has come, and waits until a record that was sent when it
        had taken effect has arrived.
        """
        self._await_sent(load, disturbance.after)
        sent, began = load.sent, time.time()
        what = chaos.disturb(disturbance.kind)
        time.sleep(EFFECT_S)
        in_effect = load.sent
        await_that("records flow again", lambda: tally.newest > in_effect, RETURN_S)
        took_s = round(time.time() - began, 1)
        kind = f"{disturbance.kind:<9}"
        print(f"{kind} after {sent:>7} records: flows again in {took_s:>5} s ({what})", flush=True)
        return {"kind": disturbance.kind, "what": what, "after": sent, "flows_again_s": took_s}

    def _await_sent(self, load: Load, records: int) -> None:
        within_s = self.records / self.rate_per_s + RETURN_S
        await_that(f"{records} sent", lambda: load.sent >= records, within_s)


def wrong(result: Mapping[str, Any]) -> list[str]:
    """What must be 0 at the end of a run and is not."""
    return [f"{name}: {result[name]}" for name in FAULTS if result.get(name)]


def measure(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Runs the shapes one after the other."""
    counts = {
        name.partition("-")[0]: getattr(options, f"{name.replace('-', '_')}s") for name in COUNTS
    }
    run = Run(options.seed, options.records, options.rate, counts)
    results = {}
    for shape in options.shape:
        kept = None if options.folder is None else str(options.folder / shape)
        with temporary_folder() if kept is None else nullcontext(kept) as folder:
            print(
                f"\n{shape}: {sum(counts.values())} disturbances, seed {options.seed}", flush=True
            )
            results[shape] = run.of(SHAPES[shape], Path(folder))
        shown = {name: value for name, value in results[shape].items() if name != "disturbances"}
        figures.show(f"chaos, {shape}", shown)
    return results


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    arguments.add_argument("--records", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--rate", type=float, default=RATE_PER_S)
    arguments.add_argument("--folder", type=Path)
    for name, count in COUNTS.items():
        arguments.add_argument(f"--{name}s", type=int, default=count)
    return arguments


def main() -> None:
    # As at the end: everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    results = measure(parser().parse_args())
    figures.emit("chaos", results)
    if faults := [f"{shape}: {fault}" for shape in results for fault in wrong(results[shape])]:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
