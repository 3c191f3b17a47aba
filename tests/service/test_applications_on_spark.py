"""One Spark application per tenant: two tenants, two drivers, and one of them is killed; two on one
standalone cluster, and a third for which it has no room.
"""

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.proofs.disturbances import children
from tests.engines.spark.conftest import broker, until  # noqa: F401 - a fixture
from tests.engines.spark.flow import Flow
from tests.measured import Measured, allowed_s
from tests.service.test_on_spark import (  # noqa: F401 - a fixture
    job_named,
    serve,
    state,
    trilithon,
)
from trilithon.cli.processes import application_sockets
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.cluster_shares import LEAST_MEMORY_MB
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.model.job import Job
from trilithon.spec.dump import dump_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


# The tasks of an application on each of two workers: its job takes eight.
CORES = 5


def of_tenant(tenant: str, place: str = "apart") -> Job:
    return replace(job_named(f"{place}-{tenant}"), tenant=tenant)


def written(jobs: dict[str, Job], folder: Path) -> list[str]:
    """The job files of tenants."""
    files = [str(folder / f"{tenant}.json") for tenant in jobs]
    for file, job in zip(files, jobs.values(), strict=True):
        Path(file).write_text(json.dumps(dump_job(job)))
    return files


def host_of(daemon: int, tenant: str) -> int:
    """The process of the host of an application: the daemon's child with its name."""
    return next(
        pid
        for pid in children(daemon)
        if tenant.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    )


def test_a_driver_that_is_killed_takes_no_other_tenant_along(
    broker: Kafka,  # noqa: F811
    state: Path,  # noqa: F811
    measured: Measured,
) -> None:
    jobs = {tenant: of_tenant(tenant) for tenant in ("ads", "shop")}
    create_topics(broker, list(jobs.values()))
    files = written(jobs, state)
    options = ("--per-tenant", "--master", "local[8]", "--kafka", broker.servers, "--with-jobs")
    daemon = serve(state, *options)
    flows: dict[str, Flow] = {}
    try:
        trilithon("job", "apply", *files)
        until(lambda: [row["state"] for row in trilithon("job", "list")] == ["running"] * 2, 240)
        flows = {tenant: Flow(broker, job.name, 40.0) for tenant, job in jobs.items()}
        until(lambda: all(len(flow.got) > 100 for flow in flows.values()))
        until(lambda: len(trilithon("cluster", "status")["machines"]) == 2)
        status = trilithon("cluster", "status")
        assert status["machines"] == ["127.0.0.1/ads/driver", "127.0.0.1/shop/driver"]
        assert {a["application"]: (a["state"], a["jobs"]) for a in status["applications"]} == {
            tenant: ("running", [job.id]) for tenant, job in jobs.items()
        }
        victim, other = host_of(daemon.pid, "ads"), host_of(daemon.pid, "shop")
        killed_s, before = time.time(), len(flows["ads"].got)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(flows["ads"].got) > before + 200)
        back_s = time.time()
        measured.within("goes on", back_s - killed_s, 60)
        for flow in flows.values():
            flow.stop_sending()
            flow.await_all(allowed_s(60))
            assert {record.number for record in flow.got} == set(range(flow.sent))

        def silence_s(tenant: str) -> float:
            got = [r.at_s for r in flows[tenant].got if killed_s < r.at_s < back_s]
            return max(b - a for a, b in itertools.pairwise([killed_s, *got, back_s]))

        # A driver that starts anew is silent for many times as long as a batch takes to end.
        assert silence_s("shop") < silence_s("ads") / 2
        assert flows["shop"].doubled == 0
        assert host_of(daemon.pid, "shop") == other
        assert host_of(daemon.pid, "ads") != victim
    finally:
        for flow in flows.values():
            flow.end()
        daemon.terminate()
        assert daemon.wait(240) == 0
    until(lambda: not application_sockets())


@pytest.fixture
def standalone(state: Path) -> Iterator[StandaloneCluster]:  # noqa: F811
    """Two workers with room for two applications."""
    cluster = StandaloneCluster(state / "cluster")
    try:
        cluster.start(2, 2 * CORES, 2 * LEAST_MEMORY_MB)
        yield cluster
    finally:
        cluster.stop()


def test_applications_divide_a_standalone_cluster_and_one_too_many_is_told_what_is_free(
    broker: Kafka,  # noqa: F811
    state: Path,  # noqa: F811
    standalone: StandaloneCluster,
) -> None:
    """The first took all memory of all workers, and no other got an executor."""
    jobs = {tenant: of_tenant(tenant, "shared") for tenant in ("ads", "shop", "third")}
    create_topics(broker, list(jobs.values()))
    *files, third = written(jobs, state)
    cluster = ("--master", str(standalone.status().master), "--applications", "2")
    daemon = serve(state, "--per-tenant", *cluster, "--kafka", broker.servers, "--with-jobs")
    flows: list[Flow] = []
    try:
        trilithon("job", "apply", *files)
        until(lambda: [row["state"] for row in trilithon("job", "list")] == ["running"] * 2, 240)
        flows = [Flow(broker, jobs[tenant].name, 40.0) for tenant in ("ads", "shop")]
        until(lambda: all(len(flow.got) > 100 for flow in flows))
        until(lambda: len(trilithon("cluster", "status")["machines"]) == 4)
        machines = {name.rpartition("/")[0] for name in trilithon("cluster", "status")["machines"]}
        assert machines == {"127.0.0.1/ads", "127.0.0.1/shop"}
        trilithon("job", "apply", third)
        until(lambda: "CLUSTER_TOO_SMALL" in row_of(jobs["third"])["problem"])
        problem = row_of(jobs["third"])["problem"]
        assert "An executor needs 512m of memory and 5 tasks; free are 0 MB and 0 tasks" in problem
        assert "Other applications: 2." in problem
        # The others do not notice.
        got = [len(flow.got) for flow in flows]
        until(lambda: all(len(flow.got) > n + 100 for flow, n in zip(flows, got, strict=True)))
        for flow in flows:
            flow.stop_sending()
            flow.await_all(allowed_s(60))
            assert {record.number for record in flow.got} == set(range(flow.sent))
    finally:
        for flow in flows:
            flow.end()
        daemon.terminate()
        assert daemon.wait(240) == 0
    until(lambda: not application_sockets())


def row_of(job: Job) -> dict[str, Any]:
    rows: list[dict[str, Any]] = trilithon("job", "list")
    return next(row for row in rows if row["job"] == job.id)
