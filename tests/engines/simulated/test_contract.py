"""The simulated engine keeps the contract, both ways of running and in both characters."""

import pytest

from tests.contract.suite import EngineContract
from tests.engines.simulated.worlds import ASSUMED, TEXTBOOK
from trilithon.contract.engine import Engine
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec


class TestSimulatedEngine(EngineContract):
    @pytest.fixture(
        params=[(c, mode) for c in (SPARK_RTM, TEXTBOOK) for mode in SimulationMode],
        ids=lambda p: f"{p[0].name}-{p[1]}",
    )
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        character, mode = request.param
        machines = [MachineSpec(f"m{i}", 4.0, 8e9) for i in range(2)]
        return SimulatedEngine(machines, character, ASSUMED, mode=mode, tasks=100, slots=20)
