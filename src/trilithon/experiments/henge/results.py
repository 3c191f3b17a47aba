"""Owns Henge's results as data: JSON beside the page that is made of it, so that one experiment can be run again
without all others, and a page written again without any.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from trilithon.errors import FileUnreadable
from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.henge.mixes import Ranking
from trilithon.experiments.henge.moved import Moved, Task
from trilithon.experiments.henge.spark_diurnal import Result
from trilithon.experiments.henge.suite import Beside, Outcome, Summary
from trilithon.experiments.runs import Steering

FORMAT: Final = "trilithon-henge-results/1"


@dataclass(frozen=True)
class Whole:
    """Everything that a page tells."""

    outcomes: Sequence[Outcome] = ()
    ranking: Ranking | None = None
    moved: Sequence[Moved] = ()
    unmoved: Sequence[str] = ()
    spark: Sequence[Result] = ()

    def renewed(self, other: "Whole") -> "Whole":
        """With what the other has in the place of the same here."""
        by_name = {one.experiment.name: one for one in (*self.outcomes, *other.outcomes)}
        found = replace(self, outcomes=[by_name[name] for name in EXPERIMENTS if name in by_name])
        if other.ranking is not None:
            found = replace(found, ranking=other.ranking)
        if other.moved:
            found = replace(found, moved=other.moved, unmoved=other.unmoved)
        return replace(found, spark=other.spark) if other.spark else found


def beside(page: Path) -> Path:
    """Where the numbers of a page are."""
    return page.with_suffix(".json")


def read(path: Path) -> Whole:
    """What was written before; nothing if there is no such file."""
    if not path.exists():
        return Whole()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise KeyError(FORMAT)  # noqa: TRY301 - told like everything else that is missing
        return of_data(data)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise FileUnreadable(f"{path} holds no results: {error!r}.", "Choose another.") from error


def write(path: Path, whole: Whole) -> None:
    """All of it or nothing: hours of running are not lost to an interruption."""
    text = json.dumps(as_data(whole), indent=1, ensure_ascii=False) + "\n"
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def as_data(whole: Whole) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "experiments": [_experiment(one) for one in whole.outcomes],
        "mixes": None if whole.ranking is None else _ranking(whole.ranking),
        "chosen": [_moved(one) for one in whole.moved],
        "unmoved": list(whole.unmoved),
        "spark": [one.as_data() for one in whole.spark],
    }


def of_data(data: Mapping[str, Any]) -> Whole:
    mixes = data["mixes"]
    return Whole(
        [_experiment_of(one) for one in data["experiments"]],
        None if mixes is None else _ranking_of(mixes),
        [_moved_of(one) for one in data["chosen"]],
        list(data["unmoved"]),
        [Result(**one) for one in data.get("spark", ())],
    )


def _experiment(found: Outcome) -> dict[str, Any]:
    return {
        "experiment": found.experiment.name,
        "figures": [
            {
                "what": one.figure.what,
                "unit": one.figure.unit,
                "paper": one.figure.value,
                "ours": one.ours,
                "worse": one.worse,
                "source": one.figure.source,
                "apart": one.figure.apart or None,
            }
            for one in found.figures
        ],
        "ways": {
            variant: {
                str(steering): {
                    "average": summary.average,
                    **{f"p{share}": value for share, value in summary.percentiles.items()},
                    "at_end": summary.at_end,
                    "actions": summary.actions,
                    "instances": summary.instances,
                }
                for steering, summary in ways.items()
            }
            for variant, ways in found.ways.items()
        },
        "note": found.note,
    }


def _experiment_of(data: Mapping[str, Any]) -> Outcome:
    experiment = EXPERIMENTS[data["experiment"]]
    # A figure that came later has no number yet.
    ours = {one["what"]: one["ours"] for one in data["figures"]}
    return Outcome(
        experiment,
        tuple(Beside(figure, ours.get(figure.what)) for figure in experiment.figures),
        {
            variant: {Steering(way): _summary_of(told) for way, told in ways.items()}
            for variant, ways in data["ways"].items()
        },
        data["note"],
    )


def _summary_of(data: Mapping[str, Any]) -> Summary:
    shares = {int(key[1:]): value for key, value in data.items() if key[1:].isdigit()}
    return Summary(data["average"], shares, data["at_end"], data["actions"], data["instances"])


def _ranking(found: Ranking) -> dict[str, Any]:
    return {
        "mixes": found.mixes,
        "ways": {
            str(s): {"mean": found.mean[s], "p10": found.tenth[s], "rank": found.rank[s]}
            for s in Steering
        },
        "better": [
            {"way": str(a), "than": str(b), "mixes": count, "same": found.same[a, b]}
            for (a, b), count in found.better.items()
        ],
    }


def _ranking_of(data: Mapping[str, Any]) -> Ranking:
    ways = {Steering(way): told for way, told in data["ways"].items()}
    pairs = {(Steering(one["way"]), Steering(one["than"])): one for one in data["better"]}
    return Ranking(
        data["mixes"],
        {way: told["mean"] for way, told in ways.items()},
        {way: told["p10"] for way, told in ways.items()},
        {way: told["rank"] for way, told in ways.items()},
        {pair: one["mixes"] for pair, one in pairs.items()},
        {pair: one["same"] for pair, one in pairs.items()},
    )


def _moved(one: Moved) -> dict[str, Any]:
    task = one.task
    return {
        "run": f"{task.experiment} {task.variant}",
        "number": task.path,
        "factor": task.factor,
        "satisfaction": {str(way): value for way, value in one.satisfaction.items()},
        "figures": dict(one.figures),
    }


def _moved_of(data: Mapping[str, Any]) -> Moved:
    experiment, _, variant = data["run"].partition(" ")
    return Moved(
        Task(experiment, variant, data["number"], data["factor"]),
        {Steering(way): value for way, value in data["satisfaction"].items()},
        data["figures"],
    )
