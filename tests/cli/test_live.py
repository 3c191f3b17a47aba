"""The live view: what is known is shown, what is missing is a dash, what died says why."""

from dataclasses import replace

import numpy as np
from rich.console import Console

from tests.recording.test_recordings import SMALL
from trilithon.cli.live import draw, draw_brief, several, slots
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.measures.assess import assess
from trilithon.model.allocation import initial
from trilithon.model.intent import Constraint
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
    died = Accepted(job, initial(job), "degraded", "executor 1 lost")
    (found,) = summary(None, {"ads/mine": died})
    assert found["operators"] == []
    assert "degraded: executor 1 lost" in shown([found])


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


def limited(met: bool | None, at_most_ms: float = 20.0) -> dict[str, object]:
    """The figures of a job with a constraint."""
    snapshot = snapshot_from_json(SMALL)
    constraint = Constraint(("work",), at_most_ms, over_s=10)
    job = snapshot.jobs["ads/mine"]
    job = replace(job, intent=replace(job.intent, constraints=(constraint,)))
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
        {"sequence": ["work"], "mean_ms": 20.0, "at_most_ms": 20.0, "met": True}
    ]
    assert "work: mean 20.0 ms, at most 20 ms met" in shown([found])
    missed = limited(met=False, at_most_ms=19.0)
    assert "work: mean 20.0 ms, at most 19 ms missed" in shown([missed])
    assert "constraint missed" in shown([missed])
    unknown = limited(met=None)
    assert "work: mean not measured, at most 20 ms" in shown([unknown])
    assert "constraint missed" not in shown([unknown])
