"""Reads and writes the results of a paper's experiments as JSON beside their page.

So one experiment can be run again without the others, and pages and plots be written without any.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from trilithon.errors import FileUnreadable
from trilithon.experiments.definition import PaperFigure
from trilithon.experiments.experiment_result import (
    AVERAGE,
    INSTANCE_HOURS,
    ComparedFigure,
    ExperimentResult,
    RunSummary,
)
from trilithon.experiments.mixes import MixResult, Ranking
from trilithon.experiments.paper import Paper
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.sensitivity import MovedRun, NumberMove
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.verdicts import FigureVerdict, JudgedFigure, judged_figures

FORMAT: Final = 2


def format_of(paper: Paper, version: int = FORMAT) -> str:
    return f"trilithon-{paper.name}-results/{version}"


@dataclass(frozen=True)
class PaperResults:
    """Everything that the pages of a paper tell."""

    experiments: Sequence[ExperimentResult] = ()
    ranking: Ranking | None = None
    # The mixes that were ranked, or those of them that are kept.
    mixes: Sequence[MixResult] = ()
    moved: Sequence[MovedRun] = ()
    unmoved: Sequence[str] = ()
    # What code and chosen numbers made the mixes and the moved numbers; None if not known.
    mixes_made_by: str | None = None
    moved_made_by: str | None = None
    spark: Sequence[SparkRunResult] = ()
    # What a paper has beside that, by name: its data, and what code and chosen numbers made it.
    extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def updated(self, other: "PaperResults", paper: Paper) -> "PaperResults":
        """These results, with those of the other in the place of the same here."""
        by_name = {one.experiment.name: one for one in (*self.experiments, *other.experiments)}
        experiments = [by_name[name] for name in paper.by_name if name in by_name]
        merged = replace(self, experiments=experiments)
        if other.ranking is not None:
            merged = replace(
                merged,
                ranking=other.ranking,
                mixes=other.mixes,
                mixes_made_by=other.mixes_made_by,
            )
        if other.moved:
            merged = replace(
                merged,
                moved=other.moved,
                unmoved=other.unmoved,
                moved_made_by=other.moved_made_by,
            )
        merged = replace(merged, extra={**self.extra, **other.extra})
        return replace(merged, spark=other.spark) if other.spark else merged

    def made_by(self, fingerprint: str) -> "PaperResults":
        """What of these was made by that code and those chosen numbers."""
        kept = PaperResults([one for one in self.experiments if one.made_by == fingerprint])
        if self.mixes_made_by == fingerprint:
            kept = replace(kept, ranking=self.ranking, mixes=self.mixes, mixes_made_by=fingerprint)
        if self.moved_made_by == fingerprint:
            kept = replace(kept, moved=self.moved, unmoved=self.unmoved, moved_made_by=fingerprint)
        same = {n: part for n, part in self.extra.items() if part["made_by"] == fingerprint}
        return replace(kept, extra=same)

    def experiment(self, name: str) -> ExperimentResult | None:
        return next((one for one in self.experiments if one.experiment.name == name), None)


def results_file(page: Path) -> Path:
    """The file of the numbers of a page."""
    return page.with_suffix(".json")


def read_results(path: Path, paper: Paper) -> PaperResults:
    """The results in a file; none if there is no such file."""
    if not path.exists():
        return PaperResults()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] == format_of(paper, 1):
            data = from_format_1(data)
        elif data["format"] != format_of(paper):
            raise KeyError(format_of(paper))  # noqa: TRY301 - reported like all that is missing
        return results_from_json(data, paper)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise FileUnreadable(
            f"{path} is not a file of {paper.title}'s results: {error!r}.",
            "Choose another file with --into, or remove this one.",
        ) from error


def write_results(path: Path, results: PaperResults, paper: Paper) -> None:
    """Writes all or nothing: an interruption does not cost hours of runs."""
    text = json.dumps(results_to_json(results, paper), indent=1, ensure_ascii=False) + "\n"
    new = path.with_name(f"{path.name}.new")
    new.write_text(_short_lists(text), encoding="utf-8")
    new.replace(path)


def _short_lists(text: str) -> str:
    """Indented JSON with each list of plain values on one line."""

    def joined(match: re.Match[str]) -> str:
        return "[" + re.sub(r"\n\s*", " ", match[1].strip()) + "]"

    return re.sub(r"\[\n([^\[\]{}]*)\]", joined, text)


def results_to_json(results: PaperResults, paper: Paper) -> dict[str, Any]:
    return {
        "format": format_of(paper),
        "experiments": [_experiment_to_json(one, paper) for one in results.experiments],
        "mixes": _mixes_to_json(results.ranking, results.mixes) if results.ranking else None,
        "chosen": [_moved_to_json(one) for one in results.moved],
        "unmoved": list(results.unmoved),
        "made_by": {"mixes": results.mixes_made_by, "chosen": results.moved_made_by},
        "spark": [one.to_json() for one in results.spark],
        **({"extra": dict(results.extra)} if results.extra else {}),
    }


def results_from_json(data: Mapping[str, Any], paper: Paper) -> PaperResults:
    mixes, made_by = data["mixes"], data.get("made_by", {})
    return PaperResults(
        experiments=[_experiment_from_json(one, paper) for one in data["experiments"]],
        ranking=None if mixes is None else _ranking_from_json(mixes),
        mixes=[] if mixes is None else [MixResult(**one) for one in mixes.get("each", ())],
        moved=[_moved_from_json(one) for one in data["chosen"]],
        unmoved=list(data["unmoved"]),
        mixes_made_by=made_by.get("mixes"),
        moved_made_by=made_by.get("chosen"),
        spark=[SparkRunResult(**one) for one in data.get("spark", ())],
        extra=data.get("extra", {}),
    )


def _experiment_to_json(result: ExperimentResult, paper: Paper) -> dict[str, Any]:
    return {
        "experiment": result.experiment.name,
        "made_by": result.made_by,
        "figures": [_figure_to_json(judged) for judged in judged_figures(paper, result)],
        "runs": {
            variant: {
                strategy: _summary_to_json(summary) for strategy, summary in by_strategy.items()
            }
            for variant, by_strategy in result.summaries.items()
        },
        "facts": dict(result.facts),
        "series": {
            variant: {strategy: series.to_json() for strategy, series in by_strategy.items()}
            for variant, by_strategy in result.series.items()
        },
    }


def _figure_to_json(judged: JudgedFigure) -> dict[str, Any]:
    compared = judged.compared
    data: dict[str, Any] = {
        "figure": compared.figure.name,
        "unit": compared.figure.unit,
        "paper": compared.figure.value,
        "ours": compared.ours,
        "verdict": str(judged.verdict),
        "sentence": judged.sentence,
        "source": compared.figure.source,
        **({"words": compared.figure.words} if compared.figure.words else {}),
    }
    if compared.each:
        data |= {"each": list(compared.each), "half_width": compared.half_width}
    return data | ({"void": compared.void} if compared.void else {})


def _experiment_from_json(data: Mapping[str, Any], paper: Paper) -> ExperimentResult:
    experiment = paper.by_name[data["experiment"]]
    figures = {figure["figure"]: figure for figure in data["figures"]}
    return ExperimentResult(
        experiment,
        tuple(_compared_from_json(one, figures.get(one.name)) for one in experiment.figures),
        {
            variant: {strategy: _summary_from_json(one) for strategy, one in by_strategy.items()}
            for variant, by_strategy in data["runs"].items()
        },
        data.get("facts", {}),
        {
            variant: {
                strategy: RunSeries.from_json(series) for strategy, series in by_strategy.items()
            }
            for variant, by_strategy in data.get("series", {}).items()
        },
        data.get("made_by"),
    )


def _compared_from_json(figure: PaperFigure, data: Mapping[str, Any] | None) -> ComparedFigure:
    # A figure that was added since has no number yet.
    if data is None or data.get("verdict") == FigureVerdict.NOT_MEASURED:
        return ComparedFigure(figure, None, measured=False)
    void = data.get("void", "")
    if each := data.get("each"):
        return ComparedFigure.of_seeds(figure, each, void)
    return ComparedFigure(figure, data["ours"], void=void)


def _summary_to_json(summary: RunSummary) -> dict[str, Any]:
    """A summary; what an older file did not have is left out again."""
    data: dict[str, Any] = {
        AVERAGE: summary.average,
        **{f"p{share}": value for share, value in summary.percentiles.items()},
        "at_end": summary.at_end,
        "actions": summary.actions,
        "instances": summary.instances,
    }
    if summary.instance_hours is not None:
        data[INSTANCE_HOURS] = summary.instance_hours
    if summary.acted is not None:
        data["acted"] = [[at_s, reason] for at_s, reason in summary.acted]
    if summary.runs > 1:
        data |= {"seeds": summary.runs, "half_widths": dict(summary.half_widths)}
    return data


def _summary_from_json(data: Mapping[str, Any]) -> RunSummary:
    shares = {int(key[1:]): value for key, value in data.items() if key[1:].isdigit()}
    acted = data.get("acted")
    return RunSummary(
        data[AVERAGE],
        shares,
        data["at_end"],
        data["actions"],
        data["instances"],
        data.get(INSTANCE_HOURS),
        None if acted is None else tuple((at_s, reason) for at_s, reason in acted),
        data.get("seeds", 1),
        data.get("half_widths", {}),
    )


def from_format_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """A file of the first format with the names of today; what it does not have stays missing."""
    experiments = []
    for old in data["experiments"]:
        figures = [{"figure": figure["what"], **figure} for figure in old["figures"]]
        experiments.append({**old, "figures": figures, "runs": old["ways"]})
    mixes = data["mixes"]
    if mixes is not None:
        better = [{"strategy": pair["way"], **pair} for pair in mixes["better"]]
        mixes = {**mixes, "strategies": mixes["ways"], "better": better}
    return {**data, "experiments": experiments, "mixes": mixes}


def _mixes_to_json(ranking: Ranking, mixes: Sequence[MixResult]) -> dict[str, Any]:
    return {
        "mixes": ranking.mixes,
        "strategies": {
            name: {
                "mean": ranking.mean[name],
                "p10": ranking.tenth[name],
                "rank": ranking.rank[name],
                **_known("worst_tenth", ranking.worst_tenth.get(name)),
                **_known("instance_hours", ranking.instance_hours.get(name)),
            }
            for name in ranking.mean
        },
        "better": [
            {"strategy": a, "than": b, "mixes": count, "same": ranking.same[a, b]}
            for (a, b), count in ranking.better.items()
        ],
        "each": [
            {
                "seed": mix.seed,
                "jobs": mix.jobs,
                "machines": mix.machines,
                "satisfaction": dict(mix.satisfaction),
                "worst_tenth": dict(mix.worst_tenth),
                "instance_hours": dict(mix.instance_hours),
            }
            for mix in mixes
        ],
    }


def _ranking_from_json(data: Mapping[str, Any]) -> Ranking:
    strategies = data["strategies"]
    pairs = {(pair["strategy"], pair["than"]): pair for pair in data["better"]}
    return Ranking(
        data["mixes"],
        {name: numbers["mean"] for name, numbers in strategies.items()},
        {name: numbers["p10"] for name, numbers in strategies.items()},
        {name: numbers["rank"] for name, numbers in strategies.items()},
        {pair: one["mixes"] for pair, one in pairs.items()},
        {pair: one["same"] for pair, one in pairs.items()},
        *(
            {name: numbers[key] for name, numbers in strategies.items() if key in numbers}
            for key in ("worst_tenth", "instance_hours")
        ),
    )


def _known(key: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {key: value}


def _moved_to_json(run: MovedRun) -> dict[str, Any]:
    return {
        "run": f"{run.move.experiment} {run.move.variant}",
        "number": run.move.path,
        "factor": run.move.factor,
        "satisfaction": dict(run.satisfaction),
        "figures": dict(run.figures),
    }


def _moved_from_json(data: Mapping[str, Any]) -> MovedRun:
    experiment, _, variant = data["run"].partition(" ")
    return MovedRun(
        NumberMove(experiment, variant, data["number"], data["factor"]),
        data["satisfaction"],
        data["figures"],
    )
