"""Remembers what became of the latest decisions, for the policy that made them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trilithon.control.guard import Ruling
from trilithon.model.action import Outcome, Status
from trilithon.policies.feedback import Feedback


class FeedbackLog:
    """Feedback by the id of the decision, for as many rounds as the policy asked for."""

    def __init__(self, rounds: int, known: Iterable[Feedback] = ()) -> None:
        self._rounds = rounds
        self._known = {feedback.decision: feedback for feedback in known}

    def decided(self, ruling: Ruling, number: int, time_s: float) -> None:
        """The guard ruled on a decision, in the round of this number."""
        decision = ruling.decision
        if self._rounds:
            self._known[decision.id] = Feedback(
                decision.id, number, time_s, decision.job, ruling.granted, ruling.clips
            )

    def acted(self, decision: str, outcome: Outcome) -> None:
        """The engine answered an action of a decision."""
        self._update(decision, lambda known: replace(known, outcomes=(*known.outcomes, outcome)))

    def settled(self, job: str, outcome: Outcome) -> None:
        """An outcome that was unknown became known."""
        for id_, feedback in self._known.items():
            if feedback.job == job and feedback.pending:
                self._known[id_] = replace(
                    feedback,
                    outcomes=tuple(
                        outcome if known.status is Status.UNKNOWN else known
                        for known in feedback.outcomes
                    ),
                )

    def measured(self, decision: str, value: float | None, met: bool | None) -> None:
        """The expectation of a decision was checked."""
        self._update(decision, lambda known: replace(known, measured=value, met=met))

    def for_round(self, number: int) -> Mapping[str, Feedback]:
        """The feedback for the policy in this round. Drops what is older than it asked for."""
        oldest = number - self._rounds
        self._known = {id_: known for id_, known in self._known.items() if known.round >= oldest}
        return dict(self._known)

    def _update(self, decision: str, change: Callable[[Feedback], Feedback]) -> None:
        if (feedback := self._known.get(decision)) is not None:
            self._known[decision] = change(feedback)
