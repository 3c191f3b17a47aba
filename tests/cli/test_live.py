"""The live view: what is known is shown, what is missing is a dash, what died says why."""

from rich.console import Console

from tests.recording.test_recordings import SMALL
from trilithon.cli.live import draw, draw_brief, several, slots
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.measures.assess import assess
from trilithon.model.allocation import initial
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
