"""Says of a job why the system acts, or does not: the first reason that holds, in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trilithon.control.journal.rows import DesiredState
from trilithon.control.state import JobRecord
from trilithon.model.mode import Mode
from trilithon.policies.feedback import CLIP_CODES
from trilithon.policies.scene import JobStatus
from trilithon.service.dashboard.ledger import LedgerEntry
from trilithon.service.dashboard.numbers import ago

# Older decisions no longer explain what is seen now.
RECENT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Why:
    """`kind` is one word for pages: acted, held, advises, watches, trouble, idle. `decision` is the
    id of the decision that it tells of, if it is one.
    """

    kind: str
    text: str
    decision: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyWords:
    """What a policy says: its name, what it publishes about itself, and its latest decision about
    the whole cluster.
    """

    name: str
    published: Mapping[str, Any]
    cluster: LedgerEntry | None


def why(
    record: JobRecord,
    status: JobStatus | None,
    met: bool | None,
    own: LedgerEntry | None,
    policy: PolicyWords,
    now_s: float,
) -> Why:
    """Why the controller acts on a job or not. `own` is the latest decision about the job."""
    if (stopped := _stopped(record)) is not None:
        return stopped
    recent = own is not None and now_s - own.time_s < RECENT_S
    newer = own is not None and policy.cluster is not None and own.time_s < policy.cluster.time_s
    stale = met is False and newer
    if own is not None and recent and not stale and own.outcome not in {"noted", "alert"}:
        return _decided(own, now_s)
    if record.mode is Mode.OFF:
        return Why("watches", "The job is in mode off: the controller only observes it.")
    if status is not None and status.hold_reason:
        return Why("held", f"Holds: {CLIP_CODES[status.hold_reason]}.")
    if met:
        return Why("idle", "Meets its intent: nothing to do.")
    if own is not None and recent and not stale:
        return Why("watches", own.sentence, own.id)
    return _undecided(record, met, policy, now_s)


def _stopped(record: JobRecord) -> Why | None:
    if record.desired is DesiredState.DELETE:
        return Why("trouble", "The job is being deleted.")
    if record.desired is DesiredState.PAUSE:
        return Why("idle", "Paused by its owner; it keeps its checkpoint.")
    if record.problem:
        return Why("trouble", record.problem)
    return None if record.running else Why("idle", "The job is starting.")


def _decided(entry: LedgerEntry, now_s: float) -> Why:
    when = ago(entry.time_s, now_s)
    if entry.outcome == "done":
        text = f"Acted {when}: {entry.sentence}"
        if entry.clipped:
            text += f" Not granted: {'; '.join(entry.clipped)}."
        return Why("acted", text, entry.id)
    if entry.outcome == "advised":
        return Why("advises", f"Advises, {when}: {entry.sentence}", entry.id)
    if entry.outcome in {"held", "superseded"}:
        reason = "; ".join(entry.clipped) or "superseded"
        return Why(
            "held", f"Wanted to act {when}, and did not: {reason}. {entry.sentence}", entry.id
        )
    return Why("acted", f"{entry.outcome.capitalize()} {when}: {entry.sentence}", entry.id)


def _undecided(record: JobRecord, met: bool | None, policy: PolicyWords, now_s: float) -> Why:
    """Of a job without a recent decision of its own: what the policy says of the whole cluster."""
    if (until_s := policy.published.get("blacklisted", {}).get(record.job.id)) is not None:
        left_s = until_s - now_s
        text = f"{policy.name} leaves it alone for {left_s:.0f} s: more did not help lately."
        return Why("held", text)
    if not record.job.intent.thresholds and not record.job.intent.constraints:
        return Why("idle", "The job has no thresholds: nothing to reach.")
    if met is None:
        return Why("watches", "Not measured yet: the controller waits for complete metrics.")
    if (step := policy.published.get("step")) is not None:
        jobs, since_s = ", ".join(step["jobs"]), step["since_s"]
        text = f"{policy.name} waits for the effect of its {step['kind']} of {jobs}, "
        return Why("held", text + f"{ago(since_s, now_s)}, before the next step.")
    if (said := policy.cluster) is not None:
        return Why("watches", f"{ago(said.time_s, now_s).capitalize()}: {said.sentence}", said.id)
    return Why("watches", f"{policy.name} has not decided anything about it yet.")
