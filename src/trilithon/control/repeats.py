"""Recognises decisions that repeat the last decision about the same job, with the same ruling.

A policy asks again in every round for what the guard refuses. The journal counts such repeats
instead of writing them again.
"""

from collections import deque
from dataclasses import replace
from typing import Final

from trilithon.contract.change_wire import proposal_to_json
from trilithon.control.encoding import text
from trilithon.control.guard import Ruling

# A policy names a decision of the latest rounds as a cause, if any.
_KNOWN_REPEATS: Final = 1000


class Repeats:
    """The last decision about each job, and about the cluster, that the journal has."""

    def __init__(self) -> None:
        # By subject: what was asked and granted, and the id of the decision in the journal.
        self._last: dict[str, tuple[str, str]] = {}
        # By subject whose last decision was a repeat: the ids of the latest repeats, and that of
        # the decision that they repeat.
        self._first: dict[str, tuple[deque[str], str]] = {}

    def first_of(self, ruling: Ruling) -> str | None:
        """The id of the decision that this one repeats; None if it is new, and then it is
        remembered.

        Every facet counts: a decision for other weights or another machine is new. A decision of
        which a change was granted is never a repeat.
        """
        decision, subject = ruling.decision, _subject(ruling)
        asked = [proposal_to_json(change) for change in decision.changes]
        # About the whole cluster, the same reason with another sentence is new.
        sentence = "" if decision.job else decision.sentence
        codes = sorted({clip.code for clip in ruling.clips})
        key = text([decision.reason, asked, codes, sentence])
        before = self._last.get(subject)
        if not ruling.acts and before is not None and before[0] == key:
            repeated, _ = self._first.setdefault(subject, (deque(maxlen=_KNOWN_REPEATS), before[1]))
            repeated.append(decision.id)
            return before[1]
        self._last[subject] = (key, decision.id)
        self._first.pop(subject, None)
        return None

    def with_known_cause(self, ruling: Ruling) -> Ruling:
        """The ruling with causes that the journal has: a repeated decision is replaced by the
        first.
        """
        repeated, first = self._first.get(_subject(ruling), ((), ""))
        causes = ruling.decision.causes
        known = tuple(dict.fromkeys(first if id_ in repeated else id_ for id_ in causes))
        if known == causes:
            return ruling
        return replace(ruling, decision=replace(ruling.decision, causes=known))

    def end_round(self, subjects: set[str], jobs: set[str]) -> None:
        """Forgets subjects without a decision in this round, and jobs that are gone."""
        self._last = {s: last for s, last in self._last.items() if s in subjects or _is_cluster(s)}
        self._first = {
            s: first for s, first in self._first.items() if _is_cluster(s) or _job(s) in jobs
        }


def _subject(ruling: Ruling) -> str:
    decision = ruling.decision
    return f"{decision.issuer}\n{decision.job or ''}"


def subjects(rulings: tuple[Ruling, ...]) -> set[str]:
    return {_subject(ruling) for ruling in rulings}


def _job(subject: str) -> str:
    return subject.partition("\n")[2]


def _is_cluster(subject: str) -> bool:
    return not _job(subject)
