"""What pages are made of: numbers, graphs, colours, budgets."""

import itertools
import math
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service.dashboard.showcase import Showcase
from tests.strategies import jobs
from trilithon.control.compact import CompactSeries
from trilithon.control.encoding import text
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import DecisionRow
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.service.dashboard.error_budget import ErrorBudget, ErrorBudgets
from trilithon.service.dashboard.graph import GAP_Y, place
from trilithon.service.dashboard.job_page import colour
from trilithon.service.dashboard.ledger import entries, explanation
from trilithon.service.dashboard.numbers import ago, milliseconds, number, percent, rate, seconds
from trilithon.service.dashboard.plots import lost_utility_hours
from trilithon.service.dashboard.waiting_plot import LEFT, SIZE, waiting_plot
from trilithon.service.dashboard.why import PolicyWords, Why, why
from trilithon.service.monitor.history import History
from trilithon.workloads.paper_jobs import load_topology, topology_names


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "n/a"),
        (math.nan, "n/a"),
        (math.inf, "∞"),
        (0.0, "0"),
        (0.99968, "1"),
        (0.0521, "0.052"),
        (0.00004, "<0.001"),
        (4.3, "4.30"),
        (41.26, "41.3"),
        (1234.4, "1,234"),
        (12_345.0, "12.3k"),
        (2_500_000.0, "2.5M"),
    ],
)
def test_numbers_have_few_digits_and_missing_ones_say_so(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_units_follow_the_size() -> None:
    assert milliseconds(41.2) == "41.2 ms"
    assert milliseconds(8_520) == "8.52 s"
    assert seconds(600) == "10 min"
    assert seconds(86_400) == "24 h"
    assert (rate(None), percent(0.456), percent(None)) == ("n/a", "46 %", "n/a")
    assert (ago(10, 50), ago(50, 50), ago(0, 600)) == ("40 s ago", "now", "10 min ago")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_can_be_written(value: float) -> None:
    for write in (number, rate, milliseconds, seconds, percent):
        assert 0 < len(write(value)) < 400


def test_colours_go_from_blue_over_red_to_dark_and_are_grey_where_nothing_is_known() -> None:
    assert colour(0.0, 0.0) == "#2b62a8"
    assert colour(1.0, 0.0) == "#b81f2d"
    assert colour(1.0, 1.0) == colour(0.0, 1.0) == "#22252b"
    assert colour(None, None) not in {colour(0.0, None), colour(1.0, None)}


@given(busy=st.floats(0, 2), blocked=st.floats(0, 2))
def test_white_text_can_be_read_on_every_colour(busy: float, blocked: float) -> None:
    """The contrast that WCAG 2 asks for, 4.5 to 1."""
    shown = colour(busy, blocked)
    channels = [int(shown[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
    assert 1.05 / (luminance + 0.05) >= 4.5


@given(jobs())
def test_nodes_do_not_overlap_and_edges_lead_to_the_right(job: Job) -> None:
    check_places(job)


@pytest.mark.parametrize("name", topology_names())
def test_the_papers_graphs_are_placed(name: str) -> None:
    check_places(load_topology(name))


def check_places(job: Job) -> None:
    graph = place(job)
    nodes = {node.name: node for node in graph.nodes}
    assert len(nodes) == len(list(job.nodes()))
    for a, b in itertools.combinations(graph.nodes, 2):
        apart = a.x + a.width < b.x or b.x + b.width < a.x
        assert apart or abs(a.y - b.y) >= min(a.height, b.height) + GAP_Y
    for edge in graph.edges:
        assert nodes[edge.edge.source].x < nodes[edge.edge.target].x
    assert all(node.x + node.width <= graph.width for node in graph.nodes)
    assert all(0 <= node.y <= graph.height - node.height for node in graph.nodes)


def test_an_error_budget_counts_what_was_measured() -> None:
    budget = ErrorBudget(objective=0.99, window_s=3600.0, known_s=1800.0, missed_s=18.0)
    assert budget.allowed_s == pytest.approx(36.0)
    assert budget.used == pytest.approx(0.5)
    assert ErrorBudget(0.99, 3600.0, 0.0, 0.0).used is None


def test_budget_and_lost_utility_follow_the_series(tmp_path: Path) -> None:
    showcase = Showcase(tmp_path)
    try:
        history = showcase.daemon.monitor.history
        for _ in range(60):
            showcase.run(2.0)
        every_s = showcase.controller.rules.limits.series_every_s
        lost = lost_utility_hours(history.points(), every_s)
        assert lost["ads/pageload"] == pytest.approx(0.0, abs=0.01)
        # It misses its intent from its start until Henge has acted, and later no more.
        budget = ErrorBudgets(showcase.daemon).of(
            "security/intrusion", showcase.controller.clock.now_s()
        )
        assert 0 < budget.missed_s < 60
        assert lost["security/intrusion"] > 0
        assert budget.known_s == pytest.approx(110, abs=15)
        # The next daemon gets the same from the journal, with fewer points.
        later = History(showcase.journal)
        monitor = showcase.daemon.monitor
        later.add(replace(monitor.last, time_s=monitor.last.time_s + 1.0))
        assert 10 < len(later.points()) < len(history.points())
        again = lost_utility_hours(later.points(), every_s)
        assert again["security/intrusion"] == pytest.approx(lost["security/intrusion"], rel=0.5)
    finally:
        showcase.close()


def test_a_series_of_an_earlier_version_can_be_read() -> None:
    """It had five columns of jobs, and did not name them."""
    journal = Journal(None)
    names = text({"jobs": ["a/b"], "operators": [[0, "o"]]})
    numbers = np.array([1, 2, 3, 4, 5, 6, 7, 8], dtype="<f4")
    journal.add_series(10.0, zlib.compress(numbers.tobytes(), 1), names)
    (point,) = CompactSeries(journal).read("a/b")
    assert point.numbers == {"p95_ms": 1, "juice": 2, "throughput": 3, "utility": 4, "lag": 5}
    assert point.operators == {"o": {"parallelism": 6, "capacity": 7, "input_rate": 8}}
    (jobs_point,) = CompactSeries(journal).read_jobs()
    assert "max_utility" not in jobs_point.columns
    journal.close()


def decision(id_: str, **more: Any) -> DecisionRow:
    """A decision that asked for something and was granted it, but for `more`."""
    change = {"change": "parallelism", "job": "a/b", "parallelism": {"o": 3}}
    given: dict[str, Any] = {
        "round": 1,
        "time_s": 100.0,
        "job": "a/b",
        "policy": "henge",
        "reason": "RECONFIGURATION",
        "sentence": f"Sentence of {id_}.",
        "numbers": {},
        "causes": (),
        "expects": None,
        "asked": (change,),
        "granted": (change,),
        "clips": (),
        "times": 1,
        "last_s": 100.0,
        "came": None,
    }
    return DecisionRow(id=id_, **{**given, **more})


def test_the_ledger_says_what_became_of_a_decision() -> None:
    journal = Journal(None)
    clip = {"code": "QUOTA", "operator": "o", "asked": 3, "granted": 1}
    expects = {"metric": "latency.p95", "value": 250.0, "by_s": 160.0, "sense": "at_most"}
    came = {"time_s": 160.0, "value": 400.0, "kept": False}
    rows = [
        decision("first", expects=expects, came=came),
        decision("held", granted=(), clips=(clip,)),
        decision("advised", granted=(), clips=({"code": "ADVICE_ONLY"},)),
        decision("noted", asked=(), granted=()),
        decision("back", reason="REVERSION", causes=("first",)),
    ]
    found = {entry.id: entry for entry in entries(journal, rows)}
    journal.close()
    assert list(found) == ["back", "noted", "advised", "held", "first"]
    assert found["first"].reverted_by == "back"
    assert (found["first"].expected, found["first"].realised) == ("p95 ≤ 250 ms", "400 ms")
    assert found["first"].kept is False
    assert found["held"].outcome == "held"
    assert "quota" in found["held"].clipped[0]
    assert [found[name].outcome for name in ("advised", "noted")] == ["advised", "noted"]
    assert found["back"].reverted_by is None


def test_the_ledger_marks_what_was_changed_back_and_not_the_reversion() -> None:
    """Henge asks for the rest of a Reversion in rows of its own, which name the Reversion itself:
    that was marked as reverted.
    """
    journal = Journal(None)
    rows = [
        decision("other", job="c/d"),
        decision("note", asked=(), granted=()),
        decision("first"),
        decision("held", reason="REVERSION", causes=("first", "other"), granted=(), time_s=110.0),
        decision("of other", reason="REVERSION", causes=("first", "note"), job="c/d", time_s=110.0),
        decision("rest", reason="REVERSION", causes=("held", "of other"), time_s=120.0),
        decision("more", reason="REVERSION", causes=("held", "of other"), time_s=130.0),
    ]
    for row in rows:
        write_decision(journal, row)
    marks = {entry.id: entry.reverted_by for entry in entries(journal, rows)}
    # Neither the other job's decision, which was not changed back, nor a note, nor a reversion.
    assert {id_: by for id_, by in marks.items() if by is not None} == {"first": "rest"}
    # The same on the page of a job, which has its own decisions only, and on a decision's page.
    own = [row for row in rows if row.job == "a/b"]
    assert {e.id: e.reverted_by for e in entries(journal, own)}["first"] == "rest"
    assert {row.id: explanation(journal, row).entry.reverted_by for row in rows} == marks
    journal.close()


def write_decision(journal: Journal, row: DecisionRow) -> None:
    bodies = {"numbers", "causes", "asked", "granted", "clips", "expects", "came"}
    values: dict[str, Any] = {
        name: text(value) if name in bodies and value is not None else value
        for name, value in asdict(row).items()
    }
    journal.database.insert("decision", **values)


def checked(id_: str, predicted_ms: float, measured_ms: float, at_s: float = 60.0) -> DecisionRow:
    """A prediction for the operator `join` that was checked."""
    numbers = {
        "join.instances": 3.0,
        "join.predicted_for_load_ms": predicted_ms,
        "join.measured_waiting_ms": measured_ms,
    }
    return replace(decision(id_), reason="PREDICTION_CHECKED", numbers=numbers, time_s=at_s)


def test_measured_waiting_is_drawn_over_what_was_predicted() -> None:
    assert waiting_plot([decision("other")], "join") is None
    rows = [checked("a", 2.0, 2.0), decision("other"), checked("b", 0.5, 50.0), checked("c", 0, 0)]
    assert waiting_plot(rows, "parse") is None
    plot = waiting_plot(rows, "join")
    assert plot is not None
    assert [point.id for point in plot.points] == ["a", "b", "c"]
    right, above, least = plot.points
    assert right.x - LEFT == pytest.approx(SIZE - right.y)  # on the diagonal
    assert above.x - LEFT < SIZE - above.y
    assert (least.x, least.y) == (LEFT, SIZE)
    assert (above.instances, above.predicted, above.measured) == ("3", "0.500 ms", "50 ms")
    assert [tick.text for tick in plot.ticks] == ["0.010 ms", "0.100 ms", "1 ms", "10 ms", "100 ms"]
    (alone,) = waiting_plot([checked("a", 1.0, 1.0)], "join").points  # type: ignore[union-attr]
    assert (alone.x, alone.y) == (LEFT, SIZE)


NOTHING_SAID = PolicyWords("henge", {}, None)


def reason(made: Showcase, own: str | None = None, **more: Any) -> Why:
    """Why of a job that misses its intent, 40 s after its last decision."""
    record = made.controller.state.jobs["ads/pageload"]
    entry = None
    if own is not None:
        rows = [decision(own, job="ads/pageload", **more.pop("row", {}))]
        (entry,) = entries(made.journal, rows)
    status = more.pop("status", None)
    words = more.pop("words", NOTHING_SAID)
    return why(record, status, more.pop("met", False), entry, words, 140.0)


def test_why_is_the_first_reason_that_holds(tmp_path: Path) -> None:
    made = Showcase(tmp_path)
    try:
        made.run(4.0)
        clipped = {"granted": (), "clips": ({"code": "COOL_DOWN"},)}
        assert reason(made, "x", row=clipped).kind == "held"
        assert "cool-down" in reason(made, "x", row=clipped).text
        advised = {"granted": (), "clips": ({"code": "ADVICE_ONLY"},)}
        assert reason(made, "x", row=advised).text.startswith("Advises, 40 s ago")
        assert reason(made, met=True).text == "Meets its intent: nothing to do."
        assert "not decided anything" in reason(made).text
        assert "Not measured yet" in reason(made, met=None).text
        resting = PolicyWords("henge", {"blacklisted": {"ads/pageload": 200.0}}, None)
        assert "leaves it alone for 60 s" in reason(made, words=resting).text
        step = {"kind": "reduction", "since_s": 120.0, "jobs": ["a/b"]}
        waiting = PolicyWords("henge", {"step": step}, None)
        assert (
            "waits for the effect of its reduction of a/b, 20 s ago"
            in reason(made, words=waiting).text
        )
        # What the policy said later about the whole cluster explains more than an older decision.
        (later,) = entries(made.journal, [decision("later", job=None, time_s=130.0)])
        said = PolicyWords("henge", {}, later)
        assert reason(made, "x", row=clipped, words=said).decision == "later"
        made.daemon.commands.mode("ads/pageload", Mode.OFF)
        assert "mode off" in reason(made).text
        made.daemon.commands.pause("ads/pageload")
        assert "Paused by its owner" in reason(made, "x", row=clipped).text
    finally:
        made.close()
