"""Reads the ledger of decisions for pages: why, asked, granted, expected, realised, reverted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trilithon.control.describe import describe_change
from trilithon.control.encoding import expectation_from_json
from trilithon.control.explain import explain_one
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import ActionRow, DecisionRow
from trilithon.model.change import ALERT
from trilithon.model.utility import Sense
from trilithon.policies.feedback import Clip
from trilithon.service.dashboard.numbers import clock_time, number, value_of

# A decision that takes back an earlier one of its job has one of these words in its reason, and
# names it among its causes. One that asks for the rest of a reversion names that reversion.
_REVERTS: Final = ("REVERSION", "REVERT", "UNDO", "ROLL_BACK")
Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A decision in one row. `outcome` is a word: done, pending, refused, held, advised, noted."""

    id: str
    time_s: float
    time: str
    job: str | None
    policy: str
    reason: str
    sentence: str
    asked: tuple[str, ...]
    granted: tuple[str, ...]
    clipped: tuple[str, ...]
    outcome: str
    expected: str
    realised: str
    kept: bool | None
    reverted_by: str | None
    times: int

    @property
    def in_full(self) -> bool:
        return self.asked == self.granted


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that is known of it."""

    entry: LedgerEntry
    sentences: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    causes: tuple[str, ...]


def entries(
    journal: Journal, rows: Sequence[DecisionRow], redact: Redact = str
) -> list[LedgerEntry]:
    """The newest first."""
    reverted = _reverted(journal, rows)
    made = (_entry(row, journal.actions(row.id), reverted.get(row.id), redact) for row in rows)
    return list(made)[::-1]


def explanation(journal: Journal, row: DecisionRow, redact: Redact = str) -> Explanation:
    actions = journal.actions(row.id)
    later = () if row.job is None else journal.later_decisions(row.job, row.time_s, _REVERTS)
    reverted_by = _reverted(journal, [row, *later]).get(row.id)
    numbers = tuple((name, number(value)) for name, value in row.numbers.items())
    sentences = tuple(redact(text) for text in explain_one(row, actions)["sentences"])
    entry = _entry(row, actions, reverted_by, redact)
    return Explanation(entry, sentences, numbers, row.causes)


def acted_s(rows: Iterable[DecisionRow]) -> list[float]:
    """When something was granted to a decision: marks for plots."""
    return [row.time_s for row in rows if _changes(row.granted)]


def _entry(
    row: DecisionRow, actions: Sequence[ActionRow], reverted_by: str | None, redact: Redact
) -> LedgerEntry:
    expected, realised, kept = _expectation(row)
    return LedgerEntry(
        id=row.id,
        time_s=row.time_s,
        time=clock_time(row.time_s),
        job=row.job,
        policy=row.policy,
        reason=row.reason,
        sentence=redact(row.sentence),
        asked=_changes(row.asked),
        granted=_changes(row.granted),
        clipped=tuple(redact(str(Clip(**clip))) for clip in row.clips),
        outcome=_outcome(row, actions),
        expected=expected,
        realised=realised,
        kept=kept,
        reverted_by=reverted_by,
        times=row.times,
    )


def _reverted(journal: Journal, rows: Iterable[DecisionRow]) -> dict[str, str]:
    """By decision, the first one that changed its job back. What reverts another job's part of a
    step, is itself a reversion, or was not granted takes nothing back.
    """
    known = {row.id: row for row in rows}
    reverted: dict[str, str] = {}
    for row in known.values():
        if not _is_reversion(row) or not _changes(row.granted):
            continue
        causes, seen = list(row.causes), set()
        while causes:
            if (id_ := causes.pop()) in seen:
                continue
            seen.add(id_)
            cause = known.get(id_) or journal.decision(id_)
            if cause is not None and _is_reversion(cause):
                causes.extend(cause.causes)
            elif cause is not None and cause.job == row.job and _changes(cause.granted):
                reverted.setdefault(id_, row.id)
    return reverted


def _is_reversion(row: DecisionRow) -> bool:
    return any(word in row.reason for word in _REVERTS)


def _changes(changes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(describe_change(each) for each in changes if each.get("change") != ALERT)


def _outcome(row: DecisionRow, actions: Sequence[ActionRow]) -> str:
    if actions:
        words = [action.status or "pending" for action in actions]
        return next((word for word in words if word not in {"done", "unchanged"}), "done")
    if not _changes(row.asked):
        return "alert" if row.granted else "noted"
    if any(clip["code"] in {"ADVICE_ONLY", "MODE_OFF"} for clip in row.clips):
        return "advised"
    return "held" if not _changes(row.granted) else "superseded"


def _expectation(row: DecisionRow) -> tuple[str, str, bool | None]:
    """What was expected, what came, and whether that was met."""
    if row.expects is None or not _changes(row.granted):
        return "", "", None
    expects = expectation_from_json(row.expects)
    sign = "≤" if expects.sense is Sense.AT_MOST else "≥"
    name = expects.metric.removeprefix("latency.")
    expected = f"{name} {sign} {value_of(expects.metric, expects.value)}"
    if row.came is None:
        return expected, f"due {clock_time(expects.by_s)}", None
    return expected, value_of(expects.metric, row.came["value"]), row.came["kept"]
