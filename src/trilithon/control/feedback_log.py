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
        """A decision was ruled on in the round of this number."""
        decision = ruling.decision
        if self._rounds:
            self._known[decision.id] = Feedback(
                decision.id, number, time_s, decision.job, ruling.granted, ruling.clips
            )

    def acted(self, decision: str, outcome: Outcome) -> None:
        """The engine was asked to do something for a decision."""
        self._update(decision, lambda one: replace(one, outcomes=(*one.outcomes, outcome)))

    def settled(self, job: str, outcome: Outcome) -> None:
        """What the engine has of a job became known after all."""
        for id_, feedback in self._known.items():
            if feedback.job == job and feedback.pending:
                self._known[id_] = replace(
                    feedback,
                    outcomes=tuple(
                        outcome if one.status is Status.UNKNOWN else one
                        for one in feedback.outcomes
                    ),
                )

    def measured(self, decision: str, value: float | None, met: bool | None) -> None:
        """The time of a decision's expectation has come."""
        self._update(decision, lambda one: replace(one, measured=value, met=met))

    def for_round(self, number: int) -> Mapping[str, Feedback]:
        """What the policy is shown in this round. Older feedback is forgotten."""
        oldest = number - self._rounds
        self._known = {id_: one for id_, one in self._known.items() if one.round >= oldest}
        return dict(self._known)

    def _update(self, decision: str, change: Callable[[Feedback], Feedback]) -> None:
        if (feedback := self._known.get(decision)) is not None:
            self._known[decision] = change(feedback)
