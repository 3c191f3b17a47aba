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
branches are faster than the bottleneck lets them be.
"""

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
    STELA,
    TURNS,
    LiveTurn,
    goals,
    run_turns,
    turn_keys,
)
from trilithon.experiments.stela.spark_cluster import (
    INSTANCES,
    JOBS,
    MOST,
    SLOTS,
    WAIT_MS,
    WORKERS,
    SparkClusters,
    cores_per_worker,
)

MEMORY_MB: Final = 1024
# After a change, before the throughput is measured, and for how long.
SETTLE_S, MEASURED_S = 20.0, 12.0
_LABELS: Final = {STELA: "Stela", FAIR: "round robin", DEFAULT: "default"}


def run_scaling(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    turns: int = TURNS,
    clusters: "Callable[[Callable[[str], None]], Any] | None" = None,
) -> Iterator[dict[str, Any]]:
    """All turns; yields after each, and goes on after those that are done."""
    results = [LiveTurn(**each) for each in done.get("turns", ())]
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
                    f"{turn.doubles} doubled"
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
    turns = [LiveTurn(**each) for each in data["turns"]]
    bottlenecks = ", ".join(f"`{case.bottleneck}` of {name}" for name, case in JOBS.items())
    return "\n".join(
        [
            "# Scaling out and in on Spark\n",
            (
                "Printed by `trilithon experiment stela spark-scaling --into docs/results/stela.md`"
                " (`experiments/stela/spark_scaling.py`). A standalone cluster of "
                f"{WORKERS} workers on one machine; one worker is added, the cluster scales out to "
                "it by one of the strategies, and then gives a machine back. All operators begin "
                f"with {INSTANCES} instances and may have {MOST}. One of them waits {WAIT_MS} ms "
                f"per record: {bottlenecks}. More is sent than the job can take. Throughput is "
                f"the mean over {MEASURED_S:g} s, {SETTLE_S:g} s after each change; a gap is the "
                "longest time without a record at any sink, from the command to the next "
                "measurement. Medians over the turns, with the least and the most.\n"
            ),
            _table(turns),
            "",
            *_verdict(turns),
            "",
        ]
    )


def _table(turns: Sequence[LiveTurn]) -> str:
    heads = (
        *("job", "strategy", "turns", "before, per s", "after scale-out", "after scale-in"),
        *("gap out, s", "gap in, s", "lost", "doubled"),
    )
    rows = []
    for job in JOBS:
        for strategy, label in _LABELS.items():
            of = [turn for turn in turns if (turn.job, turn.strategy) == (job, strategy)]
            if of:
                rows.append(
                    (
                        *(job, label, str(len(of))),
                        _spread([turn.before_per_s for turn in of], 0),
                        _spread([turn.after_per_s for turn in of], 0),
                        _spread([turn.end_per_s for turn in of], 0),
                        _spread([turn.gap_out_s for turn in of], 2),
                        _spread([turn.gap_in_s for turn in of], 2),
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
    return [*far, *met]
