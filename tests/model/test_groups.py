"""Key groups: shares exact to one group, and as few moves as possible."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trilithon.model.groups import KEY_GROUPS, assign_key_groups

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
