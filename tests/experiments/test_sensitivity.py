"""Chosen numbers that are moved: each in a run that can depend on it, and as what it is."""

import pytest

from trilithon.experiments.henge.henge_paper import PAPER, SENSITIVITY
from trilithon.experiments.sensitivity import (
    NumberMove,
    moved_numbers,
    moved_parameter,
    moves,
    numbers,
    policy_parameters,
)
from trilithon.scenarios.chosen import ChosenNumbers, load_chosen

HENGE = PAPER.name


def moved(path: str, factor: float) -> ChosenNumbers | None:
    return moved_numbers(load_chosen(), HENGE, path, factor)


def test_every_chosen_number_is_moved_in_some_run_or_named_as_unused() -> None:
    chosen = load_chosen()
    wanted, unmoved = moves(PAPER, chosen)
    paths = {move.path for move in wanted if move.path is not None}
    words = {"storm.waiting=kept", "storm.waiting=dealt", "arrivals.default=poisson"}
    ours = {path for path in paths if path.startswith("policy.")}
    worded = {word.partition("=")[0] for word in words}
    assert (paths - words - ours) | set(unmoved) | worded == set(numbers(chosen, HENGE))
    assert words < paths
    # Bursty and Poisson arrivals are compared in every run.
    poisson = [(m.experiment, m.variant) for m in wanted if m.path == "arrivals.default=poisson"]
    assert tuple(poisson) == SENSITIVITY.runs
    assert {"policy.settle_s", "policy.load_change", "policy.least_capacity"} <= ours
    assert "policy.drop" not in ours
    assert not paths & set(unmoved)
    assert [move for move in wanted if move.path is None] == [
        NumberMove(name, variant, None, 1.0) for name, variant in SENSITIVITY.runs
    ]
    # What no experiment of Henge's can depend on, and nothing else.
    unused = ("machine", "storm.restart", "storm.waiting", "assumed.", "rates.", "profiles.")
    engines = ("heron.", "nephele.")
    assert all(path.startswith((*unused, *engines)) for path in unmoved)
    assert not any(path.startswith("profiles.pageload") for path in unmoved)


def test_numbers_of_other_papers_are_left_alone() -> None:
    assert not any(path.startswith(("stela", "latency")) for path in numbers(load_chosen(), HENGE))


def test_a_number_is_moved_as_what_it_is() -> None:
    half = moved("storm.transit", 0.5)
    assert half is not None
    assert half.common.storm.transit == "5 ms"
    more = moved("henge.tasks", 1.5)
    assert more is not None
    assert more.papers[HENGE].tasks == 96
    assert moved("henge.instances.pageload", 0.5) is None  # there is no half an instance
    share = moved("profiles.pageload.join.cpu_share", 1.5)
    assert share is not None
    assert share.common.profiles["pageload"]["join"].cpu_share == pytest.approx(0.3)
    kept = moved("storm.waiting=kept", 1.0)
    assert kept is not None
    assert kept.common.storm.waiting == "kept"
    assert moved("storm.waiting=lost", 1.0) is None
    parameters = policy_parameters(SENSITIVITY)
    full = parameters["policy.memory_full"]
    assert [moved_parameter(full, f) for f in (0.5, 1.5)] == [0.45, 1.0]  # no more than all
    assert moved_parameter(parameters["policy.history"], 0.5) == 4
