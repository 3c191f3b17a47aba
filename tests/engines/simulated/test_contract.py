"""The simulated engine keeps the contract, both ways of running and in both characters."""

import pytest

from tests.contract.suite import EngineContract
from tests.engines.simulated.worlds import ASSUMED, TEXTBOOK
from trilithon.contract.engine import Engine
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine, Way
from trilithon.engines.simulated.machines import Machine


class TestSimulatedEngine(EngineContract):
    @pytest.fixture(
        params=[(c, way) for c in (SPARK_RTM, TEXTBOOK) for way in Way],
        ids=lambda p: f"{p[0].name}-{p[1]}",
    )
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        character, way = request.param
        machines = [Machine(f"m{i}", 4.0, 8e9) for i in range(2)]
        return SimulatedEngine(machines, character, ASSUMED, way=way, tasks=100, slots=20)
