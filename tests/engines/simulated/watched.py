"""A simulated engine with the snapshots that a controller would have of it."""

import pytest

from tests.engines.simulated.worlds import ASSUMED, line, operator
from trilithon.contract.assembler import Assembler
from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.measures.assess import Assessment, assess
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.profile import Distribution
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.workloads.shapes import Constant

JOB = line(
    operator("first", 1, service_ms=0.5),
    operator("second", 1, service_ms=5.0, distribution=Distribution.EXPONENTIAL),
)
CPU = line(operator("only", 2, service_ms=4.0, cpu_share=1.0))


class Watched:
    """An engine, and the snapshots that a controller would have."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.assembler = Assembler()
        self.series = Series((), 600.0)

    def look(self, span_s: float) -> Snapshot:
        for _ in range(round(span_s)):
            self.engine.advance(1.0)
            for one in self.engine.jobs().values():
                self.assembler.expect(one.job, one.allocation)
            for report in self.engine.reports():
                self.assembler.take(report)
            snapshot = self.assembler.snapshot(self.engine.now_s)
            self.series = self.series.extended([snapshot])
        return self.series.last

    def assess(self, span_s: float = 10.0) -> Assessment:
        window = self.series.window(span_s)
        assert window is not None
        return assess(window)


def watched(
    mode: SimulationMode,
    character: Character = SPARK_RTM,
    job: Job = JOB,
    rate: float = 100.0,
    machines: int = 2,
    cores: float = 4.0,
) -> Watched:
    engine = SimulatedEngine(
        [MachineSpec(f"m{i}", cores, 8e9) for i in range(machines)],
        character,
        ASSUMED,
        mode=mode,
        seed=5,
    )
    assert engine.submit(job, initial(job)).changed
    for source in job.sources:
        engine.feed(job.id, source.name, Constant(rate))
    return Watched(engine)


both = pytest.mark.parametrize("mode", list(SimulationMode))
