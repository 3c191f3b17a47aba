"""Explains decisions in sentences, from the journal: what was decided, why, and the outcome."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from trilithon.control.conditions import KINDS
from trilithon.control.describe import describe_action, describe_change
from trilithon.control.encoding import expectation_from_json
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import ActionRow, DecisionRow, EventRow
from trilithon.errors import NotFound
from trilithon.policies.feedback import Clip

# Actions that ended without an answer of the engine, by their codes.
_ENDED_WITHOUT_ENGINE: Final = {
    "GONE": "Lapsed",
    "LAPSED": "Lapsed",
    "SUPERSEDED": "Superseded",
}
# Of one answer: a treatment that fails again and again follows from all that was tried before.
_MOST_CAUSES: Final = 100
_WORDS: Final = {"degraded": "is degraded", "failed": "failed", "recovered": "recovered"}


def explain(journal: Journal, job: str, limit: int = 20) -> list[dict[str, Any]]:
    """The latest decisions about a job, its failures and recoveries, and the decisions that these
    follow from, the oldest first, each with sentences and with its data. Of a decision about the
    whole cluster only what the job got: the rest may be about jobs of other tenants.
    """
    if not journal.specs(job):
        raise NotFound(
            f"There is no job {job!r} in the journal.", "`trilithon job list` lists them."
        )
    decisions = [
        explain_one(decision, journal.actions(decision.id))
        for decision in journal.decisions(job, limit)
    ]
    decisions += [
        explain_one(
            _part_of(decision, job),
            tuple(action for action in journal.actions(decision.id) if action.job == job),
        )
        for decision in journal.shared_decisions(job, limit)
    ]
    events = [explain_event(row) for row in journal.job_events_of(job, KINDS, limit)]
    latest = sorted(decisions + events, key=_order)[-limit:]
    return _with_causes(journal, latest, job)


def _part_of(decision: DecisionRow, job: str) -> DecisionRow:
    """What a decision about the whole cluster says of one job, and nothing of others."""

    def own(changes: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        return tuple(change for change in changes if change.get("job") == job)

    words = "; ".join(map(describe_change, own(decision.granted)))
    return replace(
        decision,
        sentence=f"For the whole cluster; for this job: {words}. `trilithon explain` without a "
        "job has all of it.",
        # Numbers about an operator name its job as a word.
        numbers={name: n for name, n in decision.numbers.items() if job in name.split()},
        asked=own(decision.asked),
        granted=own(decision.granted),
        clips=own(decision.clips),
        # It is about the throughput of all jobs.
        expects=None,
        came=None,
    )


def explain_cluster(journal: Journal, limit: int = 20) -> list[dict[str, Any]]:
    """The latest decisions about the whole cluster, such as machines added or removed, and those
    that they follow from.
    """
    latest = [
        explain_one(decision, journal.actions(decision.id))
        for decision in journal.cluster_decisions(limit)
    ]
    return _with_causes(journal, latest, None)


def chains(entries: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Entries that follow from each other together, the oldest first; the chain with the latest
    entry comes last.
    """
    found: list[list[Mapping[str, Any]]] = []
    for entry in sorted(entries, key=_order):
        linked = [chain for chain in found if any(e["id"] in entry["causes"] for e in chain)]
        found = [chain for chain in found if chain not in linked]
        found.append([*sorted((e for chain in linked for e in chain), key=_order), entry])
    return found


def _with_causes(
    journal: Journal, latest: list[dict[str, Any]], job: str | None
) -> list[dict[str, Any]]:
    """Entries with those that they follow from, and so on, however long ago. Only decisions about
    the same job: others may belong to other tenants.
    """
    known = {entry["id"]: entry for entry in latest}
    left = deque(cause for entry in reversed(latest) for cause in entry["causes"])
    while left and len(known) < len(latest) + _MOST_CAUSES:
        id_ = left.popleft()
        decision = None if id_ in known else journal.decision(id_)
        if decision is not None and decision.job == job:
            known[id_] = explain_one(decision, journal.actions(id_))
            left += decision.causes
    return sorted(known.values(), key=_order)


def _order(entry: Mapping[str, Any]) -> tuple[float, int, str]:
    """By time, and within a round in the order of its decisions: their ids end with a number."""
    return entry["time_s"], len(entry["id"]), entry["id"]


def explain_one(decision: DecisionRow, actions: tuple[ActionRow, ...]) -> dict[str, Any]:
    sentences = [
        f"{decision.policy} decided ({decision.reason}): {decision.sentence}",
        *_numbers(decision),
        *_causes(decision),
        *_granted(decision, actions),
        *(_done(action, decision.granted) for action in actions),
        *_expected(decision),
    ]
    return {
        "id": decision.id,
        "time_s": decision.time_s,
        "time": clock(decision.time_s),
        "job": decision.job,
        "reason": decision.reason,
        "times": decision.times,
        "numbers": dict(decision.numbers),
        "causes": list(decision.causes),
        "asked": list(decision.asked),
        "granted": list(decision.granted),
        "clips": list(decision.clips),
        "expects": decision.expects,
        "came": decision.came,
        "sentences": sentences,
    }


def explain_event(event: EventRow) -> dict[str, Any]:
    """A failure or a recovery, in the form of a decision that asked for nothing."""
    return {
        "id": f"event {event.id}",
        "time_s": event.time_s,
        "time": clock(event.time_s),
        "job": event.job,
        "reason": event.kind.upper(),
        "times": 1,
        "numbers": {},
        "causes": [],
        "asked": [],
        "granted": [],
        "clips": [],
        "expects": None,
        "came": None,
        "sentences": [f"The job {_WORDS[event.kind]}: {event.text}"],
    }


def clock(time_s: float) -> str:
    """A time in UTC, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(time_s))


def _numbers(decision: DecisionRow) -> list[str]:
    if not decision.numbers:
        return []
    numbers = [
        f"{name} {'unknown' if value is None else f'{value:.4g}'}"
        for name, value in decision.numbers.items()
    ]
    return [f"Based on: {', '.join(numbers)}."]


def _causes(decision: DecisionRow) -> list[str]:
    if not decision.causes:
        return []
    return [f"It follows from {' and '.join(decision.causes)}."]


def _granted(decision: DecisionRow, actions: tuple[ActionRow, ...]) -> list[str]:
    clips = [str(Clip(**clip)) for clip in decision.clips]
    again = (
        f" It was asked {decision.times} times, until {clock(decision.last_s)}."
        if decision.times > 1
        else ""
    )
    if not decision.asked:
        return [f"It asked for no change.{again}"]
    raised = [change for change in decision.granted if change.get("change") == "alert"]
    alerts = [f"It raised a {describe_change(alert)}" for alert in raised]
    if len(alerts) == len(decision.asked):
        return [*alerts, *([again.strip()] if again else [])]
    if len(alerts) == len(decision.granted):
        why = "; ".join(clips) or "nothing would have changed"
        return [*alerts, f"Nothing was granted: {why}.{again}"]
    if not actions:
        return [*alerts, "It was granted, and superseded before it was done."]
    if clips:
        return [*alerts, f"It was granted in part: {'; '.join(clips)}."]
    return [*alerts, "It was granted as asked."]


def _done(action: ActionRow, granted: tuple[Mapping[str, Any], ...]) -> str:
    what = describe_action(action.body, granted, action.facets)
    if action.started_s is None and action.ended_s is None:
        return f"Pending: {what}."
    if action.ended_s is None:
        return f"Begun: {what}; outcome unknown."
    took = "" if action.took_s is None else f" in {action.took_s:.2f} s"
    why = f": {action.code} {action.message}".rstrip() if action.code or action.message else ""
    word = {
        "done": f"Done{took}",
        "unchanged": "Unchanged, it was so already",
        "refused": "Refused by the engine",
        "failed": "Failed and rolled back",
        "unknown": "Outcome unknown",
    }[action.status or "unknown"]
    word = _ENDED_WITHOUT_ENGINE.get(action.code or "", word)
    return f"{word} at {clock(action.ended_s)}: {what}{why}."


def _expected(decision: DecisionRow) -> list[str]:
    expects, came = decision.expects, decision.came
    if expects is None or all(change.get("change") == "alert" for change in decision.granted):
        return []
    sense = expectation_from_json(expects).sense.value.replace("_", " ")
    expected = f"It expected {expects['metric']} of {sense} {expects['value']:.4g}"
    expected += f" by {clock(expects['by_s'])}"
    if came is None:
        return [f"{expected}; not checked yet."]
    if came["value"] is None:
        return [f"{expected}; it could not be measured then."]
    return [f"{expected}; it was {came['value']:.4g}: {'met' if came['kept'] else 'not met'}."]
