"""Owns explaining: from the journal, in sentences, what was decided, why, and what came of it."""

import time
from collections.abc import Mapping
from typing import Any

from trilithon.control.guard import Clip
from trilithon.control.journal import Journal
from trilithon.control.rows import ActionRow, DecisionRow
from trilithon.errors import NotFound


def explain(journal: Journal, job: str, limit: int = 20) -> list[dict[str, Any]]:
    """The latest decisions about a job, the oldest first, each with sentences and with its data."""
    if not journal.specs(job):
        raise NotFound(
            f"There is no job {job!r} in the journal.", "`trilithon job list` lists them."
        )
    return [
        explain_one(decision, journal.actions(decision.id))
        for decision in journal.decisions(job, limit)
    ]


def explain_one(decision: DecisionRow, actions: tuple[ActionRow, ...]) -> dict[str, Any]:
    sentences = [
        f"{decision.policy} decided ({decision.reason}): {decision.sentence}",
        *_numbers(decision),
        *_causes(decision),
        *_granted(decision, actions),
        *(_done(action) for action in actions),
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


def clock(time_s: float) -> str:
    """A time as people write it, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(time_s))


def _numbers(decision: DecisionRow) -> list[str]:
    if not decision.numbers:
        return []
    told = [
        f"{name} {'unknown' if value is None else f'{value:.4g}'}"
        for name, value in decision.numbers.items()
    ]
    return [f"It came from: {', '.join(told)}."]


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
        return [f"Nothing was asked for.{again}"]
    if not decision.granted:
        return [f"Nothing was granted: {'; '.join(clips) or 'nothing would have changed'}.{again}"]
    if not actions:
        return ["It was granted, and then not wanted any more."]
    return (
        [f"It was granted in part: {'; '.join(clips)}."] if clips else ["It was granted as asked."]
    )


def _done(action: ActionRow) -> str:
    what = _wanted(action.body)
    if action.started_s is None and action.ended_s is None:
        return f"{what} is about to be done."
    if action.ended_s is None:
        return f"{what} was begun; nobody knows yet what came of it."
    took = "" if action.took_s is None else f" in {action.took_s:.2f} s"
    why = f": {action.code} {action.message}".rstrip() if action.code or action.message else ""
    word = {
        "done": f"was done{took}",
        "unchanged": "changed nothing, it was so already",
        "refused": "was refused",
        "failed": "failed, and what was before is there again",
        "unknown": "may have been done, nobody can tell",
    }[action.status or "unknown"]
    return f"{what} {word} at {clock(action.ended_s)}{why}."


def _wanted(body: Mapping[str, Any]) -> str:
    if body["do"] == "reallocate":
        wanted = body["allocation"]["parallelism"]
        return ", ".join(f"{name} ×{count}" for name, count in wanted.items())
    named = [str(body[key]) for key in ("job", "operator", "index", "count") if key in body]
    return f"{body['do'].replace('_', ' ')} {' '.join(named)}".strip()


def _expected(decision: DecisionRow) -> list[str]:
    expects, came = decision.expects, decision.came
    if expects is None or not decision.granted:
        return []
    sign = "at most" if expects["metric"].startswith("latency") else "at least"
    told = f"It expected {expects['metric']} of {sign} {expects['value']:.4g} by {clock(expects['by_s'])}"
    if came is None:
        return [f"{told}; that time has not come, or nobody looked."]
    if came["value"] is None:
        return [f"{told}; what it was then is not known."]
    return [f"{told}; it was {came['value']:.4g}: {'kept' if came['kept'] else 'not kept'}."]
