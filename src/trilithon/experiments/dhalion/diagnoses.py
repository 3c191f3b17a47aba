"""Examines 500 random jobs with known faults, and writes the confusion matrix of the diagnoses."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from trilithon.experiments.dhalion.sick_jobs import (
    BACK_PRESSURE,
    NONE,
    Ailment,
    Examined,
    draw,
    examine,
)
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW, UNDER

# Seeds below were used while developing.
FIRST_SEED: Final = 1000
COUNT: Final = 500
RIGHT_GOAL, CURED_GOAL = 0.90, 0.01
_AT_ONCE: Final = 25
_DIAGNOSES: Final = (NONE, UNDER, SLOW, SKEW, OVER)


def run_diagnoses(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    count: int = COUNT,
    first_seed: int = FIRST_SEED,
) -> Iterator[dict[str, Any]]:
    """Examines the jobs that were not examined yet; yields all results after every few of them."""
    results = [Examined.of(each) for each in done.get("examined", ())]
    known = {each.seed for each in results}
    wanted = [seed for seed in range(first_seed, first_seed + count) if seed not in known]
    for number, seed in enumerate(wanted, 1):
        results.append(examine(draw(seed)))
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
    }


def _share(part: int, of: int) -> float | None:
    return part / of if of else None


def page(data: Mapping[str, Any]) -> str:
    """The confusion matrix as Markdown."""
    results = [Examined.of(each) for each in data["examined"]]
    heads = " | ".join(name.replace("_", " ") for name in _DIAGNOSES)
    text = (
        "# Diagnoses of random jobs\n\n"
        "Printed by `trilithon experiment dhalion diagnoses --into docs/results/dhalion.md`: "
        f"{len(results)} jobs on the simulated `spark-rtm`, drawn with seeds from {FIRST_SEED} on, "
        "which were not used while developing (`experiments/dhalion/sick_jobs.py`). Rows are what "
        "ails a job, columns the first diagnosis.\n"
    )
    for title, pressed in (
        (f"With back-pressure above {BACK_PRESSURE:.0%} of the time", True),
        ("Without", False),
    ):
        chosen = [each for each in results if each.pressed is pressed]
        text += f"\n## {title}\n\n| | {heads} | right |\n|{' --- |' * (len(_DIAGNOSES) + 2)}\n"
        for ailment in Ailment:
            of = [each for each in chosen if each.ailment == ailment]
            counted = Counter(each.diagnosis for each in of)
            cells = " | ".join(str(counted[name] or "") for name in _DIAGNOSES)
            right = f"{sum(each.correct for each in of)} of {len(of)}"
            text += f"| {ailment} | {cells} | {right} |\n"
    found = summary(results)
    return text + (
        "\n## Goals\n\n"
        f"- {_percent(found['right_of_pressed'])} of {found['pressed']} jobs with back-pressure "
        f"are diagnosed right; the goal is {RIGHT_GOAL:.0%}.\n"
        f"- {_percent(found['healthy_cured'])} of {found['healthy']} healthy jobs are changed; the "
        f"goal is at most {CURED_GOAL:.0%}.\n\n"
        'Without back-pressure "none" is right, of two faults either first; for the healthy '
        '"none" always is, also while they work off what a batch boundary left behind.\n'
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
