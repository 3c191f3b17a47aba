"""The Spark engine keeps the contract, on a real session and a real broker."""

import pytest

from tests.contract.suite import EngineContract
from tests.engines.spark.conftest import Topics, until
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Engine, Reallocate
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.measures.assess import assess
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Job
from trilithon.model.series import Series

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class TestSparkEngine(EngineContract):
    patience_s = 60.0

    @pytest.fixture
    def engine(self, spark_engine: SparkEngine, broker: Kafka, job: Job) -> Engine:
        create_topics(broker, [job])
        return spark_engine

    def test_a_query_that_dies_is_started_again_and_loses_nothing(
        self, spark_engine: SparkEngine, running: Job, topics: Topics, engine: Engine
    ) -> None:
        before = topics.count("chain-out")
        topics.write("chain-in", [f'{{"v": {i}}}' for i in range(50)])
        until(lambda: topics.count("chain-out") >= before + 50)
        held = spark_engine.managed[running.id]
        assert held.running is not None
        held.running.query.stop()  # behind the engine's back
        engine.reports()
        assert engine.jobs()[running.id].health == "degraded"
        topics.write("chain-in", [f'{{"v": {i}}}' for i in range(50, 100)])
        until(lambda: engine.reports() is not None and held.running is not None)
        until(lambda: topics.count("chain-out") >= before + 100)
        values = {row.value for row in topics.read("chain-out")}
        assert {f'{{"v":{i + 1}}}' for i in range(100)} <= values

    def test_weights_divide_what_comes(
        self, spark_engine: SparkEngine, running: Job, topics: Topics, engine: Engine
    ) -> None:
        wanted = Allocation(running.id, 2, {"first": 2, "second": 1}, weights={"first": (3.0, 1.0)})
        assert engine.apply(Reallocate(wanted)).changed
        assembler = Assembler()
        assembler.expect(running, wanted)

        def taken() -> list[float]:
            for report in engine.reports():
                assembler.take(report)
            view = assembler.snapshot(spark_engine.clock()).job(running.id)
            return [view.instance("first", i)["taken"] or 0.0 for i in (0, 1)]

        before = taken()
        topics.write("chain-in", [f'{{"v": {i}}}' for i in range(400)])
        until(lambda: sum(taken()) >= sum(before) + 400)
        first, second = (now - then for now, then in zip(taken(), before, strict=True))
        assert first == pytest.approx(3 * second, rel=0.2)

    def test_reports_become_measures(
        self, spark_engine: SparkEngine, running: Job, topics: Topics, engine: Engine
    ) -> None:
        assembler = Assembler()
        assembler.expect(running, initial(running))
        snapshots = []

        def written() -> float:
            for report in engine.reports():
                assembler.take(report)
            now = spark_engine.clock()
            snapshots.append(assembler.snapshot(now))
            return float(snapshots[-1].sinks.written[0])

        until(lambda: written() == 0 or snapshots[-1].sources.arrived[0] == 0)
        engine.apply(Reallocate(Allocation(running.id, 2, {"first": 2, "second": 1})))
        assembler.expect(running, Allocation(running.id, 2, {"first": 2, "second": 1}))
        topics.write("chain-in", [f'{{"v": {i}}}' for i in range(-20, 180)])
        until(lambda: written() == 180 and snapshots[-1].sources.arrived[0] == 200)
        last = snapshots[-1]
        view = last.job(running.id)
        assert view.lag("in") == 0
        taken = [view.instance("first", i)["taken"] for i in (0, 1)]
        assert sum(t or 0 for t in taken) == 200  # what the filter drops counts as work
        assert view.instance("second", 0)["taken"] == 180
        assert all(t for t in taken)
        # Every record of the second leads to a write: it waits as long as its work takes.
        second = view.instance("second", 0)
        assert second["write_waits"] == 180
        assert second["write_wait_s"] == pytest.approx(second["busy_s"], rel=0.05, abs=0.01)
        window = Series.of(snapshots).window()
        assert window is not None
        found = assess(window)
        row = window.layout.node_row
        assert found.processing_rate[row[running.id, "first"]] > 0
        assert found.intents.values["latency.p95"][0] > 0
