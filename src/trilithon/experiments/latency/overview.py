"""Tells what each run keeps and takes, where a promise is missed, and how far the model errs.

Runs under rivals are not the same as those under the policy, so a mean over all of them would
compare nothing.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from trilithon.experiments.experiment_result import ExperimentResult, RunSummary
from trilithon.experiments.latency.catalogue import LATENCY, PRIMETESTER
from trilithon.experiments.latency.set_ups import ROUND_S, STEP_S, prime_tester_phases
from trilithon.experiments.markdown import listed, number, percent, table
from trilithon.experiments.paper import Paper
from trilithon.experiments.results import PaperResults
from trilithon.experiments.run_series import RunSeries

TIGHTEST: Final = "20 ms"
# Section V-A, beside our own sentence.
_THE_PAPERS: Final = (
    "The paper has one significant violation, when the load doubles after the warm-up, and shorter "
    "ones at other steps."
)


def overview(results: PaperResults, paper: Paper) -> str:
    """The section of the page, as far as the results go."""
    rows = [row for result in results.experiments for row in _rows(result, paper)]
    if not rows:
        return ""
    own = paper.title
    heads = (
        "",
        "",
        f"{own} keeps",
        "rival",
        "rival keeps",
        f"instance-hours of {own}",
        "of the rival",
    )
    sentences = [
        (
            "Kept intervals and instance-hours of each run, as means over its seeds ([with "
            f"intervals](./{paper.name}-details.md)). A run that only one of them has is not "
            "compared.\n"
        ),
        table(heads, rows),
        *(f"{text}\n" for text in (missed_text(results), errors_text(results)) if text),
    ]
    return "\n".join(["## Each run, beside its rival\n", *sentences])


def _rows(result: ExperimentResult, paper: Paper) -> Iterator[tuple[str, ...]]:
    for variant, by_strategy in result.summaries.items():
        own = by_strategy.get(LATENCY)
        rivals: list[tuple[str, RunSummary | None]] = [
            (name, summary) for name, summary in by_strategy.items() if name != LATENCY
        ]
        for name, rival in rivals or [("–", None)]:
            yield (
                result.experiment.name,
                variant,
                _kept(own),
                paper.label(name),
                _kept(rival),
                _hours(own),
                _hours(rival),
            )


def _kept(summary: RunSummary | None) -> str:
    return "–" if summary is None else percent(summary.average)


def _hours(summary: RunSummary | None) -> str:
    return "–" if summary is None else number(summary.instance_hours, "")


def _series(results: PaperResults, experiment: str, variant: str) -> RunSeries | None:
    result = results.experiment(experiment)
    return None if result is None else result.series.get(variant, {}).get(LATENCY)


def missed_spans(series: RunSeries) -> list[tuple[float, float]]:
    """When intervals were missed: from when on, and for how long. Those without a number are
    neither missed nor kept.
    """
    spans: list[tuple[float, float]] = []
    for i, kept in enumerate(series.utility):
        if kept is None or kept >= 1:
            continue
        from_s = series.from_s + i * series.step_s
        if spans and sum(spans[-1]) == from_s:
            spans[-1] = (spans[-1][0], spans[-1][1] + series.step_s)
        else:
            spans.append((from_s, series.step_s))
    return spans


def missed_text(results: PaperResults) -> str:
    """When the tightest promise was missed, beside the steps of the load."""
    series = _series(results, PRIMETESTER.name, TIGHTEST)
    # A series of a longer run has means over several intervals.
    if series is None or series.step_s != ROUND_S:
        return ""
    spans = missed_spans(series)
    if not spans:
        return f"At {TIGHTEST} the promise is missed in no interval (first seed). {_THE_PAPERS}"
    missed_when = listed(
        [f"for {for_s:g} s from {from_s:g} s on{_step(from_s)}" for from_s, for_s in spans]
    )
    return (
        f"At {TIGHTEST} the promise is missed {missed_when}; in no other interval (first seed). "
        f"{_THE_PAPERS}"
    )


def _step(at_s: float) -> str:
    """What the load does just then, if a step begins."""
    if at_s % STEP_S:
        return ""
    load = prime_tester_phases()
    before, after = load.rate_per_s(at_s - STEP_S), load.rate_per_s(at_s)
    if after == before:
        return ""
    if after == 2 * before:
        return " (the load doubles)"
    return f" (the load {'rises' if after > before else 'falls'} to {after:,.0f} records/s)"


def errors_text(results: PaperResults) -> str:
    """How far the model's predictions are from what was measured, for each run that keeps them."""
    errors = [
        _errors(result.experiment.name, variant, series)
        for result in results.experiments
        for variant, by_strategy in result.series.items()
        if (series := by_strategy.get(LATENCY)) is not None and series.predictions
    ]
    if not errors:
        return ""
    return (
        "The model's predictions of waiting, for the load that came, beside what was measured "
        f"after the adjustment (first seed): {'; '.join(errors)}."
    )


def _errors(experiment: str, variant: str, series: RunSeries) -> str:
    errors: Sequence[float] = [abs(measured - model) for _, model, measured in series.predictions]
    waiting = median(measured for _, _, measured in series.predictions)
    return (
        f"{experiment}, {variant}: {len(errors)} checks, median error {median(errors):.2f} ms, "
        f"where records wait {waiting:.1f} ms in the median"
    )
