"""Applications as host processes: started on demand, killed, stopped, and told apart."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.cluster import FakeCluster, chain
from tests.service.test_access import client_of, token_for
from tests.service.test_api import PATIENCE_S, until
from tests.service.test_keeper import HOST
from trilithon.cli.cluster_commands import headline
from trilithon.cli.hosting import ApplicationHosts, SharedHost
from trilithon.cli.main import app
from trilithon.cli.processes import application_sockets, socket_path
from trilithon.contract.engine import Condition, Engine, Health
from trilithon.control.rules import Limits, Rules
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.composite import ApplicationStatus, CompositeEngine, State
from trilithon.engines.host import Host
from trilithon.engines.start_failure import forget_start_failure, start_failure, start_failure_kept
from trilithon.errors import ClusterTooSmall, HostRuns, HostUnreachable, InvalidSetting
from trilithon.model.allocation import initial
from trilithon.model.hosts import application_of
from trilithon.model.job import Job
from trilithon.service.application_host import HUNG_S, ApplicationHost, check_socket
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.keeper import HostKeeper
from trilithon.service.settings import ServiceSettings

# How long a call may take: a host that runs answers within that on a slow machine, too.
READ_S = 30.0
# The same where a host hangs and the test waits for so long.
SHORT_READ_S = 10.0
LIMITS = Limits(round_s=0.2, cool_down_s=1.0, fresh_s=1.0)
ADS, SHOP = chain("a", "ads"), chain("b", "shop")


class Processes:
    """The hosts of a composite engine, each with a fake engine in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.later_s, self.read_s = folder, 0.0, READ_S
        # Hosts start as soon as this file is there.
        self.go = folder / "go"
        self.go.touch()
        self.keepers: dict[str, HostKeeper] = {}
        self.engine = CompositeEngine(
            self.application, lambda tenant: tenant, slots=20, how=REAL_TIME
        )

    def application(self, name: str) -> ApplicationHost:
        path = self.folder / f"{name}.sock"
        waiting = 'while [ ! -e "$0" ]; do sleep 0.1; done; exec "$@"'
        host = [sys.executable, "-c", HOST, str(path)]
        command = ["sh", "-c", waiting, str(self.go), *host]
        self.keepers[name] = HostKeeper(path, command, path.with_suffix(".log"))
        clock = lambda: time.monotonic() + self.later_s  # noqa: E731
        return ApplicationHost(self.keepers[name], self.read_s, clock)

    def pid(self, name: str) -> int:
        process = self.keepers[name]._process
        assert process is not None
        return process.pid


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.engine.close()
    for keeper in processes.keepers.values():
        if (process := keeper._process) is not None:
            process.kill()
            process.wait(PATIENCE_S)


@pytest.fixture
def served(processes: Processes, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon over the processes, with a job in each of two."""
    with daemon(processes.engine, Rules(limits=LIMITS), tmp_path / "daemon") as running:
        processes.engine.on_return = running.wake
        running.applications = processes.engine.applications
        for job in (ADS, SHOP):
            running.commands.apply(job)
        running.wake()
        until(lambda: health(running, ADS.id) == health(running, SHOP.id) == "running")
        yield running


def health(running: Daemon, job: str) -> str:
    return running.controller.state.jobs[job].health


def test_jobs_wait_for_their_application_without_being_called_refused(
    processes: Processes, tmp_path: Path
) -> None:
    processes.go.unlink()
    with daemon(processes.engine, Rules(limits=LIMITS), tmp_path / "daemon") as running:
        processes.engine.on_return = running.wake
        running.commands.apply(ADS)
        running.wake()
        record = running.controller.state.jobs[ADS.id]
        until(lambda: "application ads is being started" in record.problem)
        assert (record.tries, record.running) == (0, False)
        processes.go.touch()
        until(lambda: record.running and record.problem == "")


def test_one_that_is_killed_comes_back_and_the_other_process_is_the_same(
    served: Daemon, processes: Processes
) -> None:
    victim, other = processes.pid("ads"), processes.pid("shop")

    def kinds(job: Job) -> list[str]:
        return [event.kind for event in served.journal.job_events(job.id, 50)]

    os.kill(victim, signal.SIGKILL)
    until(lambda: "recovered" in kinds(ADS))
    until(
        lambda: health(served, ADS.id) == "running" and served.controller.state.jobs[ADS.id].running
    )
    assert processes.pid("ads") != victim
    # It was submitted to the new process at once, over new connections.
    assert ("degraded" in kinds(ADS), "not_started" in kinds(ADS)) == (True, False)
    assert "degraded" not in kinds(SHOP)
    assert processes.pid("shop") == other
    assert [(a.name, a.state) for a in processes.engine.applications()] == [
        ("ads", State.RUNNING),
        ("shop", State.RUNNING),
    ]


def test_one_that_hangs_costs_the_others_one_wait_and_is_not_started_twice(
    processes: Processes,
) -> None:
    processes.read_s = SHORT_READ_S
    engine = processes.engine
    until(lambda: started(engine, ADS) and started(engine, SHOP))
    before = processes.pid("ads")
    os.kill(before, signal.SIGSTOP)
    try:
        assert engine.conditions()[ADS.id].health is Health.DEGRADED
        began = time.monotonic()
        conditions = engine.conditions()
        assert conditions[SHOP.id] == Condition()
        assert conditions[ADS.id].health is Health.DEGRADED
        with pytest.raises(HostUnreachable):
            engine.cancel(ADS.id, keep=True)
        assert time.monotonic() - began < SHORT_READ_S
        assert processes.pid("ads") == before
    finally:
        os.kill(before, signal.SIGCONT)
    processes.later_s += HUNG_S
    until(lambda: engine.conditions()[ADS.id].health is Health.RUNNING)
    assert engine.jobs().keys() == {ADS.id, SHOP.id}


def started(engine: Engine, job: Job) -> bool:
    try:
        return engine.submit(job, initial(job)).applied
    except HostUnreachable:
        return False


def test_the_api_lists_applications_and_a_tenant_sees_only_its_own(running: Daemon) -> None:
    running.applications = lambda: (
        ApplicationStatus("ads", State.RUNNING, 5.0, ("ads/a",)),
        ApplicationStatus("both", State.LOST, 6.0, ("shop/b", "stock/c")),
    )
    everybody = client_of(running, running.token).get("/cluster").json()
    assert [(a["application"], a["state"], a["jobs"]) for a in everybody["applications"]] == [
        ("ads", "running", ["ads/a"]),
        ("both", "lost", ["shop/b", "stock/c"]),
    ]
    shop = client_of(running, token_for(running, shop="viewer")).get("/cluster").json()
    assert [(a["application"], a["jobs"]) for a in shop["applications"]] == [("both", ["shop/b"])]


def test_the_headline_counts_applications_and_names_the_state_of_those_that_do_not_run(
    client: TestClient, running: Daemon
) -> None:
    assert "application" not in str(headline(client.get("/cluster").json()))
    running.applications = lambda: tuple(
        ApplicationStatus(name, state, 5.0, ())
        for name, state in (("a", State.RUNNING), ("b", State.LOST), ("c", State.STARTING))
    )
    said = str(headline(client.get("/cluster").json()))
    assert "3 applications, 1 lost, 1 starting, policy" in said


def test_the_machines_of_anothers_application_are_not_shown(
    cluster: FakeCluster, running: Daemon
) -> None:
    """They have its name."""
    cluster.machines = ["10.0.0.7/ads/driver", "10.0.0.7/shop/driver"]
    running.applications = lambda: (ApplicationStatus("shop", State.RUNNING, 5.0, ("shop/b",)),)
    admin = client_of(running, running.token)
    until(lambda: "10.0.0.7/ads/driver" in admin.get("/cluster").json()["machines"])
    shop = client_of(running, token_for(running, shop="viewer")).get("/cluster").json()
    assert shop["machines"] == ["10.0.0.7/shop/driver"]
    assert [machine["name"] for machine in shop["machine_details"]] == shop["machines"]


@pytest.mark.parametrize(
    ("machine", "application"), [("10.0.0.7/ads/2", "ads"), ("10.0.0.7/2", ""), ("m1", "")]
)
def test_a_machine_is_named_after_its_application(machine: str, application: str) -> None:
    assert application_of(machine) == application


def test_tenants_share_an_application_by_the_service_file() -> None:
    settings = ServiceSettings.of({"applications": {"heavy": ["ads", "shop"]}})
    assert [settings.application_of(t) for t in ("ads", "shop", "logs")] == [
        "heavy",
        "heavy",
        "logs",
    ]


def test_a_cluster_is_divided_among_the_applications_of_the_tenants_that_are_known() -> None:
    heavy = {"heavy": ["ads", "shop"]}
    tenants: dict[str, dict[str, str]] = {"ads": {}, "shop": {}, "logs": {}}
    assert ServiceSettings().application_count == 4
    assert ServiceSettings.of({"applications": heavy}).application_count == 4
    assert ServiceSettings.of({"tenants": tenants}).application_count == 3
    both = {"tenants": tenants, "applications": heavy}
    assert ServiceSettings.of(both).application_count == 2


def test_among_how_many_a_cluster_is_divided_is_no_option_of_a_shared_host() -> None:
    result = CliRunner().invoke(app, ["serve", "--applications", "2"])
    assert result.exit_code == 2
    assert "It needs --per-tenant" in " ".join(result.output.split())


def test_why_a_host_did_not_start_is_kept_until_one_does(tmp_path: Path) -> None:
    path = tmp_path / "applications" / "ads.sock"
    assert start_failure(path) == ""
    with pytest.raises(ClusterTooSmall), start_failure_kept(path):
        raise ClusterTooSmall("No room.", "Make some.")
    assert start_failure(path) == "CLUSTER_TOO_SMALL: No room. Make some."
    with pytest.raises(OSError, match="JVM"), start_failure_kept(path):
        raise OSError("The JVM is gone.")
    assert start_failure(path) == "OSError: The JVM is gone."
    with start_failure_kept(path):
        pass
    assert start_failure(path) == ""
    with pytest.raises(ClusterTooSmall), start_failure_kept(path):
        raise ClusterTooSmall("No room.", "Make some.")
    forget_start_failure(path)
    assert start_failure(path) == ""


@pytest.mark.parametrize(
    "applications",
    [
        {"heavy": ["ads"], "light": ["ads"]},
        {"Heavy": ["ads"]},
        {"heavy": ["../ads"]},
        {"heavy": ["light"], "light": ["ads"]},
    ],
)
def test_applications_that_cannot_be_are_refused(applications: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidSetting, match="applications"):
        ServiceSettings.of({"applications": applications})


def test_a_job_cannot_run_in_a_shared_host_and_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    shared = Host(FakeCluster(), socket_path())
    with shared.in_background(), pytest.raises(HostRuns, match="A host of all tenants runs"):
        ApplicationHosts((), 8, ServiceSettings())
    ApplicationHosts((), 8, ServiceSettings())
    single = Host(FakeCluster(), socket_path("ads"))
    with single.in_background(), pytest.raises(HostRuns, match="Hosts of single applications"):
        SharedHost((), ServiceSettings())
    # What one that died left behind keeps nobody from starting.
    socket_path("ads").touch()
    assert application_sockets() == {"ads": socket_path("ads")}
    SharedHost((), ServiceSettings())


def test_a_socket_whose_path_is_too_long_is_refused_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachable, match="at most 107 bytes"):
        check_socket(tmp_path / ("x" * 110))
