"""The fake engine keeps the contract: what is tested against it would work on a real one."""

import pytest

from tests.contract.suite import EngineContract
from tests.fakes import FakeEngine
from trilithon.contract.engine import Engine


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return FakeEngine()
