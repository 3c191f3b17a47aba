"""Logs: what goes wrong leaves an event with its fields and, where there is one, a traceback."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.testclient import TestClient

from tests.cluster import FakeCluster, chain
from tests.control.scene import ClusterClock
from tests.fakes import FakeEngine
from trilithon import logs
from trilithon.control.rules import Limits, Rules
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.errors import HostUnreachable, Refused
from trilithon.logs import LogLevel
from trilithon.model.allocation import initial
from trilithon.service import views
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.reattach import ReattachingEngine

PATIENCE_S = 120.0
Events = Callable[[], list[dict[str, Any]]]
RULES = Rules(limits=Limits(round_s=0.1, cool_down_s=10.0, fresh_s=10.0))


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, own = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**own)


@pytest.fixture
def events(capsys: pytest.CaptureFixture[str]) -> Events:
    """Everything that was logged since the last call, as data."""
    logs.configure(LogLevel.DEBUG, json=True)
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def named(events: Events, name: str) -> list[dict[str, Any]]:
    return [event for event in events() if event["event"] == name]


def until(events: Events, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := named(events, name)):
        assert time.monotonic() < deadline, f"{name} was not logged"
        time.sleep(0.05)
    return found[0]


def test_a_line_is_an_event_with_its_fields(events: Events) -> None:
    logs.logger().info("query_died", job="ads/clicks", reason="“gone”", path=Path("x"))
    (event,) = events()
    assert (event["event"], event["level"], event["job"]) == ("query_died", "info", "ads/clicks")
    assert (event["reason"], event["path"]) == ("“gone”", "x")
    assert event["timestamp"].endswith("Z")


def test_people_get_a_line_and_the_traceback_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    try:
        float("no")
    except ValueError:
        logs.logger().exception("round_failed", round=3)
    out, err = capsys.readouterr()
    first, second, *_, last = err.splitlines()
    assert first.endswith("[error    ] round_failed round=3")
    assert second == "Traceback (most recent call last):"
    assert last == "ValueError: could not convert string to float: 'no'"
    assert out == ""


@pytest.mark.parametrize("level", LogLevel)
def test_only_what_is_as_severe_as_the_level_is_logged(
    level: LogLevel, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(level, json=True)
    log = logs.logger()
    for name in LogLevel:
        getattr(log, name.value)("happened")
    shown = [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()]
    assert shown == [name.value for name in LogLevel][list(LogLevel).index(level) :]


def test_without_configuration_warnings_are_logged_and_nothing_else_is_touched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    handlers = logging.getLogger().handlers[:]
    log = logs.logger()
    log.info("usual")
    log.warning("strange")
    assert "strange" in (err := capsys.readouterr().err)
    assert "usual" not in err
    assert logging.getLogger().handlers == handlers


def test_libraries_log_in_the_same_form_from_warnings_on(events: Events) -> None:
    logging.getLogger("py4j").info("chatter")
    logging.getLogger("uvicorn.error").warning("%s is odd", "This")
    (event,) = events()
    assert (event["event"], event["logger"]) == ("This is odd", "uvicorn.error")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(auto_s=10.0)


@pytest.fixture
def running(tmp_path: Path, cluster: FakeCluster, events: Events) -> Iterator[Daemon]:
    engine = ReattachingEngine(lambda: cluster)
    with daemon(engine, RULES, tmp_path / "daemon", clock=ClusterClock(cluster)) as found:
        yield found


def test_a_round_that_fails_leaves_one_traceback_and_a_line_each_time(
    running: Daemon, cluster: FakeCluster, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(cluster, "reports", fail)
    running.wake()
    event = until(events, "round_failed")
    assert event["round"] > 0
    assert event["failure"] == "ZeroDivisionError: nobody thought of this"
    assert "in fail" in event["exception"]
    assert "exception" not in until(events, "round_failed")


def test_a_policy_that_fails_leaves_its_traceback_once(
    running: Daemon, cluster: FakeCluster, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise IndexError("nobody thought of this")

    monkeypatch.setattr(type(running.controller.policy), "decide", fail)
    event = until(events, "policy_failed")
    assert event["policy"] == running.controller.policy.name
    assert "in fail" in event["exception"]
    until(events, "round_done")
    assert not named(events, "policy_failed")


def test_an_engine_that_is_not_reached_is_logged_once_and_when_it_is_back(
    running: Daemon, cluster: FakeCluster, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise HostUnreachable("No host answers.")

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "jobs", fail)
        reason = until(events, "engine_not_reached")["reason"]
        assert reason == "HOST_UNREACHABLE: No host answers."
        until(events, "round_done")
    until(events, "engine_reached_again")


def test_what_the_engine_is_told_is_logged_with_its_outcome(
    running: Daemon, events: Events
) -> None:
    job = chain()
    running.commands.apply(job)
    event = until(events, "engine_action")
    assert (event["call"], event["job"], event["status"]) == ("submit", job.id, "done")


def test_a_request_that_fails_is_logged_and_answered_in_the_shape_of_every_error(
    running: Daemon, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Any:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(views, "jobs", fail)
    headers = {"Authorization": f"Bearer {running.token}"}
    client = TestClient(api(running), base_url="http://127.0.0.1/api/v1", headers=headers)
    answer = client.get("/figures")
    assert (answer.status_code, answer.json()["code"]) == (500, "TRILITHON_ERROR")
    event = until(events, "request_failed")
    assert (event["method"], event["path"]) == ("GET", "/api/v1/figures")
    assert "in fail" in event["exception"]
    assert client.get("/jobs/no/body").status_code == 404
    refused = until(events, "request_refused")
    assert (refused["level"], refused["code"]) == ("info", "NOT_FOUND")


def test_a_host_logs_the_traceback_of_an_engine_that_fails(
    tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    host = Host(engine, tmp_path / "host.sock")
    serving = threading.Thread(target=host.serve, daemon=True)
    serving.start()
    remote = RemoteEngine(host.path)
    try:
        job = chain()
        remote.submit(job, initial(job))
        event = until(events, "engine_action")
        assert (event["job"], event["status"]) == (job.id, "done")

        def fail(*_: object) -> Any:
            raise RuntimeError("nobody thought of this")

        monkeypatch.setattr(engine, "capabilities", fail)
        with pytest.raises(Refused, match="nobody thought of this") as refused:
            remote.capabilities()
        assert refused.value.code == "ENGINE_FAILED"
        assert "in fail" in until(events, "engine_failed")["exception"]
    finally:
        remote.close()
        host.close()
        serving.join(timeout=PATIENCE_S)
