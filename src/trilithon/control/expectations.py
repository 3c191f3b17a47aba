"""Looks back: what a decision expected of a metric, and what that was when its time had come."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from trilithon.control.encoding import expectation_from_json
from trilithon.control.guard import Ruling
from trilithon.control.journal import Journal
from trilithon.measures.slo import assess_intents
from trilithon.model.columns import Floats
from trilithon.model.series import Window
from trilithon.model.snapshot import present
from trilithon.policies.decision import Expectation


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The value of the expected metric; None where it could not be measured, and then nothing is met."""

    decision: str
    value: float | None
    met: bool | None


class Expectations:
    """The expectations whose time has not come yet. Those of earlier lives are read from the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._due: list[tuple[float, str, str, Expectation]] = []
        for decision, job, expects in journal.open_expectations():
            self._push(decision, job, expectation_from_json(expects))

    def add(self, ruling: Ruling) -> None:
        """A decision of which something was granted that acts."""
        decision, expects = ruling.decision, ruling.decision.expects
        if expects is not None and decision.job is not None and ruling.acts:
            self._push(decision.id, decision.job, expects)

    def _push(self, decision: str, job: str, expects: Expectation) -> None:
        heapq.heappush(self._due, (expects.by_s, decision, job, expects))

    def check(
        self, window: Callable[[], Window | None], now_s: float
    ) -> tuple[ExpectationResult, ...]:
        """Writes down what became of those whose time has come."""
        if not self._due or self._due[0][0] > now_s:
            return ()
        seen = window()
        values = {} if seen is None else _values(seen)
        results = []
        while self._due and self._due[0][0] <= now_s:
            _, decision, job, expects = heapq.heappop(self._due)
            value = None if seen is None else _value(seen, values, job, expects.metric)
            met = None if value is None else expects.met_by(value)
            results.append(ExpectationResult(decision, value, met))
        self._journal.came(
            [
                (one.decision, {"time_s": now_s, "value": one.value, "kept": one.met})
                for one in results
            ]
        )
        return tuple(results)


def _values(window: Window) -> dict[str, Floats]:
    """What may be expected of each job; `satisfaction` is that of the whole cluster."""
    intents = assess_intents(window)
    whole = np.full(len(window.layout.jobs), intents.cluster_satisfaction)
    return {**intents.values, "satisfaction": whole}


def _value(window: Window, values: Mapping[str, Floats], job: str, metric: str) -> float | None:
    row = window.layout.job_row.get(job)
    return None if row is None or metric not in values else present(values[metric][row])
