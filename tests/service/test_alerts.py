"""Alerts begin when their cause has lasted, end with it, and reach webhooks signed."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.service.test_access import client_of, token_for
from tests.service.test_api import JOB, apply, state, until
from trilithon.control.loop import Round
from trilithon.model.change import Severity
from trilithon.service.access.roles import Caller, Role
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.alerts import ActiveAlert, Alerts
from trilithon.service.monitor.facts import JobFacts, RoundFacts
from trilithon.service.monitor.hunger import Hunger
from trilithon.service.monitor.webhooks import QUEUE, SIGNATURE, Webhook, WebhookSender


@pytest.fixture
def facts(client: TestClient, running: Daemon) -> RoundFacts:
    """A round that saw a healthy job, to vary."""
    apply(client)
    until(lambda: state(client) == "running" and JOB.id in running.monitor.last.jobs)
    until(lambda: running.monitor.last.jobs[JOB.id].met is not None)
    running.stop()
    healthy = replace(running.monitor.last.jobs[JOB.id], hold_reason="", met=True)
    return replace(running.monitor.last, time_s=0.0, blind="", jobs={JOB.id: healthy})


def look(alerts: Alerts, facts: RoundFacts, at_s: float, blind: str = "", **job: Any) -> None:
    changed: JobFacts = replace(facts.jobs[JOB.id], **job)
    seen = replace(facts, time_s=at_s, blind=blind, jobs={JOB.id: changed})
    alerts.round(Round(1, at_s, 10.0, blind=blind), seen)


def test_an_intent_that_is_missed_for_five_minutes_is_an_alert_until_it_is_met(
    facts: RoundFacts,
) -> None:
    sent: list[ActiveAlert] = []
    alerts = Alerts(sent.append)
    look(alerts, facts, 0, met=False)
    look(alerts, facts, 290, met=False)
    assert alerts.active() == []
    look(alerts, facts, 300, met=False, utility=0.25, max_utility=1.0)
    (alert,) = alerts.active()
    assert (alert.code, alert.job, alert.since_s) == ("INTENT_MISSED", JOB.id, 0)
    assert "0.75" in alert.message
    look(alerts, facts, 310, met=False)
    assert len(sent) == 1
    look(alerts, facts, 320, blind="HOST_UNREACHABLE: gone", met=True)
    assert [a.code for a in alerts.active()] == ["INTENT_MISSED"]
    look(alerts, facts, 330, met=True)
    assert alerts.active() == []
    assert [a.ended_s for a in sent] == [None, 330]
    look(alerts, facts, 340, met=False)
    look(alerts, facts, 350, met=True)
    look(alerts, facts, 700, met=False)
    assert alerts.active() == []  # it was met meanwhile


@pytest.mark.parametrize(
    ("code", "after_s", "job", "blind"),
    [
        ("HUNGRY", 60, {"hungry": True, "hunger": Hunger.QUOTA}, ""),
        ("METRICS_MISSING", 120, {"hold_reason": "METRICS_MISSING", "met": None}, ""),
        ("JOB_DOWN", 60, {"state": "failed", "problem": "A cast fails."}, ""),
        ("ENGINE_UNREACHABLE", 30, {}, "HOST_UNREACHABLE: gone"),
    ],
)
def test_each_cause_has_its_alert(
    facts: RoundFacts, code: str, after_s: float, job: dict[str, Any], blind: str
) -> None:
    alerts = Alerts()
    look(alerts, facts, 0, blind, **job)
    if after_s:
        look(alerts, facts, after_s - 1, blind, **job)
        assert alerts.active() == []
    look(alerts, facts, after_s, blind, **job)
    assert [alert.code for alert in alerts.active()] == [code]
    look(alerts, facts, after_s + 1, met=True, hungry=False, hunger=None)
    assert alerts.active() == []


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_begins_no_alert_early_and_none_late(
    facts: RoundFacts, step_s: float
) -> None:
    alerts = Alerts()
    look(alerts, facts, 0, met=False)
    changed = replace(facts.jobs[JOB.id], met=False)
    seen = replace(facts, time_s=step_s + 10, jobs={JOB.id: changed})
    alerts.round(Round(2, step_s + 10, 10.0, clock_set_by_s=step_s), seen)
    look(alerts, facts, step_s + 299, met=False)
    assert alerts.active() == []
    look(alerts, facts, step_s + 300, met=False)
    assert [alert.since_s for alert in alerts.active()] == [step_s]


def test_a_controller_that_completes_no_round_is_an_alert(
    facts: RoundFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = Alerts()
    began = time.monotonic()
    alerts.watch(10.0, 5.0)
    assert alerts.active() == []
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: began + 100)
        alerts.watch(10.0, 5.0)
    assert [alert.code for alert in alerts.active()] == ["NOT_DECIDING"]
    look(alerts, facts, 0)
    alerts.watch(10.0, 6.0)
    assert alerts.active() == []


def test_callers_see_the_alerts_of_their_own_jobs(
    client: TestClient, running: Daemon, facts: RoundFacts
) -> None:
    for now_s in (0, 60):
        look(running.monitor.alerts, facts, now_s, hungry=True, hunger=Hunger.SLOTS)
    assert [row["code"] for row in client.get("/alerts").json()["active"]] == ["HUNGRY"]
    mine = client_of(running, token_for(running, ads="viewer")).get("/alerts").json()
    other = client_of(running, token_for(running, shop="admin")).get("/alerts").json()
    assert [row["job"] for row in mine["active"]] == [JOB.id]
    assert other == {"active": [], "recent": []}


def alert_events(running: Daemon) -> list[tuple[str, str | None, str]]:
    rows = running.journal.events(limit=10_000)
    return [(row.kind, row.job, row.text) for row in rows if row.kind.startswith("alert")]


def test_alerts_begin_and_end_as_events_of_the_stream(
    client: TestClient, running: Daemon, facts: RoundFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what policies alert of was among the events."""
    monitor = running.monitor
    last = running.journal.last_event()
    failed = {"state": "failed", "problem": "A cast fails."}
    for now_s in (0, 60, 70):
        look(monitor.alerts, facts, now_s, **failed)
        monitor._write_alerts()
    down = f"{JOB.id} is failed. A cast fails."
    assert alert_events(running) == [("alert", JOB.id, f"critical JOB_DOWN: {down}")]
    look(monitor.alerts, facts, 80)
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: began + 100)
        monitor.watch()
    assert alert_events(running)[1:] == [
        ("alert_ended", JOB.id, f"JOB_DOWN has ended: {down}"),
        ("alert", None, "critical NOT_DECIDING: No round was completed for 100 s."),
    ]
    # A tenant gets those of its own jobs.
    ads = Caller("ads", "ads", {"ads": Role.VIEWER})
    rows = running.journal.events(last)
    stream = monitor.hub._events(rows, ads, running.journal.jobs()).decode()
    assert stream.count("event: alert\n") == stream.count("event: alert_ended\n") == 1


def test_a_journal_that_cannot_be_written_holds_no_alert_up(
    running: Daemon, facts: RoundFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[ActiveAlert] = []
    running.monitor.alerts.notify = sent.append
    monkeypatch.setattr(running.journal, "add_events", lambda *_: 1 / 0)
    for now_s in (0, 60):
        look(running.monitor.alerts, facts, now_s, state="failed")
    with capture_logs() as logged:
        running.monitor._write_alerts()
    assert [alert.code for alert in sent] == ["JOB_DOWN"]
    assert [event["event"] for event in logged] == ["alerts_not_written"]


class Receiver:
    """Takes webhooks; refuses the first `refusals` of them."""

    def __init__(self, refusals: int = 0) -> None:
        self.received: list[tuple[dict[str, Any], str | None, bytes]] = []
        outer, left = self, [refusals]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if left[0]:
                    left[0] -= 1
                    self.send_response(503)
                else:
                    signature = self.headers.get(SIGNATURE)
                    outer.received.append((json.loads(body), signature, body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver(refusals=2)
    yield opened
    opened.close()


ALERT = ActiveAlert("HUNGRY", Severity.WARNING, "ads/chain", "It is hungry.", 7.0)


def test_a_webhook_gets_the_alert_signed_and_is_tried_again(receiver: Receiver) -> None:
    sender = WebhookSender((Webhook(receiver.url, "key"),), first_wait_s=0.01)
    sender.notify(ALERT)
    sender.notify(replace(ALERT, ended_s=9.0))
    until(lambda: len(receiver.received) == 2)
    sender.stop()
    (first, signature, body), (second, _, _) = receiver.received
    assert (first["code"], first["status"], first["job"]) == ("HUNGRY", "firing", "ads/chain")
    assert second["status"] == "resolved"
    assert signature == f"sha256={hmac.new(b'key', body, hashlib.sha256).hexdigest()}"
    assert (sender.delivered, sender.failures) == (2, 0)
    assert "key" not in repr(Webhook(receiver.url, "key"))


def test_a_webhook_that_never_answers_holds_nobody_up() -> None:
    """Whoever has something to tell goes on while the first message waits to be tried again."""
    sender = WebhookSender((Webhook("http://127.0.0.1:9/nobody"),), first_wait_s=600.0)
    for _ in range(2000):
        sender.notify(ALERT)
    assert sender.delivered == 0
    assert sender.failures >= 2000 - QUEUE - 1  # more than may wait are counted, not kept
    sender.stop()
