"""Compares the cluster's utility before and after, level by level (`ClusterView.levels`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """The levels of the same jobs at two times. The first level that differs by more than may pass
    unnoticed decides.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    # A smaller difference counts as none, however little there was.
    least_fall: float

    def deciding_level(self, share: float) -> int:
        """The first level that moved by more than a share of what it was, and by more than
        `least_fall`: while utility is close to 0, as of jobs with growing backlogs, a share of it
        means nothing. The last level if none did.
        """
        for level, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            if abs(after - before) > max(share * before, self.least_fall):
                return level
        return len(self.before) - 1

    def fell(self, share: float) -> bool:
        """Whether utility fell by more than a share of what it was."""
        level = self.deciding_level(share)
        fall = self.before[level] - self.after[level]
        return fall > max(share * self.before[level], self.least_fall)

    def rose(self, share: float) -> bool:
        level = self.deciding_level(share)
        return self.after[level] - self.before[level] > share * self.before[level]

    def at(self, share: float) -> tuple[float, float]:
        """The deciding level before and after."""
        level = self.deciding_level(share)
        return self.before[level], self.after[level]

    def gains(self) -> tuple[float, ...]:
        """What each level gained; what may pass unnoticed is 0."""
        return tuple(
            after - before if abs(after - before) > self.least_fall else 0.0
            for before, after in zip(self.before, self.after, strict=True)
        )
