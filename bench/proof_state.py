"""State over restarts and a kill: is the final count of each key right, and what came twice?

    python -m bench.proof_state [--records 20000] [--keys 100] [--restarts 10] [--rate 400]

A job counts records by key while a process of its own runs it. The job is restarted between two
batches again and again, each time as another version; halfway the process and its JVM are killed
with SIGKILL, and another process goes on from the checkpoint. Each row of the output has the id of
the record that caused it. So what a replay wrote again is told apart from an error: an id that
comes twice is a double of at-least-once delivery; a record without a row, or a key whose last count
is not the number of its records, is an error. Exit code 1 if there is one. The short form
`--records 3000 --restarts 2 --rate 100` takes a minute.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.proofs import figures
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.traffic import reader_of
from trilithon.contract.engine import RestartJob, Status
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.cut_records import ID_HEADER
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import driver_process, session
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Field, Job, Operator, Parallelism, Sink, Source, Work

PARTITIONS = 2
STATE = 4
SILENCE_S = 8.0


def job_of() -> Job:
    """Reader → check → count by key, as a tenant would write it."""
    return Job(
        tenant="bench",
        name="counted",
        sources=(
            Source(
                "in",
                (Field("n", "BIGINT"), Field("k", "INT")),
                (("subscribe", "counted-in"), ("startingOffsets", "earliest")),
                PARTITIONS,
            ),
        ),
        operators=(
            Operator("check", Work(where="n >= 0"), Parallelism(1, 1, 2)),
            Operator(
                "count",
                Work(group_by=("k",), aggregate=(("count", "count(*)"), ("total", "sum(n)"))),
                Parallelism(STATE, 1, STATE),
            ),
        ),
        edges=(Edge("in", "check"), Edge("check", "count"), Edge("count", "out")),
        sinks=(Sink("out", (("topic", "counted-out"),), key="k"),),
        batch_s=600,
    )


def version(number: int) -> Job:
    """The job with another change in each version, and the same state."""
    job = job_of()
    check, count = job.operators
    changes = (
        replace(job, batch_s=300),
        replace(job, operators=(replace(check, parallelism=Parallelism(1, 1, 3)), count)),
        replace(job, operators=(replace(check, work=Work(where="n >= 0 AND k >= 0")), count)),
    )
    return changes[number % len(changes)]


# -- the process that runs the job


def run(servers: str, folder: Path) -> None:
    """Runs the job and restarts it for each line on standard input; answers with lines of JSON."""
    with session("local[24]", folder / "spark", fetch_jars(CONNECTOR), log_level="OFF") as spark:
        engine = SparkEngine(
            spark, Kafka(servers), folder / "engine", tasks=lambda: max_tasks(spark), slots=20
        )
        job = job_of()
        outcome = engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome
        polling = threading.Event()

        def poll() -> None:
            while not polling.wait(0.2):
                engine.reports()

        threading.Thread(target=poll, daemon=True).start()
        print(json.dumps({"jvm": driver_process()}), flush=True)
        for line in sys.stdin:
            outcome = engine.apply(RestartJob(line.strip(), job.id, version(int(line))))
            assert outcome.status is Status.DONE, outcome
            answer = {"took_s": outcome.took_s, "replayed": outcome.code == "REPLAYED"}
            print(json.dumps(answer), flush=True)
        polling.set()
        engine.cancel(job.id, keep=True)


class Runner:
    """A process that runs the job."""

    def __init__(self, servers: str, folder: Path) -> None:
        command = [sys.executable, "-m", "bench.proof_state", "--run", servers, str(folder)]
        self._process = subprocess.Popen(  # noqa: S603 - this program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._jvm = int(self._answer()["jvm"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the process that runs the job has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def restart(self, number: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        for process in (self._jvm, self._process.pid):
            os.kill(process, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


# -- the proof


class Records:
    """Sends numbered records at a steady rate, each key in one partition. They are divided into
    equal phases, so that the load lasts as long as the proof: a phase waits until it is begun.
    """

    def __init__(self, kafka: Kafka, count: int, keys: int, rate_per_s: float, phases: int) -> None:
        self.sent, self._count, self._keys, self._rate = 0, count, keys, rate_per_s
        self._phases, self._allowed = phases, 0
        # Without idempotence a retry of the producer looks like a record that the job doubled.
        self._producer = Producer({**kafka.client, "enable.idempotence": True, "log_level": 0})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self, phase: int) -> None:
        """Begins a phase, and returns when half of its records are sent."""
        before, self._allowed = self._allowed, self._count * (phase + 1) // self._phases
        while self.sent < (before + self._allowed) // 2:
            time.sleep(0.02)

    @property
    def flowing(self) -> bool:
        """Whether there are records of the phase that are not sent yet."""
        return self.sent < self._allowed

    def _run(self) -> None:
        due_s = time.monotonic()
        while self.sent < self._count:
            now_s = time.monotonic()
            due_s = max(due_s, now_s - 0.1)
            while self.sent < self._allowed and due_s < now_s:
                due_s += 1 / self._rate
                key = self.sent % self._keys
                value = json.dumps({"n": self.sent, "k": key})
                self._producer.produce("counted-in", value, partition=key % PARTITIONS)
                self.sent += 1
            self._producer.poll(0.01)

    def join(self) -> None:
        self._thread.join()
        assert self._producer.flush(30) == 0


def balance(kafka: Kafka, records: int, keys: int) -> dict[str, Any]:
    """What the output says of each key and each record."""
    expected = Counter(n % keys for n in range(records))
    totals = Counter[int]()
    for n in range(records):
        totals[n % keys] += n
    seen, last, largest = Counter[str](), dict[int, tuple[int, int]](), Counter[int]()
    consumer, silent_since = reader_of(kafka, "counted-out"), time.monotonic()
    while time.monotonic() - silent_since < SILENCE_S:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        silent_since = time.monotonic()
        value, headers = message.value(), message.headers()
        assert value is not None
        assert headers is not None
        row, source = json.loads(value), dict(headers)[ID_HEADER]
        assert isinstance(source, bytes)
        seen[source.decode()] += 1
        last[row["k"]] = (row["count"], row["total"])
        largest[row["k"]] = max(largest[row["k"]], row["count"])
    consumer.close()
    wrong = [k for k in expected if last.get(k) != (expected[k], totals[k])]
    return {
        "records": records,
        "rows": sum(seen.values()),
        "doubled": sum(seen.values()) - len(seen),
        "records_without_row": records - len(seen),
        "keys_with_wrong_count": len(wrong),
        "keys_counted_too_high": sum(largest[k] > expected[k] for k in expected),
    }


def proof(options: argparse.Namespace) -> dict[str, Any]:
    with temporary_folder() as name, EmbeddedBroker.start(Path(name) / "broker") as broker:
        kafka, folder = Kafka(broker.address), Path(name)
        for topic in ("counted-in", "counted-out"):
            make_topic(kafka, topic, PARTITIONS)
        runner = Runner(kafka.servers, folder)
        # One for each restart, one for the kill, one for the end.
        phases = options.restarts + 2
        records = Records(kafka, options.records, options.keys, options.rate, phases)
        restarts, at_kill = [], 0
        try:
            for phase in range(phases - 1):
                records.begin(phase)
                under_load = records.flowing
                if phase == options.restarts // 2:
                    at_kill = records.sent
                    runner.kill()
                    runner = Runner(kafka.servers, folder)
                else:
                    restarts.append({"under_load": under_load, **runner.restart(phase)})
            records.begin(phases - 1)
            records.join()
            result = balance(kafka, options.records, options.keys)
        finally:
            runner.end()
        return {
            **result,
            "restarts": len(restarts),
            "restarts_under_load": sum(restart["under_load"] for restart in restarts),
            "restarts_that_replayed": sum(restart["replayed"] for restart in restarts),
            "longest_restart_s": round(max(restart["took_s"] for restart in restarts), 2),
            "killed_after_records": at_kill,
        }


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--keys", type=int, default=100)
    arguments.add_argument("--restarts", type=int, default=10)
    arguments.add_argument("--rate", type=float, default=400.0)
    arguments.add_argument("--run", nargs=2, metavar=("KAFKA", "FOLDER"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.run:
        run(options.run[0], Path(options.run[1]))
        return
    result = proof(options)
    figures.show("state", result)
    figures.emit("state", result)
    # Restarts without records, or a kill that nothing is replayed after, would prove nothing.
    assert result["restarts_under_load"] == result["restarts"], "no records flowed"
    assert result["doubled"] > 0, "nothing was replayed after the kill"
    errors = ("records_without_row", "keys_with_wrong_count", "keys_counted_too_high")
    if any(result[error] for error in errors):
        sys.exit(1)


if __name__ == "__main__":
    main()
