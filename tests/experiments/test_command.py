"""`trilithon experiment`: what it runs, keeps and refuses."""

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.experiments.sample_results import experiment_of, sample_results
from trilithon.cli.experiment_commands import draw_results
from trilithon.cli.main import app
from trilithon.errors import FileUnreadable, FileUnwritable, InvalidScenario, NotFound
from trilithon.experiments import provenance, spark_diurnal, suite
from trilithon.experiments.dhalion import diagnoses, layered_run, spark_health
from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.henge import henge_paper
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.page import page
from trilithon.experiments.papers import PAPERS
from trilithon.experiments.results import (
    PaperResults,
    format_of,
    read_results,
    results_file,
    results_from_json,
    results_to_json,
    write_results,
)
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.tenants import TENANTS
from trilithon.scenarios.chosen import load_chosen

STORED = Path(__file__).resolve().parent.parent.parent / "docs" / "results"


def test_a_rerun_gives_the_numbers_of_the_page_to_the_last_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under every strategy, with the first of its seeds: all of them would take five times as long,
    and go the same way.
    """
    monkeypatch.setattr(henge_paper, "PAPER", replace(PAPER, seeds=PAPER.seeds[:1]))
    command = ["experiment", "henge", "failure", "--workers", "1", "--output", "json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (again,) = json.loads(done.stdout)["experiments"]
    assert set(again["runs"]["nine"]) == {s.name for s in PAPER.plotted_strategies}
    assert again["figures"][0]["figure"] == "actions while numbers are missing"
    stored = json.loads((STORED / "henge.json").read_text(encoding="utf-8"))
    if stored["format"] != format_of(PAPER):
        pytest.xfail("The stored results are of an older format: they wait for a full run.")
    (kept,) = (one for one in stored["experiments"] if one["experiment"] == "failure")
    for part in ("experiment", "facts", "series"):
        assert again[part] == kept[part]
    assert set(again["series"]["nine"]) == set(again["runs"]["nine"])
    ours = [(figure["figure"], figure["ours"]) for figure in again["figures"]]
    assert ours == [(figure["figure"], figure["each"][0]) for figure in kept["figures"]]
    # One after the other: the actions with the first seed come first.
    acted = again["runs"]["nine"]["henge"]["acted"]
    assert acted
    assert acted == kept["runs"]["nine"]["henge"]["acted"][: len(acted)]


def test_the_papers_are_listed() -> None:
    done = CliRunner().invoke(app, ["experiment", "--help"])
    assert "henge" in done.stdout
    assert "SoCC'18" in done.stdout


def test_an_unknown_experiment_or_a_page_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "no" / "page.md")
    for arguments, error in (
        (["experiment", "henge", "magic"], NotFound),
        (["experiment", "henge", "all", "--into", missing], FileUnwritable),
    ):
        done = CliRunner().invoke(app, arguments)
        assert isinstance(done.exception, error)


def test_results_are_kept_and_pages_and_plots_are_written_from_them_again(tmp_path: Path) -> None:
    results = sample_results()
    data = results_to_json(results, PAPER)
    assert results_to_json(results_from_json(data, PAPER), PAPER) == data
    path = tmp_path / "page.md"
    write_results(results_file(path), results, PAPER)
    done = CliRunner().invoke(app, ["experiment", "henge", "page", "--into", str(path)])
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert text == page(results.updated(PaperResults(), PAPER), PAPER, "page")
    for part in ("## priorities", "3 mixes", "](plots/henge-priorities.svg)"):
        assert part in text
    details = (tmp_path / "page-details.md").read_text(encoding="utf-8")
    for part in (
        "## cost",
        "## priorities",
        "`storm.outage`",
        "`machine.*`",
        "](plots/henge-cost.svg)",
    ):
        assert part in details
    assert (tmp_path / "plots" / "henge-cost.svg").exists()


def test_parts_with_a_page_of_their_own_are_linked_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "dhalion.md"
    for name in ("dhalion.json", "dhalion-layered.json"):
        (tmp_path / name).write_bytes((STORED / name).read_bytes())
    done = CliRunner().invoke(app, ["experiment", "dhalion", "page", "--into", str(path)])
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert "- [layered](dhalion-layered.md): " in text
    assert "dhalion-diagnoses.md" not in text
    layered = (tmp_path / "dhalion-layered.md").read_text(encoding="utf-8")
    assert layered.startswith("# Henge with and without Dhalion's diagnosis")
    assert not (tmp_path / "dhalion-diagnoses.md").exists()


def test_a_part_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs on Spark take more than an hour: each is stored, with its page, as soon as it is
    done.
    """
    begun: list[int] = []

    def run(number: int, *_: object) -> list[spark_health.HealthRun]:
        begun.append(number)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return [
            spark_health.HealthRun(case.name, number, case.right, (), (), 0.5, 1.0)
            for case in spark_health.CASES
        ]

    monkeypatch.setattr(spark_health, "run_cases", run)
    command = ["experiment", "dhalion", "spark-health", "--into", str(tmp_path / "dhalion.md")]
    assert CliRunner().invoke(app, command).exit_code != 0
    text = (tmp_path / "dhalion-spark-health.md").read_text(encoding="utf-8")
    assert "hot key: 2 of 2 are diagnosed right" in text
    assert CliRunner().invoke(app, command).exit_code == 0
    assert begun == [0, 1, 2, *range(2, spark_health.RUNS)]
    stored = json.loads((tmp_path / "dhalion-spark-health.json").read_text(encoding="utf-8"))
    assert len(stored["runs"]) == spark_health.RUNS * len(spark_health.CASES)


PART_DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "diagnoses": ("run_diagnoses", {"examined": []}),
    "layered": ("run_layered", {"henge": {"changes": 1}}),
    "spark-health": ("run_health", {"runs": []}),
}


@pytest.mark.parametrize("part", PART_DATA)
def test_results_of_a_part_are_kept_if_the_same_code_made_them(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of earlier versions do not say what made them: they are not kept either."""
    function, data = PART_DATA[part]
    module = {"diagnoses": diagnoses, "layered": layered_run}.get(part, spark_health)
    begun_with: list[object] = []

    def run(done: object, *_: object) -> Iterator[object]:
        begun_with.append(done)
        yield data

    monkeypatch.setattr(module, function, run)
    monkeypatch.setattr(provenance, "part_fingerprint", lambda *_: "fedcba9876543210")
    file = tmp_path / f"dhalion-{part}.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    command = ["experiment", "dhalion", part, "--into", str(tmp_path / "dhalion.md")]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert begun_with == [{}]
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert stored == {"made_by": "fedcba9876543210", **data}
    assert CliRunner().invoke(app, command).exit_code == 0
    assert begun_with == [{}, data]
    assert CliRunner().invoke(app, [*command, "--again"]).exit_code == 0
    assert begun_with == [{}, data, {}]
    file.write_text(json.dumps({**stored, "made_by": "0123456789abcdef"}), encoding="utf-8")
    done = CliRunner().invoke(app, command)
    assert begun_with == [{}, data, {}, {}]
    said = f"{file.name} was made by other code or chosen numbers: {part} starts anew"
    assert said in done.stderr


def test_what_is_run_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    results = sample_results()
    again = experiment_of("priorities", 2.5)
    updated = results.updated(PaperResults([again]), PAPER)
    assert [one.experiment.name for one in updated.experiments] == ["priorities", "cost"]
    assert updated.experiments[0] is again
    assert (updated.ranking, updated.mixes) == (results.ranking, results.mixes)
    assert updated.moved == results.moved
    assert read_results(tmp_path / "none.json", PAPER) == PaperResults()
    (tmp_path / "page.json").write_text('{"format": "other"}', encoding="utf-8")
    into = ["experiment", "henge", "failure", "--into", str(tmp_path / "page.md")]
    assert isinstance(CliRunner().invoke(app, into).exception, FileUnreadable)
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("name", PAPERS)
def test_the_stored_results_of_every_paper_can_be_printed(name: str) -> None:
    owner = PAPERS[name].load()
    results = read_results(STORED / f"{name}.json", owner)
    printed = StringIO()
    draw_results(Console(file=printed, width=200), results, owner)
    assert all(each.experiment.name in printed.getvalue() for each in results.experiments)


def test_a_page_needs_a_file() -> None:
    assert CliRunner().invoke(app, ["experiment", "henge", "page"]).exit_code == 2


def test_what_was_done_before_an_interruption_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = experiment_of("cost")

    def one_and_no_more(*_: object) -> Iterator[ExperimentResult]:
        yield cost
        raise ZeroDivisionError

    monkeypatch.setattr(suite, "run_experiments", one_and_no_more)
    path = tmp_path / "page.md"
    done = CliRunner().invoke(app, ["experiment", "henge", "all", "--into", str(path)])
    assert isinstance(done.exception, ZeroDivisionError)
    kept = read_results(results_file(path), PAPER)
    assert results_to_json(kept, PAPER) == results_to_json(PaperResults([cost]), PAPER)
    assert [one.name for one in tmp_path.glob("*.new")] == []


def test_runs_on_spark_have_a_part_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {tenant.job.id: 0.1 * i for i, tenant in enumerate(TENANTS, start=5)}
    hours = [1.0] * 47 + [0.9]
    runs = [
        SparkRunResult("henge", 0.9, 0.7, 12, shares, hours),
        SparkRunResult("none", 0.5, 0.25, 0, shares),
    ]
    monkeypatch.setattr(spark_diurnal, "run_comparison", lambda *_: [runs])
    path = tmp_path / "page.md"
    before = [SparkRunResult("henge", 0.1, 0.1, 1, shares)]
    write_results(results_file(path), replace(sample_results(), spark=before), PAPER)
    done = CliRunner().invoke(app, ["experiment", "henge", "spark-diurnal", "--into", str(path)])
    assert done.exit_code == 0, done.output
    assert "worst tenth" in done.stdout
    text = path.read_text(encoding="utf-8")
    assert "| Henge | 90.0 % | one run | 70.0 % | 12 | 1 |" in text
    assert "| none | 50.0 % | one run | 25.0 % | 0 | 0 |" in text
    details = (tmp_path / "page-details.md").read_text(encoding="utf-8")
    assert "| Henge | 50.0 % | 60.0 % | 70.0 % | 80.0 % | 90.0 % |" in details
    assert "| Henge | 10.0 % | one run | 10.0 % | 1 |" not in text
    assert "## priorities" in text
    assert read_results(results_file(path), PAPER).spark == runs


@pytest.mark.parametrize(
    ("gone", "place"),
    [
        (("papers", "henge"), "papers.henge"),
        (("common", "profiles", "linear", "third"), "common.profiles.linear.third"),
        (("common", "rates", "diamond"), "rates.diamond"),
    ],
)
def test_a_file_of_chosen_numbers_with_a_gap_is_refused_with_its_place(
    tmp_path: Path, gone: tuple[str, ...], place: str
) -> None:
    data = load_chosen().model_dump(exclude_none=True)
    part = data
    for name in gone[:-1]:
        part = part[name]
    del part[gone[-1]]
    path = tmp_path / "chosen.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    done = CliRunner().invoke(app, ["experiment", "henge", "failure", "--chosen", str(path)])
    assert isinstance(done.exception, InvalidScenario)
    assert [problem.path for problem in done.exception.problems] == [place]
