"""The live view: what is known is shown, what is missing is a dash, what died says why."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console, RenderableType

from tests.recording.test_recordings import SMALL
from trilithon.cli.live import JUICE, draw, draw_brief, intent_text, line, several, slots
from trilithon.cli.output import Listing
from trilithon.contract.engine import Accepted, Condition, Health
from trilithon.contract.figures import summary
from trilithon.measures.assess import assess
from trilithon.model.allocation import initial
from trilithon.model.intent import Constraint, Metric, Threshold
from trilithon.model.series import Series
from trilithon.recording.snapshots import snapshot_from_json


def shown(jobs: list[dict[str, object]]) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(draw(jobs))
    return captured.get()


def test_a_running_job_shows_its_figures() -> None:
    snapshot = snapshot_from_json(SMALL)
    window = Series.of([snapshot]).window()
    assert window is not None
    job = snapshot.jobs["ads/mine"]
    (found,) = summary(assess(window), {"ads/mine": Accepted(job, initial(job))})
    assert found["output_per_s"] == 100
    assert found["lag"] == 0
    assert found["operators"][0]["processed_per_s"] == 100
    assert found["operators"][0]["capacity"] is None
    text = shown([found])
    assert "ads/mine" in text
    assert "–" in text


def test_a_job_of_which_nothing_is_known_yet_is_there_all_the_same() -> None:
    job = snapshot_from_json(SMALL).jobs["ads/mine"]
    died = Accepted(job, initial(job), Condition(Health.DEGRADED, "executor 1 lost"))
    (found,) = summary(None, {"ads/mine": died})
    assert found["operators"] == []
    assert "degraded" in shown([found]).splitlines()[1]
    assert shown([found]).splitlines()[2].strip() == "executor 1 lost"


LONG = "Kafka does not answer at broker-1.example:9092, and neither do the " + "others " * 40
NAME = "advertising-and-partners/pageload-of-the-landing-pages"


def at(width: int, part: RenderableType) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(part)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_problem_cuts_neither_names_nor_states_nor_figures(width: int) -> None:
    """Names were cut to two letters, and the problem after 60."""
    job: dict[str, object] = {"constraints": [], "operators": [], "lag": 1_234_567}
    jobs = [
        {**job, "job": NAME, "health": "degraded", "reason": LONG},
        {**job, "job": "ads/other", "health": "running", "reason": "", "met": False},
    ]
    lines = at(width, draw(jobs))
    (first,) = (line for line in lines if NAME in line)
    assert first.split()[:2] == [NAME, "degraded"]
    assert "…" not in "".join(lines)
    assert "".join(" ".join(lines).split()).count("".join(LONG.split())) == 1
    assert all(len(line.rstrip()) <= width for line in lines)
    (second,) = (line for line in lines if "ads/other" in line)
    assert second.split()[:3] == ["ads/other", "running", "missed"]


def test_what_does_not_fit_at_all_is_longer_than_the_terminal_and_not_cut() -> None:
    rows = [("a" * 50, "failed", 12)]
    console = Console(width=40, color_system=None)
    with console.capture() as captured:
        console.print(Listing(("job", "state", "lag"), rows, optional=("lag",)), crop=False)
    assert "a" * 50 + "  failed" in captured.get()
    assert "lag" not in captured.get()


def test_juice_is_explained_where_it_is_shown() -> None:
    """1.37 of a share surprised everybody who saw it."""
    job = {"job": "ads/a", "health": "running", "reason": "", "constraints": [], "operators": []}
    assert JUICE not in " ".join(at(160, draw([job])))
    assert JUICE in " ".join(at(160, draw([{**job, "juice": 1.37}])))
    assert len(JUICE) < 80


def test_a_job_fits_in_a_line_of_a_log() -> None:
    job = {"job": "ads/a", "health": "running", "reason": "", "constraints": [], "operators": []}
    shown_job = {**job, "input_per_s": 200.04, "lag": 3, "p95_ms": 41.23, "met": True}
    assert line(shown_job) == "ads/a  in 200/s  out –  lag 3  p95 41.2 ms  met"
    assert line({**job, "health": "failed", "reason": "No."}).endswith("p95 –  failed: No.")


def test_many_jobs_fit_on_a_small_screen() -> None:
    snapshot = snapshot_from_json(SMALL)
    window = Series.of([snapshot]).window()
    assert window is not None
    job = snapshot.jobs["ads/mine"]
    (found,) = summary(assess(window), {"ads/mine": Accepted(job, initial(job))})
    assert (slots(found), several(found)) == (2, "work×2")
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(draw_brief([found] * 5))
    assert len(captured.get().splitlines()) == 6
    assert "work×2" in captured.get()


def limited(
    met: bool | None, at_most_ms: float = 20.0, thresholds: tuple[Threshold, ...] = ()
) -> dict[str, object]:
    """The figures of a job with a constraint."""
    snapshot = snapshot_from_json(SMALL)
    constraint = Constraint(("work",), at_most_ms, over_s=10)
    job = snapshot.jobs["ads/mine"]
    intent = replace(job.intent, thresholds=thresholds, constraints=(constraint,))
    job = replace(job, intent=intent)
    busy_s = snapshot.instances.busy_s.copy()
    busy_s[:] = np.nan if met is None else [20, 100]
    snapshot = replace(
        snapshot,
        jobs={job.id: job},
        instances=replace(snapshot.instances, busy_s=busy_s),
    )
    window = Series.of([snapshot]).window()
    assert window is not None
    (found,) = summary(assess(window), {job.id: Accepted(job, initial(job))})
    return found


def test_a_constraint_is_shown_with_its_mean_its_limit_and_whether_it_is_met() -> None:
    found = limited(met=True)
    assert found["constraints"] == [
        {"sequence": ["work"], "mean_ms": 20.0, "at_most_ms": 20.0, "over_s": 10, "met": True}
    ]
    assert "work: mean 20.0 ms, at most 20 ms over 10 seconds met" in shown([found])
    missed = limited(met=False, at_most_ms=19.0)
    assert "work: mean 20.0 ms, at most 19 ms over 10 seconds missed" in shown([missed])
    assert "constraint missed" in shown([missed])
    unknown = limited(met=None)
    assert "work: mean not measured, at most 20 ms over 10 seconds" in shown([unknown])
    assert "constraint missed" not in shown([unknown])


@pytest.mark.parametrize(
    ("met", "at_most_ms", "text"),
    [(True, 20.0, "met"), (False, 19.0, "constraint missed"), (None, 20.0, "")],
)
@pytest.mark.parametrize("thresholds", [(), (Threshold(Metric.THROUGHPUT, 100),)])
def test_the_intent_of_a_job_is_met_if_its_constraints_are(
    met: bool | None, at_most_ms: float, text: str, thresholds: tuple[Threshold, ...]
) -> None:
    """Figures counted thresholds alone: a job with constraints only was neither met nor missed, and
    one that missed a constraint had a met intent in the API.
    """
    found = limited(met, at_most_ms, thresholds)
    assert found["met"] is met
    assert str(intent_text(found)) == text


def test_a_missed_threshold_is_not_called_a_missed_constraint() -> None:
    found = limited(met=False, at_most_ms=19.0, thresholds=(Threshold(Metric.THROUGHPUT, 200),))
    assert str(intent_text(found)) == "missed"
