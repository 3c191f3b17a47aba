"""One Spark application per tenant: two tenants, two drivers, and one of them is killed."""

import itertools
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

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
from trilithon.engines.spark.kafka import Kafka
from trilithon.model.job import Job
from trilithon.spec.dump import dump_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def of_tenant(tenant: str) -> Job:
    return replace(job_named(f"apart-{tenant}"), tenant=tenant)


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
    files = []
    for tenant, job in jobs.items():
        files.append(str(state / f"{tenant}.json"))
        Path(files[-1]).write_text(json.dumps(dump_job(job)))
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
