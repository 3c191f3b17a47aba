"""Remembers what became of the latest decisions, for the policy that made them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trilithon.control.guard import Ruling
from trilithon.model.action import Outcome
from trilithon.policies.feedback import Feedback


class FeedbackLog:
    """Feedback by the id of the decision, for as many rounds as the policy asked for."""

    def __init__(self, rounds: int, known: Iterable[tuple[Feedback, tuple[str, ...]]] = ()) -> None:
        self._rounds = rounds
        self._known: dict[str, Feedback] = {}
        # By decision, the ids of the actions of its outcomes.
        self._actions: dict[str, tuple[str, ...]] = {}
        for feedback, actions in known:
            self._known[feedback.decision] = feedback
            self._actions[feedback.decision] = actions

    def decided(self, ruling: Ruling, number: int, time_s: float) -> None:
        """The guard ruled on a decision, in the round of this number."""
        decision = ruling.decision
        if self._rounds:
            self._known[decision.id] = Feedback(
                decision.id, number, time_s, decision.job, ruling.granted, ruling.clips
            )

    def acted(self, decision: str, action: str, outcome: Outcome) -> None:
        """The outcome of an action of a decision is known, or became known after all."""
        if (feedback := self._known.get(decision)) is None:
            return
        outcomes = dict(zip(self._actions.get(decision, ()), feedback.outcomes, strict=True))
        outcomes[action] = outcome
        self._known[decision] = replace(feedback, outcomes=tuple(outcomes.values()))
        self._actions[decision] = tuple(outcomes)

    def measured(self, decision: str, value: float | None, met: bool | None) -> None:
        """The expectation of a decision was checked."""
        if (feedback := self._known.get(decision)) is not None:
            self._known[decision] = replace(feedback, measured=value, met=met)

    def for_round(self, number: int) -> Mapping[str, Feedback]:
        """The feedback for the policy in this round. Drops what is older than it asked for."""
        oldest = number - self._rounds
        self._known = {id_: known for id_, known in self._known.items() if known.round >= oldest}
        self._actions = {id_: ids for id_, ids in self._actions.items() if id_ in self._known}
        return dict(self._known)
