"""Lists Dhalion's experiments as the paper (VLDB'17, section 6) describes them."""

from typing import Final

from trilithon.experiments.definition import (
    Experiment,
    FaultKind,
    FigureScope,
    JobSet,
    LoadChange,
    PlannedFault,
    RelativeLoad,
    Topology,
    Variant,
    at_least,
    at_most,
    juice,
    neither,
)
from trilithon.model.intent import Metric, Threshold

MINUTE_S: Final = 60.0
# 4 million sentences a minute (section 6.3); the chosen rate of the topology is the same.
SLO_PER_S: Final = 66_666.67
MACHINES: Final = 10
JOB: Final = "words"
LESS_S, MORE_S = 10 * MINUTE_S, 40 * MINUTE_S
NUMBERS_NOT_SAID: Final = (
    "machines: 10; what an instance can do; how many records fill a queue, and how long nothing "
    "flows during a change (`scenarios/chosen.yaml`)"
)
SPOUTS_AS_LOAD: Final = (
    "the load of 40, 32 and 45 spouts comes to 45 spouts that nobody may change: the experimenters "
    "changed their number by hand"
)


def _words(
    split: int, count: int, load: RelativeLoad | None = None, hot: float | None = None
) -> JobSet:
    return JobSet(
        JOB,
        1,
        Topology.SENTENCES,
        juice(),
        (1,),
        load or RelativeLoad(),
        instances=(("spout", 45), ("split", split), ("count", count)),
        hot_key=None if hot is None else ("count", hot),
        fixed=("spout",),
    )


def _slow(percent: int, to_s: float) -> tuple[PlannedFault, ...]:
    """An instance that is X % slower has a peak rate that is X % lower (section 6.4)."""
    slower = 1 / (1 - percent / 100)
    fault = PlannedFault(
        FaultKind.SLOW_INSTANCE, 0.0, to_s, job=JOB, operator="split", slower=slower
    )
    return (fault,)


def _variant(name: str, jobs: JobSet, faults: tuple[PlannedFault, ...] = ()) -> Variant:
    return Variant(name, (jobs,), MACHINES, faults=faults, engine="heron", arrivals="even")


LOAD_CHANGE: Final = Experiment(
    name="load-change",
    about="the load falls by a fifth and rises above what it was: instances follow",
    source="section 6.2, figures 5 and 6",
    duration_s=120 * MINUTE_S,
    policy_from_s=0.0,
    variants=(
        _variant(
            "spouts",
            _words(
                11,
                11,
                RelativeLoad(changes=(LoadChange(LESS_S, 0.8), LoadChange(MORE_S, 1.125))),
            ),
        ),
    ),
    figures=(
        at_most("splitters and counters after the load fell", 18, "instances", "6.2, figure 6"),
        neither("actions after the load fell", 2, "actions", "6.2"),
        at_most("splitters at the end", 12, "instances", "6.2, figure 6", headline=True),
        at_most("counters at the end", 14, "instances", "6.2, figure 6", headline=True),
        neither("actions after the load rose", 4, "actions", "6.2"),
        at_most(
            "the last action after",
            93,
            "minutes",
            "6.2, figure 5",
            headline=True,
            scope=FigureScope(decided_s=(MORE_S, 120 * MINUTE_S)),
        ),
    ),
    chosen=(NUMBERS_NOT_SAID, SPOUTS_AS_LOAD, "the end of the run"),
    plotted=("spouts",),
    with_instances=True,
)

SLO: Final = Experiment(
    name="slo",
    about="from one instance each to an SLO of 4 million sentences a minute",
    source="section 6.3, figures 7 and 8",
    duration_s=120 * MINUTE_S,
    policy_from_s=0.0,
    variants=(
        Variant(
            "from-one",
            (
                JobSet(
                    JOB,
                    1,
                    Topology.SENTENCES,
                    (Threshold(Metric.EMISSION, SLO_PER_S),),
                    (1,),
                    # More than anybody asks for: spouts make as much as they can.
                    RelativeLoad(1.6),
                    instances=(("spout", 1), ("split", 1), ("count", 1)),
                ),
            ),
            MACHINES,
            engine="heron",
            arrivals="even",
        ),
    ),
    figures=(
        at_most("the SLO is met after", 71, "minutes", "6.3, figure 7", headline=True),
        at_most("spouts at the end", 43, "instances", "6.3, figure 8"),
        at_most("splitters at the end", 11, "instances", "6.3, figure 8", headline=True),
        at_most("counters at the end", 11, "instances", "6.3, figure 8", headline=True),
        at_most("actions at the spouts", 4, "actions", "6.3"),
        at_most("actions at the splitters", 4, "actions", "6.3"),
        at_most("actions at the counters", 3, "actions", "6.3"),
        neither("sentences a minute at the end", 4.3, "million", "6.3, figure 7"),
    ),
    chosen=(NUMBERS_NOT_SAID, "the end of the run"),
    plotted=("from-one",),
    with_instances=True,
)

SLOW_PERCENT: Final = (25, 50, 75)
SKEW_PERCENT: Final = (5, 15, 25)
_PRINTED: Final = {
    "slow-25": (1.0, 0.15),
    "slow-50": (1.0, 0.65),
    "slow-75": (1.0, 0.87),
    "skew-5": (1.4, 0.24),
    "skew-15": (2.5, 0.34),
    "skew-25": (4.1, 0.90),
}
_DIAGNOSIS_S: Final = 60 * MINUTE_S
DIAGNOSIS: Final = Experiment(
    name="diagnosis",
    about="a slow instance or a hot word, each in three sizes: is the first diagnosis right?",
    source="section 6.4, table 2",
    duration_s=_DIAGNOSIS_S,
    policy_from_s=0.0,
    variants=(
        *(
            _variant(f"slow-{percent}", _words(11, 11), _slow(percent, _DIAGNOSIS_S))
            for percent in SLOW_PERCENT
        ),
        *(
            _variant(f"skew-{percent}", _words(11, 11, hot=percent / 100))
            for percent in SKEW_PERCENT
        ),
    ),
    figures=(
        at_least("first diagnoses that are right", 5, "of 6", "6.4, table 2", headline=True),
        *(
            neither(f"{what}, {name}", value, "ratio", "6.4, table 2", scope=FigureScope((name,)))
            for name, (ratio, share) in _PRINTED.items()
            for what, value in (("rates in B to the rest", ratio), ("back-pressure", share))
        ),
    ),
    chosen=(
        NUMBERS_NOT_SAID,
        "instances: 11 splitters and 11 counters under the load of 40 spouts, as in section 6.2",
    ),
)

_MIXED_S: Final = 60 * MINUTE_S
MIXED: Final = Experiment(
    name="mixed",
    about="too few splitters and counters, and a slow splitter",
    source="section 6.5, figures 9 and 10",
    duration_s=_MIXED_S,
    policy_from_s=0.0,
    variants=tuple(
        _variant(f"slow-{percent}", _words(8, 8), _slow(percent, _MIXED_S)) for percent in (25, 75)
    ),
    figures=tuple(
        figure
        for percent, minutes, split, count in ((25, 24, 11, 12), (75, 19, 15, 11))
        for scope in (FigureScope((f"slow-{percent}",)),)
        for figure in (
            at_most(
                f"the last action after, {percent} % slower",
                minutes,
                "minutes",
                "6.5, figures 9 and 10",
                headline=True,
                scope=scope,
            ),
            at_most(
                f"splitters at the end, {percent} % slower", split, "instances", "6.5", scope=scope
            ),
            at_most(
                f"counters at the end, {percent} % slower", count, "instances", "6.5", scope=scope
            ),
        )
    ),
    chosen=(
        NUMBERS_NOT_SAID,
        "X % slower: a peak rate that is X % lower (section 6.4); in section 6.5 75 % is less slow",
    ),
    plotted=("slow-25", "slow-75"),
    with_instances=True,
)

EXPERIMENTS: Final = (LOAD_CHANGE, SLO, DIAGNOSIS, MIXED)
