"""Scales Star, Diamond and Linear out to a third worker of a Spark cluster and in again: Stela, the
fair rival and the paper's default in turn, three times each.

A master and two workers run on this machine; all turns share them and one Spark application. One
operator of each job, the bottleneck, waits for 20 ms per record, so that more instances help on two
cores as they would on forty; the others do the work with which the jobs ship.

The goals (`live_scaling`) and the jobs were set before anything was measured. After one trial turn,
Diamond under Stela on a machine with a load of 20, the wait was doubled from 10 ms, the rate of
sending halved, and throughput measured 10 s after a change instead of 5: the executors took most of
both cores, and a new one was still cold. After a first round of turns it is measured 20 s after a
change: what waits between the parts of a graph takes so long to settle, and before that its other
branches are faster than the bottleneck lets them be. The nine turns after that are not kept: they
do not say how many instances were given, and in Linear both Stela and round robin gave too many.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from trilithon.engines.spark.application import Setup, application
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.experiments.markdown import table
from trilithon.experiments.stela.live_scaling import (
    DEFAULT,
    FAIR,
    SAME,
    STELA,
    TURNS,
    LiveTurn,
    goals,
    run_turns,
    stored_turns,
    turn_keys,
    unequal,
)
from trilithon.experiments.stela.spark_cluster import (
    INSTANCES,
    JOBS,
    LIMITS,
    MEASURED_S,
    MOST,
    SETTLE_S,
    SLOTS,
    WAIT_MS,
    WINDOW_S,
    WORKERS,
    SparkClusters,
    cores_per_worker,
)

MEMORY_MB: Final = 1024
_LABELS: Final = {STELA: "Stela", FAIR: "round robin", DEFAULT: "default"}


def run_scaling(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    turns: int = TURNS,
    clusters: "Callable[[Callable[[str], None]], Any] | None" = None,
) -> Iterator[dict[str, Any]]:
    """All turns; yields after each, and goes on after those that are done."""
    results, _ = stored_turns(done)
    known = {turn.key for turn in results}
    left = [key for key in turn_keys(list(JOBS), turns) if key not in known]
    if left:
        with (clusters or spark_clusters)(tell) as running:
            for turn in run_turns(running.start, left, SETTLE_S, MEASURED_S):
                results.append(turn)
                tell(
                    f"{turn.job}, {_LABELS[turn.strategy]}, turn {turn.turn + 1} of {turns}: "
                    f"{turn.before_per_s:.0f} → {turn.after_per_s:.0f} → {turn.end_per_s:.0f}/s, "
                    f"gaps {turn.gap_out_s:.2f} and {turn.gap_in_s:.2f} s, {turn.lost} lost, "
                    f"{turn.doubles} doubled, given {_given(turn)}"
                )
                yield {"turns": [each.to_json() for each in results]}
    yield {"turns": [each.to_json() for each in results]}


@contextmanager
def spark_clusters(tell: Callable[[str], None]) -> Iterator[SparkClusters]:
    """A standalone cluster on this machine with one application, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="trilithon-scaling-") as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        standalone = StandaloneCluster(folder / "cluster", tell)
        try:
            status = standalone.start(WORKERS, cores_per_worker(), MEMORY_MB)
            setup = Setup(str(status.master), folder / "spark", SLOTS, cluster=standalone)
            with application(setup, (), tell) as engine:
                yield SparkClusters(engine.spark, engine.kafka, standalone, folder, tell)
        finally:
            standalone.stop()


def page(data: Mapping[str, Any]) -> str:
    """Throughput, gaps, lost and doubled records of each job and strategy, as Markdown."""
    turns, again = stored_turns(data)
    lines = ["# Scaling out and in on Spark\n", _set_up()]
    if turns:
        lines += [_table(turns), ""]
    lines += _verdict(turns)
    if again:
        lines.append(f"\nStored turns that do not say what was given, to be run again: {again}.")
    if turns:
        lines += ["\n## Each turn\n", _about_turns(turns), _turn_table(turns)]
    return "\n".join([*lines, ""])


def _set_up() -> str:
    bottlenecks = ", ".join(f"`{case.bottleneck}` of {name}" for name, case in JOBS.items())
    return (
        "Printed by `trilithon experiment stela spark-scaling --into docs/results/stela.md` "
        "(`experiments/stela/spark_scaling.py`). A standalone cluster of "
        f"{WORKERS} workers on one machine; one worker is added, the cluster scales out to it by "
        "one of the strategies, and then gives a machine back. All operators begin with "
        f"{INSTANCES} instances and may have {MOST}. One of them waits {WAIT_MS} ms per record: "
        f"{bottlenecks}. More is sent than the job can take. Throughput is the mean over "
        f"{MEASURED_S:g} s, {SETTLE_S:g} s after each change; a gap is the longest time without a "
        "record at any sink, from the command to the next measurement. A gap of a branch is the "
        "longest time without a record of that branch: in Diamond the other two hide it. Medians "
        "over the turns, with the least and the most.\n\n"
        f"The controller decides every {LIMITS['round_s']:g} s, a plan is made of {WINDOW_S:g} s "
        f"of measurements (`window_s`), and instances are given {WINDOW_S:g} s after a new machine "
        "is seen (`calm_s`): its start takes CPU from the others. Throughputs that differ by less "
        f'than {100 * SAME:g} % count as the same, so "at least" allows {100 * SAME:g} % less.\n'
    )


def _about_turns(turns: Sequence[LiveTurn]) -> str:
    """What the table of turns has, and whether the strategies are comparable."""
    due = ", ".join(f"{_due(name)} in {name}" for name in JOBS)
    shares = (
        "A scale-out gives one machine's share of instances, the instances by the workers that the "
        f"cluster had: {due}. The default moves instances and creates none."
    )
    parts = [shares]
    if differ := unequal(turns):
        parts += [
            f"Not equally many in {own.job}, turn {own.turn + 1}: Stela {own.given_in_all}, round "
            f"robin {rival.given_in_all}."
            for own, rival in differ
        ]
    else:
        parts.append("Stela and round robin gave equally many in every turn.")
    parts += [
        f"{_LABELS[turn.strategy]} gave {turn.given_in_all} in {turn.job}, turn {turn.turn + 1}, "
        f"and should have given {_due(turn.job)}."
        for turn in turns
        if turn.strategy != DEFAULT and turn.given_in_all != _due(turn.job)
    ]
    parts.append(
        "Predicted is the throughput that the policy projected, and realised what it measured over "
        f"{WINDOW_S:g} s, {SETTLE_S + WINDOW_S:g} s after the action.\n"
    )
    return " ".join(parts)


def _due(job: str) -> int:
    return math.ceil(len(JOBS[job].job(job).operators) * INSTANCES / WORKERS)


def _turn_table(turns: Sequence[LiveTurn]) -> str:
    heads = (
        *("job", "strategy", "turn", "given", "predicted → realised, out", "in"),
        *("gaps of branches out, s", "in"),
    )
    order = list(JOBS)
    rows = [
        (
            *(turn.job, _LABELS[turn.strategy], str(turn.turn + 1), _given(turn)),
            _predicted(turn.predicted_out_per_s, turn.realised_out_per_s),
            _predicted(turn.predicted_in_per_s, turn.realised_in_per_s),
            _branches(turn.branch_gaps_out_s),
            _branches(turn.branch_gaps_in_s),
        )
        for turn in sorted(turns, key=lambda each: (order.index(each.job), each.turn))
    ]
    return table(heads, rows)


def _given(turn: LiveTurn) -> str:
    each = ", ".join(f"{name} {count:+d}" for name, count in sorted(turn.given.items()))
    return f"{turn.given_in_all} ({each})" if each else "0"


def _predicted(predicted: float | None, realised: float | None) -> str:
    return " → ".join("?" if value is None else f"{value:.0f}" for value in (predicted, realised))


def _branches(gaps_s: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {gap_s:.2f}".strip() for name, gap_s in gaps_s.items())


def _table(turns: Sequence[LiveTurn]) -> str:
    heads = (
        *("job", "strategy", "turns", "given", "before, per s", "after scale-out"),
        *("after scale-in", "gap out, s", "of a branch", "gap in, s", "of a branch"),
        *("lost", "doubled"),
    )
    rows = []
    for job in JOBS:
        for strategy, label in _LABELS.items():
            of = [turn for turn in turns if (turn.job, turn.strategy) == (job, strategy)]
            if of:
                rows.append(
                    (
                        *(job, label, str(len(of))),
                        _spread([turn.given_in_all for turn in of], 0),
                        _spread([turn.before_per_s for turn in of], 0),
                        _spread([turn.after_per_s for turn in of], 0),
                        _spread([turn.end_per_s for turn in of], 0),
                        _spread([turn.gap_out_s for turn in of], 2),
                        _spread([max(turn.branch_gaps_out_s.values()) for turn in of], 2),
                        _spread([turn.gap_in_s for turn in of], 2),
                        _spread([max(turn.branch_gaps_in_s.values()) for turn in of], 2),
                        str(sum(turn.lost for turn in of)),
                        str(sum(turn.doubles for turn in of)),
                    )
                )
    return table(heads, rows)


def _spread(values: Sequence[float], digits: int) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _verdict(turns: Sequence[LiveTurn]) -> list[str]:
    run = {(turn.job, turn.strategy) for turn in turns}
    missing = [key for key in turn_keys(list(JOBS), 1) if key[1:] not in run]
    if missing:
        return ["Not all jobs were run yet under all strategies."]
    wanted = len(turn_keys(list(JOBS), TURNS))
    far = [f"So far, after {len(turns)} of {wanted} turns:", ""] if len(turns) < wanted else []
    met = [f"- {goal}: {'met' if met else 'missed'}" for goal, met in goals(turns).items()]
    gaps_s = [
        gap_s
        for turn in turns
        if turn.strategy == STELA
        for gap_s in (*turn.branch_gaps_out_s.values(), *turn.branch_gaps_in_s.values())
    ]
    worst = f"\nThe longest gap of a single branch under Stela is {max(gaps_s):.2f} s."
    return [*far, *met, worst]
