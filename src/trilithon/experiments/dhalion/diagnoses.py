"""Examines 500 random jobs with known faults, and writes the confusion matrix of the diagnoses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from trilithon.experiments.dhalion import confusion
from trilithon.experiments.dhalion.sick_jobs import (
    BACK_PRESSURE,
    HEALTHY_S,
    Ailment,
    Examined,
    draw,
    examine,
)
from trilithon.experiments.markdown import table
from trilithon.scenarios.chosen import ChosenNumbers

# Seeds below were used while developing, or looked at in results of earlier versions.
FIRST_SEED: Final = 2000
COUNT: Final = 500
RIGHT_GOAL, CURED_GOAL = 0.90, 0.01
_AT_ONCE: Final = 25


def run_diagnoses(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    chosen: ChosenNumbers | None = None,
    count: int = COUNT,
    first_seed: int = FIRST_SEED,
) -> Iterator[dict[str, Any]]:
    """Examines the jobs that were not examined yet; yields all results after every few of them."""
    seeds = range(first_seed, first_seed + count)
    results = [each for each in map(Examined.of, done.get("examined", ())) if each.seed in seeds]
    known = {each.seed for each in results}
    wanted = [seed for seed in seeds if seed not in known]
    for number, seed in enumerate(wanted, 1):
        results.append(examine(draw(seed), chosen))
        tell(f"job {len(results)} of {count}")
        if number % _AT_ONCE == 0 or number == len(wanted):
            yield {"examined": [each.plain() for each in results], **summary(results)}
    if not wanted:
        yield dict(done)


def summary(results: Sequence[Examined]) -> dict[str, Any]:
    """The shares that the goals are about."""
    pressed = [each for each in results if each.pressed]
    healthy = [each for each in results if each.ailment == Ailment.HEALTHY]
    return {
        "jobs": len(results),
        "pressed": len(pressed),
        "right_of_pressed": _share(sum(each.correct for each in pressed), len(pressed)),
        "right": _share(sum(each.correct for each in results), len(results)),
        "healthy": len(healthy),
        "healthy_cured": _share(sum(each.changed for each in healthy), len(healthy)),
        "healthy_examinations": sum(each.examinations for each in healthy),
    }


def _share(part: int, of: int) -> float | None:
    return part / of if of else None


def page(data: Mapping[str, Any]) -> str:
    """The confusion matrix as Markdown."""
    results = [Examined.of(each) for each in data["examined"]]
    text = (
        "# Diagnoses of random jobs\n\n"
        "Printed by `trilithon experiment dhalion diagnoses --into docs/results/dhalion.md`: "
        f"{len(results)} jobs on the simulated `spark-rtm`, drawn with seeds from {FIRST_SEED} on, "
        "which were not used while developing (`experiments/dhalion/sick_jobs.py`). Rows are what "
        "ails a job, columns the first diagnosis. Jobs with a fault are examined once. A healthy "
        f"job runs for {HEALTHY_S / 60:.0f} simulated minutes, and is examined again and again.\n"
    )
    for title, pressed in (
        (f"With back-pressure above {BACK_PRESSURE:.0%} of the time", True),
        ("Without", False),
    ):
        chosen = [each for each in results if each.pressed is pressed]
        rows = []
        for ailment in Ailment:
            of = [each for each in chosen if each.ailment == ailment]
            right = f"{sum(each.correct for each in of)} of {len(of)}"
            rows.append((ailment, *confusion.cells(each.diagnosis for each in of), right))
        text += f"\n## {title}\n\n{table(('', *confusion.HEADS, 'right'), rows)}"
    shares = summary(results)
    return text + (
        "\n## Goals\n\n"
        f"- {_percent(shares['right_of_pressed'])} of {shares['pressed']} jobs with back-pressure "
        f"are diagnosed right; the goal is at least {RIGHT_GOAL:.0%}.\n"
        f"- {_percent(shares['healthy_cured'])} of {shares['healthy']} healthy jobs are changed in "
        f"{shares['healthy_examinations']} examinations; the goal is at most {CURED_GOAL:.0%}.\n\n"
        'Without back-pressure "none" is right, of two faults either first; for the healthy '
        '"none" always is, also while they work off what a batch boundary left behind.\n'
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
