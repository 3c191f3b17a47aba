"""Key groups: shares exact to one group, and as few moves as possible."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from trilithon.model.groups import KEY_GROUPS, SPREAD, assign_key_groups, rescale_key_groups

weights = st.lists(st.floats(0, 100), min_size=1, max_size=40).filter(lambda w: sum(w) > 0.01)


@given(weights)
def test_each_instance_has_its_share_to_one_group(given_weights: list[float]) -> None:
    groups_per_instance = Counter(assign_key_groups(given_weights))
    assert sum(groups_per_instance.values()) == KEY_GROUPS
    for i, weight in enumerate(given_weights):
        assert abs(groups_per_instance[i] - weight / sum(given_weights) * KEY_GROUPS) < 1 + 1e-6


@given(weights, weights)
def test_no_more_groups_move_than_must(before: list[float], after: list[float]) -> None:
    old = assign_key_groups(before)
    new = assign_key_groups(after, old)
    had, has = Counter(old), Counter(new)
    must = sum(max(0, has[i] - had[i]) for i in has)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == must


def test_a_fifth_instance_takes_a_fifth_of_the_groups_and_no_other_moves() -> None:
    old = assign_key_groups([1, 1, 1, 1])
    new = assign_key_groups([1] * 5, old)
    moved = [b for a, b in zip(old, new, strict=True) if a != b]
    assert set(moved) == {4}
    assert len(moved) in {204, 205}


def test_the_same_again_moves_nothing() -> None:
    old = assign_key_groups([3, 1])
    assert assign_key_groups([3, 1], old) == old


@given(st.randoms(use_true_random=False), st.integers(1, 8), st.integers(1, 12))
def test_groups_stay_with_the_instances_that_remain(draws: Random, before: int, after: int) -> None:
    """With fewer instances only those of removed ones move; with more, only to new ones."""
    old = draws.choices(range(before), k=KEY_GROUPS)
    new = rescale_key_groups(old, after)
    moved = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert set(new) <= set(range(after))
    assert all(a >= after or b not in old for a, b in moved)


def test_an_instance_with_few_heavy_groups_keeps_just_those_beside_a_new_one() -> None:
    old = (0,) * 64 + (1, 2, 3) * 320
    new = rescale_key_groups(old, 5)
    assert [new.count(i) for i in range(5)] == [64, 240, 240, 240, 240]


def test_groups_of_a_removed_instance_go_to_those_with_many() -> None:
    old = (0,) * 64 + (1, 2, 3) * 320
    new = rescale_key_groups(old, 3)
    assert new[:64] == old[:64]
    assert [new.count(i) for i in range(3)] == [93, 466, 465]


def test_what_is_spread_stays_spread_and_its_instance_counts_as_new() -> None:
    old = (SPREAD,) * 256 + (1, 2, 3) * 256
    assert Counter(rescale_key_groups(old, 5)) == Counter(
        {SPREAD: 256, 0: 153, 1: 154, 2: 154, 3: 154, 4: 153}
    )
    assert set(rescale_key_groups((SPREAD,) * KEY_GROUPS, 3)) == {SPREAD}
