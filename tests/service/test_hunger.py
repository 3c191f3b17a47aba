"""A job is hungry, under any policy, if it misses its intent and nothing more is to be had."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster import FakeCluster
from tests.control.scene import ClusterClock
from tests.service.test_api import JOB, apply, until
from trilithon.control.guard import Ruling
from trilithon.control.rules import Limits, Rules
from trilithon.model.change import ParallelismChange
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Clip
from trilithon.service.api import api
from trilithon.service.daemon import daemon
from trilithon.service.monitor.hunger import ClippedJobs, Hunger, HungryJobs

LIMITS = Limits(round_s=0.1, cool_down_s=10.0, fresh_s=10.0)


def hungry(client: TestClient) -> dict[str, Any]:
    conditions = client.get(f"/jobs/{JOB.id}").json()["status"]["conditions"]
    (condition,) = (c for c in conditions if c["type"] == "Hungry")
    return {"status": condition["status"], "reason": condition["reason"]}


@pytest.mark.parametrize(
    ("slots", "quotas", "reason"),
    [(3, {}, "NoFreeSlots"), (40, {"ads": 3}, "QuotaReached"), (3, {"ads": 3}, "QuotaReached")],
)
def test_a_job_that_misses_its_intent_without_a_free_slot_is_hungry(
    slots: int, quotas: dict[str, int], reason: str, tmp_path: Path
) -> None:
    """The policy here is `threshold`, which knows no hungry jobs of its own."""
    cluster = FakeCluster(slots=slots, auto_s=10.0)
    cluster.rates[JOB.id] = 600.0
    rules = Rules(policy="threshold", limits=LIMITS, quotas=quotas)
    with daemon(cluster, rules, tmp_path / "daemon", clock=ClusterClock(cluster)) as running:
        headers = {"Authorization": f"Bearer {running.token}"}
        client = TestClient(api(running), base_url="http://127.0.0.1/api/v1", headers=headers)
        apply(client)
        until(lambda: hungry(client) == {"status": "True", "reason": reason})
        cluster.rates[JOB.id] = 1.0
        until(lambda: hungry(client) == {"status": "False", "reason": "NotHungry"})


def ruling(job: str | None, *codes: str, granted: bool = False) -> Ruling:
    change = ParallelismChange("ads/chain", {"o0": 4})
    decision = Decision("d1", job, (change,), "MISSED", "More.")
    return Ruling(decision, (change,) if granted else (), tuple(map(Clip, codes)))


def test_what_the_guard_clipped_last_is_remembered_until_more_is_granted_or_the_intent_met() -> (
    None
):
    clipped = ClippedJobs()
    clipped.add((ruling("a/x", "STEP", "QUOTA"), ruling("b/y", "SLOTS"), ruling(None, "SLOTS")))
    clipped.add((ruling("c/z", "COOL_DOWN"),))
    assert clipped.jobs == {"a/x": Hunger.QUOTA, "b/y": Hunger.SLOTS}
    clipped.add((ruling("a/x", "STEP", granted=True),))
    assert clipped.jobs == {"b/y": Hunger.SLOTS}
    unknown: Any = SimpleNamespace(scene=None)
    assert HungryJobs(unknown, clipped).reason("b/y", "b") is Hunger.SLOTS
    clipped.keep(["a/x"])
    assert HungryJobs(unknown, clipped).reason("b/y", "b") is None
