"""Calls a policy so that it cannot stop the loop: one that raises or takes too long is skipped.

A policy decides in a thread of its own. Python cannot end a thread: one that takes too long goes
on, and the policy is skipped until it has come to an end. What it decides then is dropped, since
its scene is old. Where time stands still while it decides, it takes the time that it needs, in the
caller's thread.
"""

import threading
from dataclasses import dataclass, field

from trilithon.model.change import Alert, Severity
from trilithon.policies.decision import Decision
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import Scene

FAILED, TOO_SLOW = "POLICY_FAILED", "POLICY_TOO_SLOW"


@dataclass
class _Call:
    """One call, and what came of it."""

    thread: threading.Thread | None = None
    verdict: Verdict | None = None
    error: Exception | None = None


@dataclass
class PolicyCalls:
    """Calls one policy, round after round; without a limit, each call lasts as long as it takes."""

    policy: Policy
    limit_s: float | None
    error: Exception | None = None
    _running: _Call = field(default_factory=_Call)

    def decide(self, scene: Scene, state: State) -> Verdict:
        """The policy's verdict; if it fails, one that changes nothing and raises an alert. `error`
        is then what it raised, or a `TimeoutError`.
        """
        self.error = None
        thread = self._running.thread
        if thread is not None and thread.is_alive():
            text = f"The policy {self.policy.name} is still busy with an earlier round."
            self.error = TimeoutError(text)
            return _skipped(scene, state, TOO_SLOW, text)
        call = _Call()

        def run() -> None:
            try:
                call.verdict = self.policy.decide(scene, state)
            except Exception as error:  # noqa: BLE001 - a failing policy must not stop the loop
                call.error = error

        if self.limit_s is None:
            run()
        else:
            name = f"policy {self.policy.name}"
            call.thread = threading.Thread(target=run, name=name, daemon=True)
            self._running = call
            call.thread.start()
            call.thread.join(self.limit_s)
        if call.verdict is not None:
            return call.verdict
        if call.error is not None:
            self.error = call.error
            text = f"{self.policy.name} failed: {type(call.error).__name__}: {call.error}"
            return _skipped(scene, state, FAILED, f"The policy {text}")
        text = f"The policy {self.policy.name} took longer than {self.limit_s:g} s."
        self.error = TimeoutError(text)
        return _skipped(scene, state, TOO_SLOW, text)


def _skipped(scene: Scene, state: State, code: str, sentence: str) -> Verdict:
    advice = "Nothing is decided by it until it works again; replay a recording to find out why."
    alert = Alert(None, Severity.CRITICAL, code, sentence, advice)
    decision = Decision(f"{scene.round}:controller", None, (alert,), code, sentence)
    return Verdict((decision,), state)
