"""The showcase behind a daemon whose rounds are run by hand: a dashboard that does not move by
itself.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from starlette.testclient import TestClient

from tests.engines.simulated.test_live import Wall
from trilithon.control.journal import Journal
from trilithon.control.loop import Controller
from trilithon.engines.simulated.live import LiveSimulation
from trilithon.plugins import policy
from trilithon.scenarios.live import SHOWCASE, live_rules
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import load_scenario
from trilithon.service.access.gate import Access
from trilithon.service.access.roles import Role
from trilithon.service.access.store import AccessStore
from trilithon.service.api import api
from trilithon.service.daemon import Daemon

BEGAN_S = 1_700_000_000.0
BASE = "http://127.0.0.1"


class Showcase:
    """Five jobs on the simulated cluster, and who may look at them."""

    def __init__(self, folder: Path) -> None:
        scenario = load_scenario(SHOWCASE)
        self.wall = Wall()
        self.engine = LiveSimulation(engine_for(scenario), began_s=BEGAN_S, wall_s=self.wall)
        rules = replace(live_rules(scenario), quotas={"ads": 30})
        self.journal = Journal(None)
        self.store = AccessStore(folder / "access.sqlite", self.wall)
        decides = policy(rules.policy, rules.parameters)
        self.controller = Controller(self.engine, self.journal, decides, rules, self.engine)
        access = Access(self.store, secrets.token_urlsafe(32), self.wall)
        self.daemon = Daemon(self.controller, self.journal, access=access)
        self.app = api(self.daemon)

    def run(self, seconds: float) -> None:
        """Lets time pass, round by round."""
        every_s = self.controller.rules.limits.round_s
        for _ in range(int(seconds / every_s)):
            self.wall.at_s += every_s
            self.daemon.monitor.after_round(self.controller.round(), 0.0)

    def visitor(self) -> TestClient:
        return TestClient(self.app, base_url=BASE, follow_redirects=False)

    def token(self, grants: dict[str, Role] | None = None) -> str:
        if grants is None:
            return self.daemon.token
        return self.store.create("somebody", grants)[1]

    def logged_in(self, grants: dict[str, Role] | None = None) -> TestClient:
        """A browser of the cluster's administrator, or of somebody with these roles."""
        visitor = self.visitor()
        answer = visitor.post("/dashboard/login", content=f"token={self.token(grants)}")
        assert answer.status_code == 303, answer.text
        return visitor

    def close(self) -> None:
        self.store.close()
        self.journal.close()


@contextmanager
def showcase(folder: Path, seconds: float = 60.0) -> Iterator[Showcase]:
    made = Showcase(folder)
    try:
        made.run(seconds)
        yield made
    finally:
        made.close()
