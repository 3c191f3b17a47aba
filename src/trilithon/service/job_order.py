"""Orders jobs by the utility that they lose, for the dashboard and for `trilithon top` alike."""

from typing import Final

TROUBLE: Final = frozenset({"failed", "degraded", "not started"})


def by_lost_utility(
    job: str, state: str, lost: float | None, max_utility: float
) -> tuple[float, float, str]:
    """Most lost utility first; then those of which nothing is known, then the others. A job in
    trouble of which nothing is known stands among the first.
    """
    if lost is None:
        return (0.0 if state in TROUBLE else 1.0, -max_utility, job)
    return (0.0 if lost > 0 else 2.0, -lost, job)
