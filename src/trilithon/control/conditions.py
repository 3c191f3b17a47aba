"""Follows the condition of each job: what is shown of it, and an event for each failure and each
recovery.
"""

import time

from trilithon.contract.condition import Condition, Health
from trilithon.control.journal import Journal
from trilithon.control.state import JobRecord

KINDS = ("degraded", "failed", "recovered")


def follow(
    journal: Journal, name: str, record: JobRecord, condition: Condition, now_s: float
) -> None:
    """Takes over the condition of a job. Events tell when it changes, not each retry."""
    before, record.condition = record.condition, condition
    record.problem = condition.reason
    if condition.health is Health.RUNNING:
        if condition.reason and (before is None or before.reason != condition.reason):
            journal.event("warning", name, _sentence(condition.reason), now_s)
        if record.trouble_since_s is not None:
            away_s = max(0.0, now_s - record.trouble_since_s)
            why = "" if before is None or not before.reason else f" {_sentence(before.reason)}"
            text = f"The job runs again after {away_s:.0f} s.{why}"
            journal.event("recovered", name, text, now_s)
            record.trouble_since_s = None
        return
    if record.trouble_since_s is None:
        record.trouble_since_s = now_s if condition.since_s is None else condition.since_s
    if before is None or (before.health, before.cause) != (condition.health, condition.cause):
        text = _sentence(condition.reason) + next_try(condition)
        journal.event(condition.health.value, name, text, now_s)


def next_try(condition: Condition | None) -> str:
    """When the engine tries again, in words; empty if it does not."""
    if condition is None or condition.next_try_s is None:
        return ""
    return f" Next try at {time.strftime('%H:%M:%SZ', time.gmtime(condition.next_try_s))}."


def _sentence(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
