"""A paper is a catalogue, measures and an entry in the registry: a tiny one goes the whole way."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trilithon.cli import experiment_commands as command
from trilithon.experiments import suite
from trilithon.experiments.definition import (
    Experiment,
    JobSet,
    PaperFigure,
    Topology,
    Variant,
    latency,
)
from trilithon.experiments.paper import Finding, Paper, Runs, Values
from trilithon.experiments.papers import PAPERS, RegisteredPaper
from trilithon.experiments.plots import UtilityOverTime
from trilithon.experiments.runs import Run
from trilithon.experiments.strategies import UNCONTROLLED, under
from trilithon.scenarios.chosen import load_chosen

EXPERIMENT = Experiment(
    name="two-lines",
    about="two linear jobs under the threshold policy",
    source="section 1",
    duration_s=600,
    policy_from_s=120,
    variants=(Variant("small", (JobSet("t", 2, Topology.LINEAR, latency(60), (5,)),), 4, 4),),
    figures=(
        PaperFigure("satisfaction", 2.0, "ratio", "section 1", more_is_better=True, headline=True),
        PaperFigure("actions", 1000, "steps", "section 1", more_is_better=False),
    ),
    plotted=("small",),
)


def measure(runs: Runs) -> Values:
    run = runs["small"]["threshold"]
    return {"satisfaction": run.average, "actions": len(run.changes())}


TINY = Paper(
    name="tiny",
    title="Tiny",
    introduction="A paper of one experiment.\n",
    experiments=(EXPERIMENT,),
    strategies=(under("threshold", {"window_s": 30.0}), UNCONTROLLED),
    measures={"two-lines": measure},
    findings={
        "two-lines": Finding(
            lambda runs: {"jobs": len(runs["small"]["threshold"].jobs)},
            lambda facts: f"It has {facts['jobs']} jobs.",
        )
    },
    reasons={("two-lines", "satisfaction"): lambda _: "Nobody reaches 200 %."},
    plots=(
        UtilityOverTime(
            file="plots/tiny.svg", section="two-lines", variant="small", caption="Utility"
        ),
    ),
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The paper in the registry; a file of chosen numbers with its part."""
    entry = RegisteredPaper("tiny", "Tiny (a test)", lambda: TINY)
    monkeypatch.setitem(PAPERS, "tiny", entry)
    monkeypatch.setattr(command.app, "registered_commands", [*command.app.registered_commands])
    command._register(entry)
    chosen = load_chosen().model_dump(exclude_none=True)
    chosen["papers"]["tiny"] = {"rates": {"linear": 800.0}, "tasks": 12}
    path = tmp_path / "chosen.yaml"
    path.write_text(json.dumps(chosen), encoding="utf-8")
    return path


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command.app, ["tiny", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_new_paper_runs_and_has_its_pages_and_plots(tiny: Path, tmp_path: Path) -> None:
    into = tmp_path / "tiny.md"
    options = ("--chosen", str(tiny), "--workers", "1", "--into", str(into))
    shown = run("all", *options)
    assert "threshold" in shown
    assert "uncontrolled" in shown
    text = into.read_text(encoding="utf-8")
    assert text.startswith("# Tiny's experiments\n")
    assert "**two-lines**, satisfaction: " in text
    assert "less than the paper's 200.0 %. Nobody reaches 200 %." in text
    assert "It has 2 jobs." in text
    assert "](plots/tiny.svg)" in text
    assert "henge" not in text.lower()
    assert "henge" not in (tmp_path / "tiny-details.md").read_text(encoding="utf-8").lower()
    assert (tmp_path / "plots" / "tiny.svg").stat().st_size > 1000
    data = json.loads((tmp_path / "tiny.json").read_text(encoding="utf-8"))
    assert data["format"] == "trilithon-tiny-results/2"
    assert set(data["experiments"][0]["runs"]["small"]) == {"threshold", "uncontrolled"}
    assert set(data["experiments"][0]["series"]["small"]) == {"threshold", "uncontrolled"}
    again = into.read_bytes()
    run("page", *options)
    assert into.read_bytes() == again


def test_a_paper_without_mixes_or_moved_numbers_does_not_offer_them(tiny: Path) -> None:
    done = CliRunner().invoke(command.app, ["tiny", "mixes", "--chosen", str(tiny)])
    assert "two-lines, all, page" in str(getattr(done.exception, "hint", ""))


def test_nothing_generic_names_a_paper() -> None:
    folder = Path(command.__file__).parent.parent / "experiments"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        named = [line for line in text.splitlines() if "henge" in line.lower()]
        # The registry is where a paper's name belongs.
        assert not named or path.name == "papers.py", (path.name, named)


def test_everything_is_run_once_and_goes_on_where_it_was(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "tiny.md"
    options = ("--chosen", str(tiny), "--workers", "1", "--into", str(into))
    begun: list[str] = []
    run_variant = suite.run_variant

    def counted(paper: str, experiment: str, *more: Any) -> tuple[Run, ...]:
        begun.append(experiment)
        return run_variant(paper, experiment, *more)

    monkeypatch.setattr(suite, "run_variant", counted)
    run("all", *options)
    assert begun == ["two-lines"] * 2
    first = (tmp_path / "tiny.json").read_bytes()
    shown = run("all", *options)
    assert begun == ["two-lines"] * 2
    assert "uncontrolled" in shown
    assert (tmp_path / "tiny.json").read_bytes() == first
    run("all", *options, "--again")
    assert begun == ["two-lines"] * 4
    # Other numbers are other results.
    data = json.loads(tiny.read_text(encoding="utf-8"))
    data["papers"]["tiny"]["rates"]["linear"] = 700.0
    tiny.write_text(json.dumps(data), encoding="utf-8")
    run("all", *options)
    assert begun == ["two-lines"] * 6
    # What is named is run.
    run("two-lines", *options)
    assert begun == ["two-lines"] * 8
