"""Lists Henge's experiments as SoCC'18 and the report (arXiv 1802.00082) describe them.

Where the two differ, SoCC'18 is followed; what only the report has is named so. A source is a
section or a figure of either.
"""

from dataclasses import replace
from math import inf
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
    latency,
    neither,
)
from trilithon.experiments.strategies import MANUAL, UNCONTROLLED

HOUR_S: Final = 3600.0
# The authors' source sends no more than so many records per second, whatever the trace says (public
# code of their experiments). The second trace never exceeds it.
TRACE_MOST: Final = 2287.0
TREBLED_S: Final = 4000.0
SPIKE_S: Final = 21_800.0
CPU_SPIKE_END_S: Final = 25_200.0
LOST_S: Final = (1020.0, 1380.0)
# When the policy may act for the first time, unless an experiment says otherwise.
POLICY_FROM_S: Final = 900.0
FROM_START: Final = FigureScope(since_s=POLICY_FROM_S)
TREBLED: Final = FigureScope(decided_s=(TREBLED_S, inf), since_s=TREBLED_S)
CORES_NOT_SAID: Final = (
    "cores of a machine: the text gives 2.4 GHz and 12 GB, which Stela's text calls a quad core"
)

JUICE: Final = Experiment(
    name="juice",
    about="juice as an indicator: the load of all jobs trebles, and juice is brought back to 1",
    source="report, section 7.1, figures 9 and 10",
    duration_s=7200,
    variants=(
        Variant(
            "tripled",
            (
                JobSet(
                    "pageload",
                    5,
                    Topology.PAGELOAD,
                    juice(),
                    (35,),
                    RelativeLoad(changes=(LoadChange(TREBLED_S, 3),)),
                ),
            ),
        ),
    ),
    plotted=("tripled",),
    figures=(
        neither("juice when it has fallen", 0.992, "ratio", "report 7.1, figure 10", scope=TREBLED),
        neither("juice has fallen", 4338, "s", "report 7.1, figure 10", scope=TREBLED),
        at_most(
            "stable again by", 5734, "s", "report 7.1, figure 10", headline=True, scope=TREBLED
        ),
        at_most(
            "stable after the first action by", 1000, "s", "report 7.1, figure 9", scope=FROM_START
        ),
    ),
    chosen=("the intent: juice of 1 and a priority of 35", "the end of the run", CORES_NOT_SAID),
)


def _initial(ms: int, executors: int, factor: int) -> Variant:
    load = RelativeLoad(float(factor))
    # One operator in the middle, the slowest.
    jobs = JobSet(
        "linear", 1, Topology.LINEAR, latency(ms), (35,), load, instances=(("third", executors),)
    )
    return Variant(f"{ms}ms-{executors}-{factor}x", (jobs,))


EXECUTORS: Final = (5, 10, 15, 20, 25)


def _from_10(ms: int, factor: int) -> FigureScope:
    return FigureScope((f"{ms}ms-10-{factor}x",))


def _doubled(ms: int) -> FigureScope:
    return FigureScope(tuple(f"{ms}ms-{executors}-2x" for executors in EXECUTORS))


INITIAL: Final = Experiment(
    name="initial-configuration",
    about="one job that begins with 5 to 25 instances of its slowest operator, by promise and load",
    source="report, section 7.2.1, figures 11 and 12",
    duration_s=4500,
    variants=tuple(
        _initial(ms, executors, factor)
        for ms in (40, 50, 60, 70)
        for executors in EXECUTORS
        for factor in (1, 2)
    ),
    figures=(
        *(
            at_most(f"{what} from 10, {ms} ms{suffix}", value, what, "report 7.2.1", scope=scope)
            for ms, factor, suffix, instances, rounds in (
                (70, 1, "", 18, 1),
                (60, 1, "", 21, 2),
                (70, 2, ", twice the load", 36, 2),
                (60, 2, ", twice the load", 44, 5),
            )
            for scope in (_from_10(ms, factor),)
            for what, value in (("instances", instances), ("rounds", rounds))
        ),
        at_most(
            "rounds at 50 ms, twice the load", 12, "rounds", "report 7.2.1", scope=_doubled(50)
        ),
        at_most(
            "rounds at 60 ms, twice the load",
            7,
            "rounds",
            "report 7.2.1",
            headline=True,
            scope=_doubled(60),
        ),
    ),
    chosen=("the end of the run", CORES_NOT_SAID),
)

PRIORITIES: Final = Experiment(
    name="priorities",
    about="nine jobs with priorities from 10 to 90: those that matter most come first",
    source="SoCC'18, section 8.1.1, figure 9",
    duration_s=3600,
    variants=(
        Variant(
            "nine",
            (
                JobSet(
                    "t", 9, Topology.PAGELOAD, latency(60), tuple(map(float, range(10, 100, 10)))
                ),
            ),
        ),
    ),
    plotted=("nine",),
    figures=(
        at_most("all intents met after", 900, "s", "SoCC'18 8.1.1", headline=True),
        at_most("Reconfigurations", 13, "steps", "report, labels of figure 13"),
    ),
    chosen=("the end of the run", CORES_NOT_SAID),
)

HYBRID: Final = Experiment(
    name="hybrid",
    about="ten jobs that ask for juice and latency",
    source="SoCC'18, section 8.1.1, figure 10",
    duration_s=3600,
    variants=(
        Variant("ten", (JobSet("t", 10, Topology.PAGELOAD, (*juice(), *latency(70)), (35,)),)),
    ),
    plotted=("ten",),
    figures=(
        at_most("all intents met by", 1710, "s", "SoCC'18 8.1.1", headline=True, scope=FROM_START),
        at_most("first action at", 920, "s", "SoCC'18 8.1.1", scope=FROM_START),
        at_least("jobs that needed one Reconfiguration", 9, "jobs", "SoCC'18 8.1.1"),
        at_most("Reconfigurations of the tenth", 3, "steps", "SoCC'18 8.1.1"),
    ),
    chosen=("the end of the run", CORES_NOT_SAID),
)

SPIKES: Final = Experiment(
    name="spikes",
    about="the load of one job doubles for an hour, then that of the other",
    source="SoCC'18, section 8.1.2 A, figure 11",
    duration_s=10800,
    variants=(
        Variant(
            "two",
            (
                JobSet(
                    "b",
                    1,
                    Topology.PAGELOAD,
                    latency(80),
                    (35,),
                    RelativeLoad(changes=(LoadChange(3600, 2), LoadChange(7200, 1))),
                ),
                JobSet(
                    "a",
                    1,
                    Topology.PAGELOAD,
                    latency(80),
                    (35,),
                    RelativeLoad(changes=(LoadChange(7200, 2),)),
                ),
            ),
        ),
    ),
    plotted=("two",),
    figures=(
        at_least(
            "total utility during the spikes",
            70,
            "utility",
            "SoCC'18, figure 11",
            headline=True,
            scope=FigureScope(decided_s=(3600, inf)),
        ),
    ),
    chosen=("the end of the second spike, which is the end of the run", CORES_NOT_SAID),
)

MANUAL_SCOPE: Final = FigureScope(strategy=MANUAL.name)
UNCONTROLLED_SCOPE: Final = FigureScope(strategy=UNCONTROLLED.name)

DIURNAL: Final = Experiment(
    name="diurnal",
    about="ten jobs, two days of two traces, an hour in ten minutes",
    source="SoCC'18, section 8.1.2 B, figure 12",
    duration_s=48 * 600.0,
    variants=(
        Variant(
            "two-days",
            tuple(
                JobSet(
                    name,
                    5,
                    Topology.PAGELOAD,
                    latency(60),
                    (35,),
                    RelativeLoad(trace=trace, row_s=600, trace_most=TRACE_MOST),
                )
                for name, trace in (("epa", "epa_http_hourly"), ("second", "day_two_hourly"))
            ),
        ),
    ),
    plotted=("two-days",),
    figures=(
        at_least("average satisfaction, Henge", 0.8812, "ratio", "SoCC'18 8.1.2", headline=True),
        at_least("15th percentile, Henge", 0.749, "ratio", "SoCC'18 8.1.2", headline=True),
        at_least("median, Henge", 0.991, "ratio", "SoCC'18 8.1.2", headline=True),
        at_least("90th percentile, Henge", 1.0, "ratio", "SoCC'18 8.1.2"),
        neither(
            "average satisfaction, manual", 0.8777, "ratio", "SoCC'18 8.1.2", scope=MANUAL_SCOPE
        ),
        neither("15th percentile, manual", 0.665, "ratio", "SoCC'18 8.1.2", scope=MANUAL_SCOPE),
        neither("median, manual", 0.998, "ratio", "SoCC'18 8.1.2", scope=MANUAL_SCOPE),
        neither("90th percentile, manual", 1.0, "ratio", "SoCC'18 8.1.2", scope=MANUAL_SCOPE),
        neither(
            "average satisfaction, uncontrolled",
            0.0456,
            "ratio",
            "SoCC'18 8.1.2",
            scope=UNCONTROLLED_SCOPE,
        ),
        neither(
            "median, uncontrolled", 0.000006, "ratio", "SoCC'18 8.1.2", scope=UNCONTROLLED_SCOPE
        ),
        neither(
            "90th percentile, uncontrolled",
            0.309,
            "ratio",
            "SoCC'18 8.1.2",
            scope=UNCONTROLLED_SCOPE,
        ),
        at_least("share of the maximum by hour 15", 0.89, "ratio", "SoCC'18 8.1.2"),
        at_most(
            "time of actions over all jobs",
            2.4,
            "h",
            "SoCC'18 8.1.1",
            not_comparable="0.5 % of the paper's job time is 2.4 h: it ran ten jobs for 48 h, and "
            "these run for eight; the share can be compared if the paper, like us, counts the time "
            "for which jobs are down",
        ),
        at_most("the same, of all job time", 0.005, "ratio", "SoCC'18 8.1.1"),
        at_most("longest convergence", 960, "s", "SoCC'18 8.1.1", headline=True),
    ),
    chosen=(
        "the second trace: its source does not state the origin, so it is not called SDSC-HTTP",
        CORES_NOT_SAID,
    ),
)

COST: Final = Experiment(
    name="cost",
    about="five jobs on a share of the resources that they would have in clusters of their own",
    source="SoCC'18, section 1, figure 1",
    duration_s=5400,
    variants=(
        *(
            Variant(
                f"{percent}%",
                (JobSet("t", 5, Topology.PAGELOAD, latency(60), (35,)),),
                resources=percent / 100,
            )
            for percent in (40, 60, 80, 100)
        ),
        # What a job needs in a cluster of its own.
        *(
            Variant(
                f"alone on {cores}",
                (JobSet("t", 1, Topology.PAGELOAD, latency(60), (35,)),),
                1,
                cores,
            )
            for cores in (1, 2)
        ),
    ),
    figures=(
        *(
            at_least(
                f"satisfaction at {percent} %",
                value,
                "ratio",
                "SoCC'18, figure 1",
                headline=True,
                scope=FigureScope((f"{percent}%",)),
            )
            for percent, value in ((60, 1.0), (40, 0.935))
        ),
        at_least(
            "against uncontrolled at 40 %",
            6.7,
            "times",
            "SoCC'18, figure 1",
            not_comparable="uncontrolled jobs have next to no utility here, and a quotient by that "
            "says little",
            scope=FigureScope(("40%",)),
        ),
    ),
    chosen=(
        "jobs, intents and priorities: the text says five jobs",
        "the end of the run",
        CORES_NOT_SAID,
    ),
)

_TABLE_3: Final = (
    ("t1", 234, 1729),
    ("t2", 31, 459),
    ("t3", 8, 100),
    ("t4", 2, 34),
    ("t5", 1, 18),
)

PRODUCTION: Final = Experiment(
    name="production",
    about="five jobs of the sizes of those in a production cluster",
    source="SoCC'18, section 8.2, table 3, figure 13",
    duration_s=36000,
    variants=(
        Variant(
            "table-3",
            tuple(
                JobSet(name, 1, Topology.PAGELOAD, latency(60), (35,), workers=workers, tasks=tasks)
                for name, workers, tasks in _TABLE_3
            ),
            machines=20,
        ),
    ),
    plotted=("table-3",),
    figures=(
        at_least(
            "total utility at the end", 120, "utility", "SoCC'18 8.2, figure 13b", headline=True
        ),
        at_least("median of t4", 24, "utility", "SoCC'18 8.2"),
        at_least("lowest median of t1 to t3", 27.0, "utility", "SoCC'18 8.2"),
        at_least("highest median of t1 to t3", 32.3, "utility", "SoCC'18 8.2"),
        at_least("5th percentile of t5", 1.0, "ratio", "SoCC'18 8.2"),
    ),
    chosen=(
        "loads: in proportion to workers, as in the text, whose Twitter data are not published",
        "14 workers on each machine is the report's wording (7.3)",
    ),
)

CPU_SPIKE: Final = Experiment(
    name="cpu-spike",
    about="other processes take CPU on all machines, and jobs that met their intents give way",
    source="SoCC'18, section 8.2.1, figure 14",
    duration_s=CPU_SPIKE_END_S,
    variants=(
        Variant(
            "eight",
            (
                JobSet("t", 7, Topology.PAGELOAD, latency(70), (35,)),
                JobSet("strict", 1, Topology.PAGELOAD, latency(10), (35,)),
            ),
            faults=(PlannedFault(FaultKind.CPU_LOAD, SPIKE_S, CPU_SPIKE_END_S),),
        ),
    ),
    plotted=("eight",),
    figures=(
        at_most(
            "first converged by",
            1000,
            "s",
            "SoCC'18 8.2.1",
            scope=FigureScope(decided_s=(0, SPIKE_S), since_s=POLICY_FROM_S),
        ),
        at_most(
            "recovered by",
            23000,
            "s",
            "SoCC'18 8.2.1",
            headline=True,
            scope=FigureScope(decided_s=(SPIKE_S, inf), since_s=SPIKE_S, recovery=True),
        ),
        neither(
            "jobs reduced", 2, "jobs", "SoCC'18 8.2.1", scope=FigureScope(decided_s=(SPIKE_S, inf))
        ),
    ),
    chosen=(
        "the size of the CPU load",
        "its end, that of the run: only a policy can bring utility back",
        "priorities",
        CORES_NOT_SAID,
    ),
)

STATEFUL: Final = Experiment(
    name="stateful",
    about="four word counts, two of which keep state",
    source="SoCC'18, section 8.3, table 4",
    duration_s=5400,
    variants=(
        Variant(
            "four",
            (
                JobSet(
                    "stateful",
                    2,
                    Topology.WORDCOUNT,
                    latency(240),
                    (35,),
                    workers=31,
                    tasks=459,
                    state="count",
                ),
                JobSet(
                    "stateless", 2, Topology.WORDCOUNT, latency(60), (35,), workers=31, tasks=459
                ),
            ),
            # "Identical workload and configuration as T2": T2 runs in a cluster of 20.
            machines=20,
        ),
    ),
    plotted=("four",),
    figures=(
        at_most("rounds, stateful", 5.5, "rounds", "SoCC'18, table 4"),
        at_most("rounds, stateless", 4.0, "rounds", "SoCC'18, table 4"),
        at_most("convergence, stateful", 1358.7, "s", "SoCC'18, table 4", headline=True),
        at_most("convergence, stateless", 1134.2, "s", "SoCC'18, table 4", headline=True),
        at_most("longer with state", 0.198, "ratio", "SoCC'18, table 4"),
    ),
    chosen=("priorities", "the end of the run", CORES_NOT_SAID),
)

MORE_JOBS: Final = Experiment(
    name="more-jobs",
    about="five jobs, and twenty more every two hours, up to 85",
    source="SoCC'18, section 8.4.1, figure 15",
    duration_s=11 * HOUR_S,
    variants=(
        Variant(
            "to-85",
            (
                JobSet("first", 5, Topology.PAGELOAD, latency(70), (35,)),
                *(
                    JobSet(
                        f"at-{h}h", 20, Topology.PAGELOAD, latency(70), (35,), arrive_s=h * HOUR_S
                    )
                    for h in (2, 4, 6, 8)
                ),
            ),
        ),
    ),
    plotted=("to-85",),
    figures=(
        at_least(
            "average utility after the arrivals at 2, 4 and 6 h",
            35,
            "utility",
            "SoCC'18 8.4.1, figure 15",
            headline=True,
            scope=FigureScope(decided_s=(2 * HOUR_S, 8 * HOUR_S)),
        ),
        at_least(
            "average utility after the arrivals at 8 h",
            35,
            "utility",
            "SoCC'18 8.4.1, figure 15",
            headline=True,
            scope=FigureScope(decided_s=(8 * HOUR_S, inf)),
        ),
    ),
    chosen=("three hours after the last arrival, so that it can be seen to settle", CORES_NOT_SAID),
)


def _machines(machines: int, cores: int) -> Variant:
    return Variant(
        f"{machines}x{cores}",
        (
            JobSet("pageload", 20, Topology.PAGELOAD, latency(80), (35,)),
            JobSet("diamond", 8, Topology.DIAMOND, juice(), (5,)),
            JobSet("star", 6, Topology.STAR, juice(), (5,)),
            JobSet("linear", 6, Topology.LINEAR, juice(), (5,)),
        ),
        machines=machines,
        cores=cores,
        memory_gb=64,
    )


MORE_MACHINES: Final = Experiment(
    name="more-machines",
    about="forty jobs on ten to forty machines",
    source="SoCC'18, section 8.4.1, figure 16; report, figure 20",
    duration_s=7200,
    variants=tuple(
        _machines(machines, cores) for machines in (10, 20, 30, 40) for cores in (8, 16)
    ),
    figures=(
        *(
            at_least(
                f"5th percentile of satisfaction, {machines} machines",
                value,
                "ratio",
                "SoCC'18 8.4.1",
                headline=machines != 30,
                scope=FigureScope((f"{machines}x8",)),
            )
            for machines, value in ((10, 0.003), (20, 0.564), (30, 0.740), (40, 0.945))
        ),
        at_least(
            "jobs that meet their intents, 10 machines",
            0.4,
            "ratio",
            "SoCC'18 8.4.1",
            scope=FigureScope(("10x8",)),
        ),
        at_most(
            "median convergence, 10 machines",
            537.2,
            "s",
            "report, figure 20b",
            scope=FigureScope(("10x8",)),
        ),
    ),
    chosen=(
        "8 cores in SoCC'18, two 8-core processors in the report: both are run",
        "the end of the run",
    ),
)

FAILURE: Final = Experiment(
    name="failure",
    about="contact with all machines is lost while Henge is at work",
    source="SoCC'18, section 8.4.2, figure 17",
    duration_s=3600,
    variants=(
        Variant(
            "nine",
            (JobSet("t", 9, Topology.PAGELOAD, latency(70), (35,)),),
            faults=(PlannedFault(FaultKind.METRICS_LOST, *LOST_S),),
        ),
    ),
    plotted=("nine",),
    figures=(
        at_most("actions while numbers are missing", 0, "steps", "SoCC'18 8.4.2", headline=True),
        neither(
            "first action after it",
            1680,
            "s",
            "SoCC'18 8.4.2",
            headline=True,
            scope=FigureScope(decided_s=(LOST_S[1], inf), since_s=LOST_S[1]),
        ),
        at_least("intents met at the end", 9, "jobs", "SoCC'18 8.4.2"),
    ),
    chosen=("the end of the run", CORES_NOT_SAID),
)

MEMORY: Final = Experiment(
    name="memory",
    about="eight jobs with joins that keep records for 30 s",
    source="SoCC'18, section 8.5, figure 18",
    duration_s=5400,
    variants=(
        Variant("eight", (JobSet("t", 8, Topology.JOIN, latency(100), (50,), state="join"),)),
    ),
    plotted=("eight",),
    figures=(
        at_least("total utility at the end", 400, "utility", "SoCC'18 8.5", headline=True),
        at_most("reached by", 2444, "s", "SoCC'18 8.5", scope=FROM_START),
        at_most(
            "mean use of memory",
            0.36,
            "ratio",
            "SoCC'18 8.5",
            not_comparable="the paper's machines also hold an operating system, Storm and JVMs; "
            "simulated ones hold the records of the windows alone",
        ),
    ),
    chosen=("the end of the run", CORES_NOT_SAID),
)

SENSITIVITY: Final = Experiment(
    name="reduction",
    about="how much a Reduction takes: 70, 80 and 90 %",
    source="SoCC'18, section 5.5",
    duration_s=MORE_MACHINES.duration_s,
    variants=tuple(
        replace(
            variant,
            name=f"{percent}% in {where} {variant.name}",
            # As in the paper: nothing keeps a Reduction from leaving too few.
            parameters=(("reduction", percent / 100), ("reduced_capacity", 10.0)),
        )
        for where, variant in (
            (COST.name, COST.variant("60%")),
            (MORE_MACHINES.name, MORE_MACHINES.variant("20x8")),
        )
        for percent in (70, 80, 90)
    ),
    figures=(
        neither(
            "the share that neither misses intents nor does too little",
            0.8,
            "ratio",
            "SoCC'18 5.5",
            headline=True,
        ),
    ),
    chosen=("the runs in which it is tried: two of this page in which a Reduction happens",),
    policy_only=True,
)

EXPERIMENTS: Final = (
    JUICE,
    INITIAL,
    PRIORITIES,
    HYBRID,
    SPIKES,
    DIURNAL,
    COST,
    PRODUCTION,
    CPU_SPIKE,
    STATEFUL,
    MORE_JOBS,
    MORE_MACHINES,
    FAILURE,
    MEMORY,
    SENSITIVITY,
)
