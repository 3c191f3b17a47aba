"""Runs scaling on a live cluster in turns, and judges it: throughput, gap, lost and doubled ids,
the instances that were given, and predicted against realised throughput.

A cluster under waiting work gets a machine, scales out to it by one of the strategies, and gives it
back. Every record carries an id; what arrives at the sinks tells the rest. The cluster is a
`LiveCluster`: what starts and stops machines, sends and reads is not part of this.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple, Protocol

from trilithon.policies.requests import ScalingKind

# Goals: the longest time without an arrival, and in how many of three jobs Stela must be ahead.
MOST_GAP_S: Final = 1.5
AHEAD_IN: Final = 2
TURNS: Final = 3
# Throughputs closer than this are the same.
SAME: Final = 0.02
STELA, FAIR, DEFAULT = "stela", "round_robin", "default"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record at a sink: when it was written, and its id. A record that a job copies has an id of
    its own in each branch.
    """

    at_s: float
    id: str

    @property
    def branch(self) -> str:
        """The branch that an id like `17/left` names; none in a job with one path."""
        return self.id.partition("/")[2]


class ActionThroughput(NamedTuple):
    """Throughput that an action predicted, and what was measured after it, in records/s."""

    predicted: float | None = None
    realised: float | None = None


class LiveCluster(Protocol):
    """One job on a cluster that can get and lose a machine. Times are those of the sinks."""

    @property
    def given(self) -> Mapping[str, int]:
        """The instances that the scale-out gave to each operator that got any."""

    def prediction(self, kind: ScalingKind) -> ActionThroughput:
        """What the policy predicted of its action, and measured."""

    def now_s(self) -> float: ...

    def wait(self, seconds: float) -> None: ...

    def scale_out(self) -> None:
        """`cluster scale-out --machines 1`, which starts a machine, until it has ended."""

    def scale_in(self) -> None:
        """`cluster scale-in --machines 1`, until it has ended."""

    def stop_sending(self) -> Collection[str]:
        """The ids that must arrive: those of all records that were sent, in every branch."""

    def arrivals(self) -> Sequence[Arrival]:
        """All records at the sinks, after everything that was sent is through."""


@dataclass(frozen=True)
class LiveTurn:
    """One turn: throughput before, after and at the end; the longest gaps, of all records and of
    each branch; lost and doubled; what was given, predicted and realised.
    """

    turn: int
    job: str
    strategy: str
    before_per_s: float
    after_per_s: float
    end_per_s: float
    gap_out_s: float
    gap_in_s: float
    lost: int
    doubles: int
    given: Mapping[str, int]
    branch_gaps_out_s: Mapping[str, float]
    branch_gaps_in_s: Mapping[str, float]
    predicted_out_per_s: float | None
    realised_out_per_s: float | None
    predicted_in_per_s: float | None
    realised_in_per_s: float | None

    @property
    def given_in_all(self) -> int:
        return sum(self.given.values())

    @property
    def key(self) -> "TurnKey":
        return self.turn, self.job, self.strategy

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# The number of a turn, its job and its strategy.
TurnKey = tuple[int, str, str]


def stored_turns(data: Mapping[str, Any]) -> tuple[list[LiveTurn], int]:
    """The turns in stored results, and how many are to be run again: they do not say all that a
    turn says now, such as what was given.
    """
    names = {each.name for each in fields(LiveTurn)}
    stored = data.get("turns", ())
    turns = [LiveTurn(**each) for each in stored if each.keys() == names]
    return turns, len(stored) - len(turns)


def longest_gap_s(arrivals: Sequence[Arrival], start_s: float, end_s: float) -> float:
    """The longest time between two arrivals, or to the ends of this time."""
    times = sorted(each.at_s for each in arrivals if start_s <= each.at_s <= end_s)
    marks = [start_s, *times, end_s]
    return max(later - earlier for earlier, later in pairwise(marks))


def branch_gaps_s(arrivals: Sequence[Arrival], start_s: float, end_s: float) -> dict[str, float]:
    """The longest gap of each branch: one that is silent may hide behind the others."""
    by_branch: dict[str, list[Arrival]] = {}
    for each in arrivals:
        by_branch.setdefault(each.branch, []).append(each)
    return {name: longest_gap_s(own, start_s, end_s) for name, own in sorted(by_branch.items())}


def per_s(arrivals: Sequence[Arrival], start_s: float, end_s: float) -> float:
    return sum(start_s <= each.at_s < end_s for each in arrivals) / (end_s - start_s)


def run_turn(cluster: LiveCluster, key: TurnKey, settle_s: float, measured_s: float) -> LiveTurn:
    """Scales a cluster out and in again; between the actions it settles and is measured."""

    def measured() -> tuple[float, float]:
        cluster.wait(settle_s)
        start_s = cluster.now_s()
        cluster.wait(measured_s)
        return start_s, cluster.now_s()

    before = measured()
    out_s = cluster.now_s()
    cluster.scale_out()
    after = measured()
    in_s = cluster.now_s()
    cluster.scale_in()
    end = measured()
    sent = cluster.stop_sending()
    arrived = cluster.arrivals()
    ids = [each.id for each in arrived]
    return LiveTurn(
        *key,
        per_s(arrived, *before),
        per_s(arrived, *after),
        per_s(arrived, *end),
        longest_gap_s(arrived, out_s, after[0]),
        longest_gap_s(arrived, in_s, end[0]),
        len(set(sent) - set(ids)),
        len(ids) - len(set(ids)),
        dict(cluster.given),
        branch_gaps_s(arrived, out_s, after[0]),
        branch_gaps_s(arrived, in_s, end[0]),
        *cluster.prediction(ScalingKind.OUT),
        *cluster.prediction(ScalingKind.IN),
    )


def turn_keys(
    jobs: Sequence[str],
    turns: int = TURNS,
    strategies: Sequence[str] = (STELA, FAIR, DEFAULT),
) -> list[TurnKey]:
    """Every job under every strategy, in turns, so that a slow minute of the machine hits all."""
    return [
        (turn, job, strategy) for turn in range(turns) for job in jobs for strategy in strategies
    ]


def run_turns(
    start: Callable[[str, str], AbstractContextManager[LiveCluster]],
    keys: Sequence[TurnKey],
    settle_s: float,
    measured_s: float,
) -> Iterator[LiveTurn]:
    for key in keys:
        _, job, strategy = key
        with start(job, strategy) as cluster:
            turn = run_turn(cluster, key, settle_s, measured_s)
        yield turn


def unequal(turns: Sequence[LiveTurn]) -> list[tuple[LiveTurn, LiveTurn]]:
    """The turns in which Stela and the fair rival gave different numbers of instances."""
    by_key = {turn.key: turn for turn in turns}
    pairs = [
        (turn, by_key[turn.turn, turn.job, FAIR])
        for turn in turns
        if turn.strategy == STELA and (turn.turn, turn.job, FAIR) in by_key
    ]
    return [(own, rival) for own, rival in pairs if own.given_in_all != rival.given_in_all]


def goals(turns: Sequence[LiveTurn]) -> Mapping[str, bool]:
    """Which goals are met, by the medians over the turns."""
    jobs = sorted({turn.job for turn in turns})

    def after(job: str, strategy: str) -> float:
        return median(
            turn.after_per_s for turn in turns if (turn.job, turn.strategy) == (job, strategy)
        )

    own = [turn for turn in turns if turn.strategy == STELA]
    ahead = [after(job, STELA) > after(job, FAIR) * (1 + SAME) for job in jobs]
    behind = [after(job, STELA) < after(job, FAIR) * (1 - SAME) for job in jobs]
    return {
        f"gap at most {MOST_GAP_S} s": all(
            max(turn.gap_out_s, turn.gap_in_s) <= MOST_GAP_S for turn in own
        ),
        "nothing lost": all(turn.lost == 0 for turn in turns),
        "at least the fair rival everywhere": not any(behind),
        f"above the fair rival in {AHEAD_IN} jobs": sum(ahead) >= AHEAD_IN,
    }
