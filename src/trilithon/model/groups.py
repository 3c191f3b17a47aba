"""Assigns key groups to instances.

A key is hashed to one of 1,024 key groups, and a map says which instance gets which group. When
instances, their weights or a single group change, only that map changes, and as little of it as
possible, so that most keys stay on their instance. A group may also be spread: its records are
dealt over all instances, where one of its keys is more than one instance can take.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

KEY_GROUPS: Final = 1024
# In place of an instance: the records of the group are dealt over all instances.
SPREAD: Final = -1


def assign_key_groups(
    weights: Sequence[float], before: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The instance of each key group, in proportion to the instances' weights.

    As few groups as possible move, compared with `before`; those that were spread there go to an
    instance again. Shares are whole numbers: the largest
    remainders get one more group (Hamilton's method), ties go to the lower instance.
    """
    return _assigned(tuple(weights), None if before is None else tuple(before))


# Identical jobs, and the same job again and again in a search, ask for the same.
@lru_cache(maxsize=256)
def _assigned(weights: tuple[float, ...], before: tuple[int, ...] | None) -> tuple[int, ...]:
    total = sum(weights)
    exact = [weight / total * KEY_GROUPS for weight in weights]
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: KEY_GROUPS - sum(shares)]:
        shares[i] += 1
    kept: list[int | None] = [None] * KEY_GROUPS
    for group, instance in enumerate(before or ()):
        if 0 <= instance < len(shares) and shares[instance] > 0:
            kept[group] = instance
            shares[instance] -= 1
    # The remaining groups go to the instances in turn, so that neighbours get different instances.
    turns = sorted(((k + 0.5) / share, i) for i, share in enumerate(shares) for k in range(share))
    following = (i for _, i in turns)
    return tuple(next(following) if instance is None else instance for instance in kept)


def rescale_key_groups(before: Sequence[int], instances: int) -> tuple[int, ...]:
    """Key groups that were given one by one, for another number of instances.

    They were moved because keys differ, so an instance with few groups has heavy ones, and equal
    shares would undo the cure. Groups stay with the instances that remain, and what is spread stays
    spread. Those of removed instances go to the others in proportion to what these have. A new
    instance takes from the one with the most groups, one by one, until it has as many.
    """
    owned: list[list[int]] = [[] for _ in range(instances)]
    left_over: list[int] = []
    for group, owner in enumerate(before):
        if owner != SPREAD:
            (owned[owner] if owner < instances else left_over).append(group)
    new = [i for i in range(instances) if not owned[i]]
    usual = max(len(groups) for groups in owned) or 1
    weights = [len(groups) or usual for groups in owned]
    for group in left_over:
        least = min(range(instances), key=lambda i: ((len(owned[i]) + 1) / weights[i], i))
        owned[least].append(group)
    while new and not left_over:
        most = max(range(instances), key=lambda i: (len(owned[i]), -i))
        least = min(new, key=lambda i: (len(owned[i]), i))
        if len(owned[most]) - len(owned[least]) < 2:
            break
        owned[least].append(owned[most].pop())
    after = [SPREAD] * len(before)
    for owner, groups in enumerate(owned):
        for group in groups:
            after[group] = owner
    return tuple(after)
