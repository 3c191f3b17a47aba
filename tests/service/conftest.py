"""A daemon over a fake cluster: its rounds go on by themselves, ten
of the cluster's seconds each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.cluster import FakeCluster
from tests.control.scene import ClusterClock
from trilithon.control.rules import Limits, Rules
from trilithon.engines.spark.compiler import unsupported
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon

RULES = Rules(limits=Limits(round_s=0.1, cool_down_s=10.0, fresh_s=10.0), quotas={"ads": 12})


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(auto_s=10.0)


@pytest.fixture
def running(tmp_path: Path, cluster: FakeCluster) -> Iterator[Daemon]:
    clock = ClusterClock(cluster)
    with daemon(
        cluster, RULES, tmp_path / "daemon", clock=clock, unsupported=unsupported
    ) as running_daemon:
        yield running_daemon


@pytest.fixture
def client(running: Daemon) -> TestClient:
    headers = {"Authorization": f"Bearer {running.token}"}
    return TestClient(api(running), base_url="http://127.0.0.1/api/v1", headers=headers)
