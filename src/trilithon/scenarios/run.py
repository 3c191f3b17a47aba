"""Runs a scenario (engine, load, faults and rounds) and writes its results into a folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trilithon import folders
from trilithon.contract.change_wire import proposal_to_json
from trilithon.contract.engine import Reallocate, Status
from trilithon.contract.wire import outcome_to_json
from trilithon.control.rules import Limits
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.errors import FileExists, InvalidScenario, Problem
from trilithon.model.allocation import initial
from trilithon.model.intent import EdgeName
from trilithon.recording.parquet import ParquetRecorder
from trilithon.scenarios import report_page
from trilithon.scenarios.rounds import ControlledRounds, DecisionResult, ObservedRounds, Rounds
from trilithon.scenarios.run_figures import RunFigures
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.workloads.shapes import Shape

Tell = Callable[[float, float], None]
PARTS = ("recording.parquet", "decisions.jsonl", "report.html", "summary.json", "journal.sqlite")


@dataclass(frozen=True)
class Later:
    """A load whose time begins when its job starts."""

    shape: Shape
    start_s: float

    def total(self, at_s: float) -> float:
        return self.shape.total(max(0.0, at_s - self.start_s))

    def totals(self, at_s: Sequence[float]) -> list[float]:
        start_s = self.start_s
        return self.shape.totals([max(0.0, moment_s - start_s) for moment_s in at_s])


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    scenario: Scenario
    figures: RunFigures
    engine: SimulatedEngine


def engine_for(scenario: Scenario) -> SimulatedEngine:
    """A simulated cluster for a scenario, with its jobs, faults and timed rescales.

    Slots for what a job begins with that comes later are kept free until it does.
    """
    kept = sum(scheduled.job.instances for scheduled in scenario.jobs if scheduled.start_s > 0)
    engine = SimulatedEngine(
        scenario.machines,
        scenario.character,
        scenario.assumed,
        mode=scenario.way,
        seed=scenario.seed,
        arrival_cv2=scenario.arrival_cv2,
        step_s=scenario.step_s,
        slots=None if scenario.slots is None else max(1, scenario.slots - kept),
    )
    for scheduled in scenario.jobs:
        batching_ms = scenario.batching_ms.get(scheduled.job.id, {})
        if scheduled.start_s > 0:
            engine.at(scheduled.start_s, partial(_submit_later, engine, scheduled, batching_ms))
        else:
            _submit(engine, scheduled, batching_ms)
    for fault in scenario.faults:
        engine.inject(fault)
    for at_s, job, parallelism in scenario.rescales:
        engine.at(at_s, partial(_rescale, engine, job, parallelism))
    return engine


def _submit_later(
    engine: SimulatedEngine, scheduled: ScheduledJob, batching_ms: Mapping[EdgeName, float]
) -> None:
    engine.add_slots(scheduled.job.instances)
    _submit(engine, scheduled, batching_ms)


def _submit(
    engine: SimulatedEngine, scheduled: ScheduledJob, batching_ms: Mapping[EdgeName, float]
) -> None:
    first = replace(
        initial(scheduled.job),
        placement=dict(scheduled.placement),
        batching_ms=dict(batching_ms),
    )
    outcome = engine.submit(scheduled.job, first)
    if outcome.status is not Status.DONE:
        problem = Problem(outcome.code, "jobs", f"{scheduled.job.id}: {outcome.message}", "")
        raise InvalidScenario([problem], "the scenario")
    for source, shape in scheduled.loads.items():
        engine.feed(scheduled.job.id, source, Later(shape, scheduled.start_s))


def _rescale(engine: SimulatedEngine, job: str, parallelism: dict[str, int]) -> None:
    if (accepted := engine.jobs().get(job)) is not None:
        outcome = engine.apply(
            Reallocate(accepted.allocation.rescaled(parallelism).next_generation())
        )
        if outcome.status is Status.REFUSED:
            problem = Problem(outcome.code, "rescales", outcome.message, "")
            raise InvalidScenario([problem], "the scenario")


def simulate(
    scenario: Scenario,
    folder: Path | None = None,
    *,
    limits: Limits | None = None,
    record: Path | None = None,
    tell: Tell = lambda _now_s, _length_s: None,
) -> Result:
    """Runs a scenario to its end. With `folder`, its results are written there. Without `limits`
    the guard has those of the scenario. With `record`, the rounds of its policy are recorded into
    that folder, for `replay`.
    """
    engine = engine_for(scenario)
    figures = RunFigures()
    with ExitStack() as stack:
        recorder = decisions = None
        if folder is not None:
            _make(folder)
            recorder = stack.enter_context(ParquetRecorder(folder / "recording.parquet"))
            decisions = stack.enter_context(
                (folder / "decisions.jsonl").open("w", encoding="utf-8")
            )
        rounds: Rounds = ObservedRounds(engine, scenario.round_s)
        if scenario.policy is not None:
            guard_limits = limits or Limits(
                round_s=scenario.round_s, cool_down_s=scenario.cool_down_s
            )
            rounds = stack.enter_context(
                ControlledRounds(
                    engine,
                    scenario.policy,
                    guard_limits,
                    scenario.seed,
                    folder,
                    scenario.warm_up_s,
                    record,
                    scenario.requests,
                )
            )
        while engine.now_s < scenario.length_s - 1e-9:
            # A policy may want longer rounds, or shorter ones.
            wait_s = rounds.next_s
            engine.advance(min(wait_s, scenario.length_s - engine.now_s))
            acted = rounds.round()
            window = rounds.series.window(wait_s)
            if window is not None:
                figures.add(window, acted)
            if recorder is not None and decisions is not None:
                recorder.write(rounds.series.last)
                decisions.writelines(
                    json.dumps(_decision(decided), ensure_ascii=False) + "\n" for decided in acted
                )
            tell(engine.now_s, scenario.length_s)
    if folder is not None:
        _finish(folder, scenario, figures)
    return Result(scenario, figures, engine)


def _finish(folder: Path, scenario: Scenario, figures: RunFigures) -> None:
    (folder / "report.html").write_text(report_page.render(scenario, figures), encoding="utf-8")
    summary = {
        "scenario": scenario.name,
        "satisfaction": figures.overall,
        "jobs": figures.summary(),
    }
    (folder / "summary.json").write_text(
        json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def clear(folder: Path) -> None:
    """Removes the files of a run, and no others."""
    for part in PARTS:
        for path in folder.glob(f"{part}*"):
            path.unlink()


def _make(folder: Path) -> None:
    """Creates the folder of a run; refuses one that has the results of another run."""
    folders.make(folder)
    if any((folder / part).exists() for part in PARTS):
        raise FileExists(
            f"{folder} has the results of a run already.", "Choose another folder, or --force."
        )


def _decision(acted: DecisionResult) -> dict[str, Any]:
    decision = acted.decision
    return {
        "time_s": acted.time_s,
        "id": decision.id,
        "job": decision.job,
        "reason": decision.reason,
        "sentence": decision.sentence,
        "numbers": dict(decision.numbers),
        "causes": list(decision.causes),
        "expects": None if decision.expects is None else asdict(decision.expects),
        "clips": list(acted.clips),
        "changes": [proposal_to_json(change) for change in decision.changes],
        "outcomes": [outcome_to_json(outcome) for outcome in acted.outcomes],
    }
