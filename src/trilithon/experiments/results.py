"""Reads and writes the results of a paper's experiments as JSON beside their page.

So one experiment can be run again without the others, and pages and plots be written without any.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trilithon.errors import FileUnreadable
from trilithon.experiments.mixes import MixResult, Ranking
from trilithon.experiments.paper import Paper
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.sensitivity import MovedRun, NumberMove
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.suite import ComparedFigure, ExperimentResult, RunSummary


def format_of(paper: Paper) -> str:
    return f"trilithon-{paper.name}-results/1"


@dataclass(frozen=True)
class PaperResults:
    """Everything that the pages of a paper tell."""

    experiments: Sequence[ExperimentResult] = ()
    ranking: Ranking | None = None
    # The mixes that were ranked, or those of them that are kept.
    mixes: Sequence[MixResult] = ()
    moved: Sequence[MovedRun] = ()
    unmoved: Sequence[str] = ()
    spark: Sequence[SparkRunResult] = ()

    def updated(self, other: "PaperResults", paper: Paper) -> "PaperResults":
        """These results, with those of the other in the place of the same here."""
        by_name = {one.experiment.name: one for one in (*self.experiments, *other.experiments)}
        experiments = [by_name[name] for name in paper.by_name if name in by_name]
        merged = replace(self, experiments=experiments)
        if other.ranking is not None:
            merged = replace(merged, ranking=other.ranking, mixes=other.mixes)
        if other.moved:
            merged = replace(merged, moved=other.moved, unmoved=other.unmoved)
        return replace(merged, spark=other.spark) if other.spark else merged

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
        if data["format"] != format_of(paper):
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
        "experiments": [_experiment_to_json(one) for one in results.experiments],
        "mixes": _mixes_to_json(results.ranking, results.mixes) if results.ranking else None,
        "chosen": [_moved_to_json(one) for one in results.moved],
        "unmoved": list(results.unmoved),
        "spark": [one.to_json() for one in results.spark],
    }


def results_from_json(data: Mapping[str, Any], paper: Paper) -> PaperResults:
    mixes = data["mixes"]
    return PaperResults(
        [_experiment_from_json(one, paper) for one in data["experiments"]],
        None if mixes is None else _ranking_from_json(mixes),
        [] if mixes is None else [MixResult(**one) for one in mixes.get("each", ())],
        [_moved_from_json(one) for one in data["chosen"]],
        list(data["unmoved"]),
        [SparkRunResult(**one) for one in data.get("spark", ())],
    )


def _experiment_to_json(result: ExperimentResult) -> dict[str, Any]:
    return {
        "experiment": result.experiment.name,
        "figures": [
            {
                "what": one.figure.name,
                "unit": one.figure.unit,
                "paper": one.figure.value,
                "ours": one.ours,
                "worse": one.worse,
                "source": one.figure.source,
                "apart": one.figure.not_comparable or None,
            }
            for one in result.figures
        ],
        "ways": {
            variant: {
                strategy: {
                    "average": summary.average,
                    **{f"p{share}": value for share, value in summary.percentiles.items()},
                    "at_end": summary.at_end,
                    "actions": summary.actions,
                    "instances": summary.instances,
                }
                for strategy, summary in by_strategy.items()
            }
            for variant, by_strategy in result.summaries.items()
        },
        "facts": dict(result.facts),
        "series": {
            variant: {strategy: series.to_json() for strategy, series in by_strategy.items()}
            for variant, by_strategy in result.series.items()
        },
    }


def _experiment_from_json(data: Mapping[str, Any], paper: Paper) -> ExperimentResult:
    experiment = paper.by_name[data["experiment"]]
    # A figure that was added since has no number yet.
    ours = {one["what"]: one["ours"] for one in data["figures"]}
    return ExperimentResult(
        experiment,
        tuple(ComparedFigure(figure, ours.get(figure.name)) for figure in experiment.figures),
        {
            variant: {strategy: _summary_from_json(one) for strategy, one in by_strategy.items()}
            for variant, by_strategy in data["ways"].items()
        },
        data.get("facts", {}),
        {
            variant: {
                strategy: RunSeries.from_json(series) for strategy, series in by_strategy.items()
            }
            for variant, by_strategy in data.get("series", {}).items()
        },
    )


def _summary_from_json(data: Mapping[str, Any]) -> RunSummary:
    shares = {int(key[1:]): value for key, value in data.items() if key[1:].isdigit()}
    return RunSummary(data["average"], shares, data["at_end"], data["actions"], data["instances"])


def _mixes_to_json(ranking: Ranking, mixes: Sequence[MixResult]) -> dict[str, Any]:
    return {
        "mixes": ranking.mixes,
        "ways": {
            name: {
                "mean": ranking.mean[name],
                "p10": ranking.tenth[name],
                "rank": ranking.rank[name],
            }
            for name in ranking.mean
        },
        "better": [
            {"way": a, "than": b, "mixes": count, "same": ranking.same[a, b]}
            for (a, b), count in ranking.better.items()
        ],
        "each": [
            {
                "seed": mix.seed,
                "jobs": mix.jobs,
                "machines": mix.machines,
                "satisfaction": dict(mix.satisfaction),
            }
            for mix in mixes
        ],
    }


def _ranking_from_json(data: Mapping[str, Any]) -> Ranking:
    ways = data["ways"]
    pairs = {(one["way"], one["than"]): one for one in data["better"]}
    return Ranking(
        data["mixes"],
        {name: numbers["mean"] for name, numbers in ways.items()},
        {name: numbers["p10"] for name, numbers in ways.items()},
        {name: numbers["rank"] for name, numbers in ways.items()},
        {pair: one["mixes"] for pair, one in pairs.items()},
        {pair: one["same"] for pair, one in pairs.items()},
    )


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
