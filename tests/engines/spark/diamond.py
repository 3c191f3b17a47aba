"""A job that fans out and merges, for tests: what goes in, what comes out, and its snapshots."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import Flow, Got
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.snapshot import Snapshot
from trilithon.spec.job_file import parse_job

AT = "2026-01-01T00:00:00.123456Z"


def diamond(name: str, merge: str = "[n, side]") -> Job:
    """in → split → (left, right) → merge → out, with a second sink in the middle."""
    return parse_job(f"""
name: {name}
trigger: {{realTime: 10 minutes}}
sources:
  - name: in
    options: {{subscribe: {name}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, at: TIMESTAMP}}
    partitions: 2
operators:
  - {{name: split, input: in, where: n >= 0, parallelism: {{initial: 1, max: 2}}}}
  - {{name: left, input: split, select: [n, at, "'left' AS side"], parallelism: {{max: 2}}}}
  - name: right
    input: {{from: split, grouping: by_key, key: [n]}}
    select: [n, at, "'right' AS side"]
    parallelism: {{max: 2}}
  - {{name: merge, inputs: [left, right], select: {merge}, parallelism: {{max: 2}}}}
sinks:
  - {{name: out, input: merge, options: {{topic: {name}-out}}}}
  - {{name: lefts, input: left, options: {{topic: {name}-lefts}}}}
""")


class DiamondFlow(Flow):
    """A steady load on a Diamond. A record has arrived when it has come out on both sides."""

    def value(self, number: int) -> str:
        return json.dumps({"n": number, "at": AT})

    def row(self, arrival: Got) -> tuple[int, str]:
        return arrival.number, arrival.value["side"]

    def arrivals_s(self) -> dict[int, float]:
        sides: dict[int, dict[str, float]] = defaultdict(dict)
        for one in list(self.got):
            sides[one.number].setdefault(one.value["side"], one.at_s)
        return {number: max(s.values()) for number, s in sides.items() if len(s) == 2}


class Scene:
    """A Diamond that runs, what goes in and what comes out."""

    def __init__(self, engine: SparkEngine, topics: Topics, job: Job) -> None:
        self.engine, self.topics, self.job = engine, topics, job
        create_topics(engine.kafka, [job])
        self.sent = 0
        self.assembler = Assembler()
        self.assembler.expect(job, initial(job))
        outcome = engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome.message

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        values = [json.dumps({"n": n, "at": AT}) for n in numbers]
        self.topics.write(f"{self.job.name}-in", values)
        self.sent += count

    @contextmanager
    def under_load(self, rate_per_s: float) -> Iterator[DiamondFlow]:
        """Sends records all the time, instead of `send`."""
        flow = DiamondFlow(self.engine.kafka, self.job.name, rate_per_s)
        try:
            yield flow
        finally:
            flow.end()

    def snapshot(self) -> Snapshot:
        for report in self.engine.reports():
            self.assembler.take(report)
        return self.assembler.snapshot(self.engine.clock())

    def polled(self) -> bool:
        """Lets the engine supervise its jobs, as a host does."""
        self.snapshot()
        return True

    def rows(self) -> Counter[tuple[int, str]]:
        """How often each number came out on each side."""
        read = [json.loads(row.value) for row in self.topics.read(f"{self.job.name}-out")]
        return Counter((row["n"], row["side"]) for row in read)

    def expected(self) -> set[tuple[int, str]]:
        return {(n, side) for n in range(self.sent) for side in ("left", "right")}

    def await_all(self, timeout_s: float = 240) -> None:
        def written() -> bool:
            self.snapshot()
            # What a part writes again after it died counts, too, but stands for no other record.
            enough = self.topics.count(f"{self.job.name}-out") >= 2 * self.sent
            return enough and self.rows().keys() >= self.expected()

        until(written, timeout_s)

    def await_running(self) -> None:
        def runs() -> bool:
            self.snapshot()
            parts = [m for m in self.engine.managed.values() if m.job.id.startswith(self.job.id)]
            return all(managed.running is not None for managed in parts)

        until(runs)

    def incarnations(self) -> dict[str, int]:
        return {
            name: managed.running.incarnation
            for name, managed in self.engine.managed.items()
            if managed.running is not None
        }


def topics_of(topics: Topics, engine: SparkEngine, job: Job) -> list[str]:
    prefix = engine.dags.topics.prefix(job.id)
    return [str(n) for n in topics.admin.listTopics().names().get() if str(n).startswith(prefix)]
