"""Sends alerts to webhooks, in a thread of its own: a slow receiver holds nobody up."""

import hashlib
import hmac
import json
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from trilithon import logs
from trilithon.control.explain import clock
from trilithon.service.monitor.alerts import ActiveAlert

QUEUE: Final = 1000
TRIES: Final = 5
FIRST_WAIT_S: Final = 1.0
TIMEOUT_S: Final = 5.0
SIGNATURE: Final = "X-Trilithon-Signature"
_log = logs.logger()


@dataclass(frozen=True)
class Webhook:
    """Where alerts go. With a secret, each is signed: HMAC-SHA256 of the body, in hex."""

    url: str
    secret: str = ""

    def __repr__(self) -> str:
        return f"Webhook({self.url!r})"


class WebhookSender:
    """Delivers alerts to all webhooks, each in order; what is too much or fails is counted."""

    def __init__(self, webhooks: tuple[Webhook, ...], first_wait_s: float = FIRST_WAIT_S) -> None:
        self._webhooks, self._first_wait_s = webhooks, first_wait_s
        self._queue: queue.Queue[ActiveAlert | None] = queue.Queue(QUEUE)
        self._stop = threading.Event()
        self.delivered = self.failures = 0
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        if webhooks:
            self._thread.start()

    def notify(self, alert: ActiveAlert) -> None:
        if not self._webhooks:
            return
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self.failures += 1

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        import httpx2  # noqa: PLC0415 - slow to import, and few daemons have webhooks

        with httpx2.Client(timeout=TIMEOUT_S, follow_redirects=False) as http:
            while (alert := self._queue.get()) is not None:
                for webhook in self._webhooks:
                    self._deliver(http, webhook, alert)

    def _deliver(self, http: Any, webhook: Webhook, alert: ActiveAlert) -> None:
        body = json.dumps(alert_data(alert), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"}
        if webhook.secret:
            digest = hmac.new(webhook.secret.encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
        failure = ""
        for attempt in range(TRIES):
            try:
                answer = http.post(webhook.url, content=body, headers=headers)
                if answer.is_success:
                    self.delivered += 1
                    return
                failure = f"HTTP {answer.status_code}"
            except Exception as error:  # noqa: BLE001 - whatever a receiver does
                failure = f"{type(error).__name__}: {error}"
            if self._stop.wait(self._first_wait_s * 2**attempt):
                break
        self.failures += 1
        _log.warning("webhook_failed", url=webhook.url, alert=alert.code, reason=failure)


def alert_data(alert: ActiveAlert) -> dict[str, Any]:
    return {
        "code": alert.code,
        "severity": alert.severity.value,
        "status": "firing" if alert.ended_s is None else "resolved",
        "job": alert.job,
        "message": alert.message,
        "since_s": alert.since_s,
        "since": clock(alert.since_s),
        "ended_s": alert.ended_s,
        "sent_s": time.time(),
    }
