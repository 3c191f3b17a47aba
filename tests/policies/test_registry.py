"""Policies are asked for by name, and their parameters are checked."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.parameters import Parameters, choice, parameter, separate
from trilithon.policies.registry import POLICIES, policy


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_made_by_the_name_it_has(name: str) -> None:
    made = policy(name)
    assert made.name == name
    assert 0 < made.lookback_s < math.inf


def test_a_name_that_no_policy_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(NotFound, match="magic") as error:
        policy("magic")
    assert "threshold" in error.value.hint


@pytest.mark.parametrize("name", POLICIES)
def test_every_parameter_is_described_and_its_default_is_in_its_range(name: str) -> None:
    for info in POLICIES[name].parameters.describe():
        assert info.meaning
        assert info.unit
        if info.several:
            assert {*separate(info.default)} <= {*info.options}
        elif info.options:
            assert info.default in info.options
        else:
            assert info.least <= float(info.default) <= info.most


def test_a_parameter_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="windw_s"):
        policy("threshold", {"windw_s": 3})


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1, "0.5", None, True, [1]])
def test_a_parameter_that_is_no_number_or_out_of_its_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidPolicy, match="room"):
        policy("threshold", {"room": value})


@dataclass(frozen=True)
class Counted(Parameters):
    step: int = parameter(1, "instances", "at once", least=1)
    way: str = choice("up", ("up", "down"), "whither")


def test_a_whole_parameter_takes_whole_numbers_only() -> None:
    assert Counted.of({"step": 3}).step == 3
    with pytest.raises(InvalidPolicy, match="whole"):
        Counted.of({"step": 2.5})


@pytest.mark.parametrize("value", ["sideways", 1, None, ["up"]])
def test_a_parameter_that_is_a_word_takes_only_the_words_that_there_are(value: object) -> None:
    assert Counted.of({"way": "down"}).given() == {"step": 1, "way": "down"}
    with pytest.raises(InvalidPolicy, match="way") as error:
        Counted.of({"way": value})
    assert "up, down" in error.value.hint


@given(st.floats(0, 1), st.floats(1, 1e6))
def test_what_parameters_give_makes_the_same_parameters(room: float, window_s: float) -> None:
    kind = POLICIES["threshold"].parameters
    made = kind.of({"room": room, "window_s": window_s})
    assert kind.of(made.given()) == made
