"""Checks expectations: whether the metric that a decision expected was met in time."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.control.encoding import expectation_from_json
from trilithon.control.guard import Ruling
from trilithon.control.journal import Journal
from trilithon.measures.constraints import assess_constraints
from trilithon.measures.slo import assess_intents
from trilithon.model.columns import Floats
from trilithon.model.series import Window
from trilithon.model.snapshot import present
from trilithon.policies.decision import Expectation

SATISFACTION: Final = "satisfaction"
THROUGHPUT: Final = "throughput"


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The value of the expected metric, and whether it was met; None where it was not measured."""

    decision: str
    value: float | None
    met: bool | None


class Expectations:
    """The expectations that are not due yet. Those of before a restart are in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._due: list[tuple[float, str, str | None, Expectation]] = []
        for decision, job, expects in journal.open_expectations():
            self._push(decision, job, expectation_from_json(expects))

    def add(self, ruling: Ruling) -> None:
        """Adds the expectation of a decision of which a change was granted."""
        decision, expects = ruling.decision, ruling.decision.expects
        if expects is not None and ruling.acts:
            self._push(decision.id, decision.job, expects)

    def _push(self, decision: str, job: str | None, expects: Expectation) -> None:
        heapq.heappush(self._due, (expects.by_s, decision, job, expects))

    def shift_times(self, by_s: float) -> None:
        """The clock was set: what was expected within a time is, still."""
        self._journal.shift_expectations(by_s)
        # Their order stays.
        self._due = [(due_s + by_s, id_, job, expects) for due_s, id_, job, expects in self._due]

    def check(
        self, window: Callable[[], Window | None], now_s: float
    ) -> tuple[ExpectationResult, ...]:
        """Checks the expectations that are due, and writes the results to the journal."""
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
                (result.decision, {"time_s": now_s, "value": result.value, "kept": result.met})
                for result in results
            ]
        )
        return tuple(results)


def _values(window: Window) -> dict[str, Floats]:
    """The metrics that can be expected of a job; `satisfaction` is that of the whole cluster."""
    intents, jobs = assess_intents(window), len(window.layout.jobs)
    whole = np.full(jobs, intents.cluster_satisfaction)
    return {**intents.values, **assess_constraints(window).means(jobs), SATISFACTION: whole}


def _value(
    window: Window, values: Mapping[str, Floats], job: str | None, metric: str
) -> float | None:
    """The metric of a job, or of the whole cluster: its satisfaction, or the throughput of all."""
    rows = window.layout.job_row
    if job is None and metric == THROUGHPUT and metric in values:
        return present(values[metric].sum())
    if job is None:
        row = next(iter(rows.values()), None) if metric == SATISFACTION else None
    else:
        row = rows.get(job)
    return None if row is None or metric not in values else present(values[metric][row])
