"""From runs to figures, mixes and moved numbers, and to a page that hides nothing."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.experiments.henge.made import made
from trilithon.cli.main import app
from trilithon.errors import FileUnreadable, FileUnwritable, InvalidScenario, NotFound
from trilithon.experiments.build import Builder
from trilithon.experiments.definition import Figure
from trilithon.experiments.henge import spark_diurnal, suite
from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.henge.measured import MEASURED, stays_from
from trilithon.experiments.henge.mixes import FIRST, Mixed, mix, rank
from trilithon.experiments.henge.moved import (
    RUNS,
    Moved,
    Task,
    moved,
    moved_parameter,
    numbers,
    of_policy,
    tasks,
)
from trilithon.experiments.henge.page import HEAD, number, page
from trilithon.experiments.henge.reasons import REASONS
from trilithon.experiments.henge.results import Whole, as_data, beside, of_data, read, write
from trilithon.experiments.henge.spark_diurnal import Result
from trilithon.experiments.henge.suite import Beside, Outcome, Summary
from trilithon.experiments.runs import Act, Steering
from trilithon.experiments.tenants import TENANTS
from trilithon.scenarios.scenario import chosen

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGE = ROOT / "docs" / "results" / "henge.md"


def test_something_holds_from_when_it_is_not_broken_any_more() -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0])
    assert stays_from(times, np.array([False, True, True, True])) == 2
    assert stays_from(times, np.array([True, True, False, True])) == 4
    assert stays_from(times, np.array([True, True, True, False])) is None


def test_what_writes_nothing_counts_as_nothing() -> None:
    queue = np.zeros((2, 4))
    found = made([[0.1, 0.2, 1.0, 1.0], [0.5, np.nan, np.nan, 1.0]], queue=queue)
    assert found.satisfaction == pytest.approx([0.3, 0.1, 0.5, 1.0])
    assert found.average == pytest.approx(0.75)  # of the time in which the policy may act


def test_what_is_not_heard_of_does_not_count() -> None:
    gone = np.nan
    queue = np.array([[0.0, 0.0, gone, 0.0], [0.0, gone, gone, 0.0]])
    found = made([[0.1, 0.2, gone, 1.0], [0.5, gone, gone, 1.0]], queue=queue)
    assert found.satisfaction == pytest.approx([0.3, 0.2, gone, 1.0], nan_ok=True)
    assert found.average == 1.0
    assert found.percentile(50) == 1.0


def test_steps_are_counted_when_they_changed_something() -> None:
    acts = (
        Act(300, "papers/t1", "RECONFIGURATION", True, 15.0),
        Act(300, "papers/t2", "RECONFIGURATION", False, 0.0),
        Act(400, None, "CONVERGED_ALL_MET", False, 0.0),
    )
    found = made([[0, 0, 1, 1], [0, 0, 1, 1]], acts)
    values = MEASURED["priorities"]({"nine": {Steering.HENGE: found}})
    assert values == {"all intents met after": 100.0, "Reconfigurations": 1.0}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_how_its_figures_are_measured(name: str) -> None:
    assert name in MEASURED


@pytest.mark.parametrize(
    ("at_least", "paper", "ours", "worse"),
    [(True, 100, 99.5, False), (True, 100, 98, True), (False, 100, 98, False),
     (False, 100, 102, True), (True, 100, None, None), (None, 2, 2, False), (None, 2, 3, True),
     (None, 2, 1, True)],
)  # fmt: skip
def test_worse_is_worse_by_more_than_a_hundredth(
    at_least: bool | None, paper: float, ours: float | None, worse: bool | None
) -> None:
    figure = Figure("it", paper, "s", "SoCC'18", at_least=at_least)
    assert Beside(figure, ours).worse is worse
    assert Beside(replace(figure, apart="another thing"), ours).worse is None


def test_a_mix_is_its_seeds_alone() -> None:
    builder = Builder(chosen())
    assert repr(mix(3, builder)) == repr(mix(3, builder))
    assert len({repr(mix(seed, builder).jobs) for seed in range(8)}) == 8
    sizes = [len(mix(seed, builder).jobs) for seed in range(8)]
    assert min(sizes) >= 3
    assert max(sizes) <= 10


def test_ranks_count_who_is_ahead() -> None:
    found = []
    for seed in range(20):
        worst = 0.1 + 0.02 * seed
        ways = {
            Steering.HENGE: worst + 0.2,
            Steering.NOBODY: worst,
            Steering.MANUAL: worst + 0.1,
            Steering.STATIC: worst + 0.201,
        }
        found.append(Mixed(FIRST + seed, 3, 2, ways))
    ranking = rank(found)
    assert ranking.rank == {
        Steering.HENGE: 1.0, Steering.STATIC: 1.0, Steering.MANUAL: 3.0, Steering.NOBODY: 4.0,
    }  # fmt: skip
    assert ranking.better[Steering.HENGE, Steering.MANUAL] == 20
    assert ranking.same[Steering.HENGE, Steering.STATIC] == 20


def test_every_chosen_number_is_moved_in_some_run_or_named_as_unused() -> None:
    form = chosen()
    wanted, unmoved = tasks(form)
    moves = {task.path for task in wanted if task.path is not None}
    words = {"storm.waiting=kept", "storm.waiting=dealt"}
    ours = {path for path in moves if path.startswith("policy.")}
    assert (moves - words - ours) | set(unmoved) | {"storm.waiting"} == set(numbers(form))
    assert words < moves
    assert {"policy.settle_s", "policy.load_change", "policy.history"} <= ours
    assert not ours & {"policy.least_capacity", "policy.reduced_capacity", "policy.drop"}
    assert not moves & set(unmoved)
    assert [task for task in wanted if task.path is None] == [
        Task(name, variant, None, 1.0) for name, variant in RUNS
    ]
    # What no experiment of Henge's can depend on, and nothing else.
    assert all(
        path.startswith(
            ("machine", "storm.restart", "storm.waiting", "assumed.", "rates.", "profiles.")
        )
        for path in unmoved
    )
    assert not any(path.startswith("profiles.pageload") for path in unmoved)


def test_a_number_is_moved_as_what_it_is() -> None:
    form = chosen()
    half = moved(form, "storm.transit", 0.5)
    assert half is not None
    assert half.storm.transit == "1 ms"
    more = moved(form, "henge.tasks", 1.5)
    assert more is not None
    assert more.henge is not None
    assert more.henge.tasks == 96
    assert moved(form, "henge.instances.pageload", 0.5) is None  # there is no half an instance
    share = moved(form, "profiles.pageload.join.cpu_share", 1.5)
    assert share is not None
    assert share.profiles["pageload"]["join"].cpu_share == pytest.approx(0.3)
    kept = moved(form, "storm.waiting=kept", 1.0)
    assert kept is not None
    assert kept.storm.waiting == "kept"
    assert moved(form, "storm.waiting=lost", 1.0) is None
    full = of_policy()["policy.memory_full"]
    assert [moved_parameter(full, f) for f in (0.5, 1.5)] == [0.45, 1.0]  # no more than all
    assert moved_parameter(of_policy()["policy.history"], 0.5) == 4


def test_a_page_tells_the_paper_ours_and_why_where_we_are_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = EXPERIMENTS["priorities"]
    summary = Summary(0.5, {15: 0.1, 50: 0.5, 90: 0.9}, 0.75, 7, 12)
    outcome = Outcome(
        experiment,
        (Beside(experiment.figures[0], 1800.0), Beside(experiment.figures[1], 9.0)),
        {"nine": dict.fromkeys(Steering, summary)},
    )
    monkeypatch.setitem(REASONS, ("priorities", "all intents met after"), "Because of this.")
    text = page(Whole([outcome]))
    assert "| all intents met after | 900 s | 1,800 s | worse |" in text
    assert "| Reconfigurations | 13 steps | 9 steps |  |" in text
    assert "- Because of this." in text
    assert "50.0 / 75.0 %" in text


def test_the_page_of_moved_numbers_compares_with_what_was_chosen() -> None:
    ways = {Steering.HENGE: 0.9, Steering.NOBODY: 0.1, Steering.MANUAL: 0.8}
    worse = {**ways, Steering.HENGE: 0.7}
    figures: dict[str, float | None] = {one.what: 0.25 for one in EXPERIMENTS["diurnal"].figures}
    late = {**figures, "median, Henge": 0.5, "longest convergence": None}
    text = page(
        Whole([], None, [
            Moved(Task("diurnal", "two-days", None, 1.0), ways, figures),
            Moved(Task("diurnal", "two-days", "storm.outage", 0.5), ways, figures),
            Moved(Task("diurnal", "two-days", "storm.outage", 1.5), worse, late),
            Moved(Task("diurnal", "two-days", "storm.waiting=kept", 1.0), worse, figures),
        ], ["machine.cores"])
    )  # fmt: skip
    assert "| diurnal two-days | median, Henge | 99.1 % | 25.0 % | 25.0 % | 50.0 % |" in text
    assert "| longest convergence | 960 s | 0.2 s | 0.2 s | 0.2 s, none in 1 |" in text
    assert "| diurnal two-days | `storm.waiting=kept` | 70.0 / 10.0 / 80.0 % |  |" in text
    assert (
        "| diurnal two-days | `storm.outage` | 90.0 / 10.0 / 80.0 % | 70.0 / 10.0 / 80.0 % |"
        in text
    )
    assert "the largest move is 20.0 points" in text
    assert "the same: `machine.*`.\n" in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.8812, "ratio", "88.1 %"), (0.000006, "ratio", "0.0006 %"), (5734, "s", "5,734 s"),
     (6.7, "times", "6.7 ×"), (None, "s", "–")],
)  # fmt: skip
def test_numbers_are_written_with_their_unit(value: float | None, unit: str, shown: str) -> None:
    assert number(value, unit) == shown


def test_the_written_page_has_every_figure_and_a_reason_for_each_that_is_worse() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    for name, experiment in EXPERIMENTS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for figure in experiment.figures:
            row = next(
                line for line in section.splitlines() if line.startswith(f"| {figure.what} |")
            )
            missing = row.split("|")[3].strip() == "–"
            if row.rstrip(" |").endswith(("worse", "differs")) or missing:
                assert REASONS[name, figure.what] in section
            if figure.apart:
                assert figure.apart in section
    assert re.search(r"200 mixes of three to ten jobs", text)
    assert "### Every chosen number" in text


def test_an_experiment_is_run_and_printed_by_its_name() -> None:
    done = CliRunner().invoke(app, ["experiment", "henge", "failure", "--workers", "2"])
    assert done.exit_code == 0, done.output
    assert "actions while numbers are missing" in done.stdout
    assert "best static" in done.stdout


def test_an_experiment_that_is_not_there_or_a_page_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path,
) -> None:
    for arguments, error in (
        (["experiment", "henge", "magic"], NotFound),
        (
            ["experiment", "henge", "all", "--into", str(tmp_path / "no" / "page.md")],
            FileUnwritable,
        ),
    ):
        done = CliRunner().invoke(app, arguments)
        assert isinstance(done.exception, error)


def whole() -> Whole:
    ways = dict.fromkeys(Steering, Summary(0.5, {15: 0.1, 50: 0.5, 90: 0.9}, 0.75, 7, 12))
    outcomes = [
        Outcome(
            EXPERIMENTS[name],
            tuple(Beside(figure, 1.5) for figure in EXPERIMENTS[name].figures),
            {variant.name: ways for variant in EXPERIMENTS[name].variants},
            "A note.",
        )
        for name in ("cost", "priorities")
    ]
    mixed = [Mixed(FIRST + i, 3, 2, dict.fromkeys(Steering, 0.1 * i)) for i in range(3)]
    changes = [
        Moved(Task("cost", "alone on 1", path, factor), dict.fromkeys(Steering, 0.5))
        for path, factor in ((None, 1.0), ("storm.outage", 0.5))
    ]
    return Whole(outcomes, rank(mixed), changes, ["machine.cores"])


def test_results_are_kept_and_a_page_is_written_from_them_again(tmp_path: Path) -> None:
    found = whole()
    assert as_data(of_data(as_data(found))) == as_data(found)
    path = tmp_path / "page.md"
    write(beside(path), found)
    done = CliRunner().invoke(app, ["experiment", "henge", "page", "--into", str(path)])
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert text == page(found.renewed(Whole()))
    for section in ("## cost", "## priorities", "3 mixes", "`storm.outage`", "`machine.*`"):
        assert section in text


def test_what_is_run_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    found = whole()
    _cost, priorities = found.outcomes
    again = replace(priorities, note="Another note.")
    renewed = found.renewed(Whole([again]))
    assert [one.note for one in renewed.outcomes] == ["Another note.", "A note."]
    assert [one.experiment.name for one in renewed.outcomes] == ["priorities", "cost"]
    assert (renewed.ranking, renewed.moved) == (found.ranking, found.moved)
    assert read(tmp_path / "none.json") == Whole()
    (tmp_path / "page.json").write_text('{"format": "other"}', encoding="utf-8")
    into = ["experiment", "henge", "failure", "--into", str(tmp_path / "page.md")]
    assert isinstance(CliRunner().invoke(app, into).exception, FileUnreadable)
    assert not (tmp_path / "page.md").exists()


def test_a_page_needs_a_place() -> None:
    assert CliRunner().invoke(app, ["experiment", "henge", "page"]).exit_code == 2


def test_what_was_done_before_an_interruption_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, _priorities = whole().outcomes

    def one_and_no_more(*_: object) -> Iterator[Outcome]:
        yield cost
        raise ZeroDivisionError

    monkeypatch.setattr(suite, "run_all", one_and_no_more)
    path = tmp_path / "page.md"
    done = CliRunner().invoke(app, ["experiment", "henge", "all", "--into", str(path)])
    assert isinstance(done.exception, ZeroDivisionError)
    assert as_data(read(beside(path))) == as_data(Whole([cost]))
    assert [one.name for one in tmp_path.glob("*.new")] == []


def test_runs_on_spark_have_a_part_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {tenant.job.id: 0.1 * i for i, tenant in enumerate(TENANTS, start=5)}
    hours = [1.0] * 47 + [0.9]
    ran = [Result("henge", 0.9, 0.7, 12, shares, hours), Result("none", 0.5, 0.25, 0, shares)]
    monkeypatch.setattr(spark_diurnal, "run", lambda _tell: ran)
    path = tmp_path / "page.md"
    write(beside(path), replace(whole(), spark=[Result("henge", 0.1, 0.1, 1, shares)]))
    done = CliRunner().invoke(app, ["experiment", "henge", "spark-diurnal", "--into", str(path)])
    assert done.exit_code == 0, done.output
    assert "worst tenth" in done.stdout
    text = path.read_text(encoding="utf-8")
    assert (
        "| henge | 90.0 % | 70.0 % | 12 | 1 | 50.0 % | 60.0 % | 70.0 % | 80.0 % | 90.0 % |" in text
    )
    assert "| none | 50.0 % | 25.0 % | 0 | 0 |" in text
    assert "| henge | 10.0 % | 10.0 % | 1 |" not in text
    assert "## priorities" in text
    assert read(beside(path)).spark == ran


def test_results_from_before_there_were_runs_on_spark_are_read() -> None:
    data = as_data(whole())
    del data["spark"]
    assert as_data(of_data(data)) == as_data(whole())


@pytest.mark.parametrize(
    ("gone", "place"),
    [
        (("henge",), "henge"),
        (("profiles", "linear", "third"), "profiles.linear.third"),
        (("rates", "diamond"), "rates.diamond"),
    ],
)
def test_a_file_of_chosen_numbers_with_a_gap_is_refused_with_its_place(
    tmp_path: Path, gone: tuple[str, ...], place: str
) -> None:
    data = chosen().model_dump(exclude_none=True)
    part = data
    for name in gone[:-1]:
        part = part[name]
    del part[gone[-1]]
    path = tmp_path / "chosen.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    done = CliRunner().invoke(app, ["experiment", "henge", "failure", "--chosen", str(path)])
    assert isinstance(done.exception, InvalidScenario)
    assert [problem.path for problem in done.exception.problems] == [place]
