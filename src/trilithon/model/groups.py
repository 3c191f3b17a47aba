"""Owns key groups: keys are hashed to 1,024 groups, and a map says which instance has which group.

More or fewer instances, other weights, or a single group moved: only the map changes, and of it as little
as possible, so that most keys stay where they are.
"""

import math
from collections.abc import Sequence
from typing import Final

KEY_GROUPS: Final = 1024


def assign_key_groups(
    weights: Sequence[float], before: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Groups for each instance in proportion to its weight, with the fewest moves from `before`.

    Shares are whole: the largest remainders get one more (Hamilton's method), the lower instance first.
    """
    total = sum(weights)
    exact = [weight / total * KEY_GROUPS for weight in weights]
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: KEY_GROUPS - sum(shares)]:
        shares[i] += 1
    given: list[int | None] = [None] * KEY_GROUPS
    for group, instance in enumerate(before or ()):
        if instance < len(shares) and shares[instance] > 0:
            given[group] = instance
            shares[instance] -= 1
    # In turn, each as often as its share: neighbouring groups go to different instances.
    turns = sorted(((k + 0.5) / share, i) for i, share in enumerate(shares) for k in range(share))
    dealt = (i for _, i in turns)
    return tuple(next(dealt) if instance is None else instance for instance in given)
