"""Judges our figures beside the paper's: as in the paper, better, worse, different, or void.

A figure agrees within 10 % of the paper's number. Times are compared from the moment from which the
paper counts, within a control round at least; shares agree within one percentage point, too. Words
of a text agree where they hold. A figure is void, and not counted, if its runs decided nothing: the
policy took no action where the paper's did, it makes no difference whether there is a policy at
all, a fault's end brought satisfaction back, or, where neither direction is better, most runs have
no number.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from trilithon.experiments.experiment_result import ComparedFigure, ExperimentResult
from trilithon.experiments.markdown import capitalised, listed, number, percent, stated
from trilithon.experiments.paper import Paper
from trilithon.experiments.scenario_builder import ROUND_S
from trilithon.experiments.strategies import BEST_STATIC, MANUAL, SAME, UNCONTROLLED

WITHIN: Final = 0.1
POINT: Final = 0.01


class FigureVerdict(StrEnum):
    AGREES = "as in the paper"
    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    VOID = "void"
    NOT_COMPARABLE = "not comparable"
    NOT_MEASURED = "not measured"


COUNTED: Final = (
    FigureVerdict.AGREES,
    FigureVerdict.BETTER,
    FigureVerdict.WORSE,
    FigureVerdict.DIFFERENT,
)


@dataclass(frozen=True)
class JudgedFigure:
    """A figure with its verdict, and a sentence that says why unless it agrees."""

    compared: ComparedFigure
    verdict: FigureVerdict
    sentence: str = ""


def judge(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> JudgedFigure:
    figure = compared.figure
    if figure.not_comparable:
        sentence = f"{capitalised(figure.not_comparable)}."
        return JudgedFigure(compared, FigureVerdict.NOT_COMPARABLE, sentence)
    if not compared.measured:
        sentence = "The stored results have no number for it."
        return JudgedFigure(compared, FigureVerdict.NOT_MEASURED, sentence)
    if void := void_reason(paper, result, compared):
        explain = paper.void_reasons.get((result.experiment.name, figure.name))
        why = explain(result) if explain is not None else None
        return JudgedFigure(compared, FigureVerdict.VOID, f"{void} {why}" if why else void)
    verdict = compare(compared)
    if verdict is FigureVerdict.AGREES:
        return JudgedFigure(compared, verdict)
    return JudgedFigure(compared, verdict, _sentence(paper, result, compared))


def judged_figures(paper: Paper, result: ExperimentResult) -> list[JudgedFigure]:
    return [judge(paper, result, compared) for compared in result.figures]


def count_verdicts(judged: Sequence[JudgedFigure]) -> Counter[FigureVerdict]:
    return Counter(figure.verdict for figure in judged)


def compare(compared: ComparedFigure) -> FigureVerdict:
    """Our number beside the paper's; what is never reached is worse, or different."""
    figure, ours = compared.figure, compared.ours
    if ours is None:
        missing_is_worse = figure.more_is_better is not None
        return FigureVerdict.WORSE if missing_is_worse else FigureVerdict.DIFFERENT
    if figure.words:
        holds = figure.between[0] <= ours <= figure.between[1]
        return FigureVerdict.AGREES if holds else FigureVerdict.DIFFERENT
    slack = WITHIN * abs(figure.value)
    if figure.unit == "s":
        slack = max(WITHIN * abs(figure.value - figure.scope.since_s), ROUND_S)
    elif figure.unit == "ratio":
        slack = max(slack, POINT)
    if abs(ours - figure.value) <= slack * (1 + 1e-9):
        return FigureVerdict.AGREES
    if figure.more_is_better is None:
        return FigureVerdict.DIFFERENT
    more = ours > figure.value
    return FigureVerdict.BETTER if more == figure.more_is_better else FigureVerdict.WORSE


def void_reason(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> str:
    """Why the runs of a figure decided nothing; empty if they did, or if that is not known."""
    if compared.void:
        return compared.void
    variants = result.variants_of(compared.figure)
    return (
        _few_known(compared)
        or _no_action(paper, result, compared, variants)
        or _no_difference(paper, result, variants)
        or _fault_ended(result, compared, variants)
    )


def _few_known(compared: ComparedFigure) -> str:
    """Where neither direction is better, a run without a number decided nothing."""
    runs, known = len(compared.each), len(compared.known)
    if compared.figure.more_is_better is not None or 2 * known >= runs:
        return ""
    return f"Nothing was decided in {runs - known} of {runs} runs."


def _no_action(
    paper: Paper, result: ExperimentResult, compared: ComparedFigure, variants: Sequence[str]
) -> str:
    scope = compared.figure.scope
    if scope.strategy:
        return ""
    own = paper.policy.name
    acted = [result.acted_between(variant, own, *scope.decided_s) for variant in variants]
    if not variants or any(one is not False for one in acted):
        return ""
    start_s, end_s = scope.decided_s
    when = f" after {start_s:,.0f} s" if start_s > 0 else ""
    when += f" before {end_s:,.0f} s" if end_s < inf else ""
    return f"{paper.title} took no action{when}, and the paper's did."


def _no_difference(paper: Paper, result: ExperimentResult, variants: Sequence[str]) -> str:
    names = [paper.policy.name, UNCONTROLLED.name, MANUAL.name]
    shares: list[float] = []
    for variant in variants:
        summaries = result.summaries[variant]
        if any(name not in summaries for name in names):
            return ""
        averages = [summaries[name].average for name in names]
        if max(averages) - min(averages) > SAME:
            return ""
        shares += averages
    if not shares:
        return ""
    return (
        f"{listed([paper.label(name) for name in names])} are the same "
        f"({percent(min(shares))} to {percent(max(shares))}), so nothing is learned."
    )


def _fault_ended(
    result: ExperimentResult, compared: ComparedFigure, variants: Sequence[str]
) -> str:
    if not compared.figure.scope.recovery or compared.ours is None:
        return ""
    ends_s = [
        fault.to_s
        for variant in variants
        for fault in result.experiment.variant(variant).faults
        if fault.to_s < result.experiment.duration_s
    ]
    if not ends_s or compared.ours < min(ends_s):
        return ""
    return (
        f"Satisfaction came back at {number(compared.ours, 's')}, after the fault had ended by "
        f"itself at {number(min(ends_s), 's')}."
    )


def _sentence(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> str:
    explain = paper.reasons.get((result.experiment.name, compared.figure.name))
    why = explain(result) if explain is not None else None
    difference = _difference(compared)
    if why is not None:
        return f"{difference}. {why}"
    context = ", ".join(_context(paper, result, compared))
    sentence = f"{difference}; {context}." if context else f"{difference}."
    return f"{sentence}{_bound(paper, result, compared)}"


def _difference(compared: ComparedFigure) -> str:
    figure, ours = compared.figure, compared.ours
    runs, known = len(compared.each), len(compared.known)
    where = f" in {known} of {runs} runs" if known < runs else ""
    if figure.words and ours is not None:
        return f"{number(ours, figure.unit)}{where or ' here'}; the paper says {stated(figure)}"
    theirs = f"the paper's {stated(figure)}"
    if ours is None:
        missed = f" in {runs - known} of {runs} runs" if runs else ""
        return f"Not reached{missed}, unlike {theirs}"
    apart = ours - figure.value
    way = "more" if apart > 0 else "less"
    if figure.unit == "ratio":
        size = f"{100 * abs(apart):.1f} points {way}"
    elif figure.unit == "s":
        size = f"{abs(apart):,.0f} s {way}"
    elif figure.value:
        size = f"{100 * abs(apart / figure.value):.0f} % {way}"
    else:
        size = f"{abs(apart):g} {way}"
    return f"{number(ours, figure.unit)}{where} is {size} than {theirs}"


def _context(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> Iterator[str]:
    """What else the runs of the figure show: how good the policy and others were in them."""
    variants = result.variants_of(compared.figure)
    own = paper.policy.name
    said = False
    for strategy in (own, UNCONTROLLED.name, MANUAL.name, BEST_STATIC.name):
        known = [
            result.summaries[variant][strategy]
            for variant in variants
            if strategy in result.summaries[variant]
        ]
        if not known:
            continue
        mean = sum(summary.average for summary in known) / len(known)
        if strategy == own:
            actions = sum(summary.actions for summary in known)
            runs = "" if len(variants) == 1 else f" in {len(variants)} runs"
            yield (
                f"{paper.title} has {percent(mean)} of the utility on average after "
                f"{number(actions, 'actions')}{runs}"
            )
        elif said:
            yield f"{paper.label(strategy)} {percent(mean)}"
        else:
            # Without the policy before it, nothing has said what the number is.
            yield f"{paper.label(strategy)} has {percent(mean)} of the utility on average"
        said = True


def _bound(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> str:
    """Whether a worse figure is the policy's or the cluster's, by the best static allocation."""
    figure = compared.figure
    worth = figure.unit in {"ratio", "utility"} and figure.more_is_better
    if not worth or compare(compared) is not FigureVerdict.WORSE:
        return ""
    ends = [
        (by_strategy[paper.policy.name].at_end, by_strategy[BEST_STATIC.name].at_end)
        for by_strategy in map(result.summaries.__getitem__, result.variants_of(figure))
        if BEST_STATIC.name in by_strategy
    ]
    if not ends:
        return ""
    own, best = (sum(values) / len(ends) for values in zip(*ends, strict=True))
    if best - own <= POINT:
        return f" The search finds no static allocation that ends higher ({percent(best)})."
    return f" It ends at {percent(own)}, the best static allocation at {percent(best)}."
