"""Lists Henge's experiments as SoCC'18 and the report (arXiv 1802.00082) describe them.

Where the two differ, SoCC'18 is followed; what only the report has is named so. A source is a
section or a figure of either.
"""

from dataclasses import replace
from typing import Final

from trilithon.experiments.definition import (
    Experiment,
    FaultKind,
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

HOUR_S: Final = 3600.0
CORES_NOT_SAID: Final = "cores of a machine: the text gives 2.4 GHz and 12 GB only"

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
                    RelativeLoad(changes=(LoadChange(4000, 3),)),
                ),
            ),
        ),
    ),
    plotted=("tripled",),
    figures=(
        at_least("juice when it has fallen", 0.992, "ratio", "report 7.1, figure 10"),
        at_least("juice has fallen", 4338, "s", "report 7.1, figure 10"),
        at_most("stable again by", 5734, "s", "report 7.1, figure 10", headline=True),
        at_most("stable after the first action by", 1000, "s", "report 7.1, figure 9"),
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


INITIAL: Final = Experiment(
    name="initial-configuration",
    about="one job that begins with 5 to 25 instances of its slowest operator, by promise and load",
    source="report, section 7.2.1, figures 11 and 12",
    duration_s=4500,
    variants=tuple(
        _initial(ms, executors, factor)
        for ms in (40, 50, 60, 70)
        for executors in (5, 10, 15, 20, 25)
        for factor in (1, 2)
    ),
    figures=(
        at_most("instances from 10, 70 ms", 18, "instances", "report 7.2.1"),
        at_most("rounds from 10, 70 ms", 1, "rounds", "report 7.2.1"),
        at_most("instances from 10, 60 ms", 21, "instances", "report 7.2.1"),
        at_most("rounds from 10, 60 ms", 2, "rounds", "report 7.2.1"),
        at_most("instances from 10, 70 ms, twice the load", 36, "instances", "report 7.2.1"),
        at_most("rounds from 10, 70 ms, twice the load", 2, "rounds", "report 7.2.1"),
        at_most("instances from 10, 60 ms, twice the load", 44, "instances", "report 7.2.1"),
        at_most("rounds from 10, 60 ms, twice the load", 5, "rounds", "report 7.2.1"),
        at_most("rounds at 50 ms, twice the load", 12, "rounds", "report 7.2.1"),
        at_most("rounds at 60 ms, twice the load", 7, "rounds", "report 7.2.1", headline=True),
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
        at_most("all intents met by", 1710, "s", "SoCC'18 8.1.1", headline=True),
        at_most("first action at", 920, "s", "SoCC'18 8.1.1"),
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
            "total utility during the spikes", 70, "utility", "SoCC'18, figure 11", headline=True
        ),
    ),
    chosen=("the end of the second spike, which is the end of the run", CORES_NOT_SAID),
)

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
                    RelativeLoad(trace=trace, row_s=600),
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
        neither("average satisfaction, manual", 0.8777, "ratio", "SoCC'18 8.1.2"),
        neither("15th percentile, manual", 0.665, "ratio", "SoCC'18 8.1.2"),
        neither("median, manual", 0.998, "ratio", "SoCC'18 8.1.2"),
        neither("90th percentile, manual", 1.0, "ratio", "SoCC'18 8.1.2"),
        neither("average satisfaction, uncontrolled", 0.0456, "ratio", "SoCC'18 8.1.2"),
        neither("median, uncontrolled", 0.000006, "ratio", "SoCC'18 8.1.2"),
        neither("90th percentile, uncontrolled", 0.309, "ratio", "SoCC'18 8.1.2"),
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
        at_least("satisfaction at 60 %", 1.0, "ratio", "SoCC'18, figure 1", headline=True),
        at_least("satisfaction at 40 %", 0.935, "ratio", "SoCC'18, figure 1", headline=True),
        at_least(
            "against uncontrolled at 40 %",
            6.7,
            "times",
            "SoCC'18, figure 1",
            not_comparable="uncontrolled jobs have next to no utility here, and a quotient by that "
            "says little",
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
    duration_s=25200,
    variants=(
        Variant(
            "eight",
            (
                JobSet("t", 7, Topology.PAGELOAD, latency(70), (35,)),
                JobSet("strict", 1, Topology.PAGELOAD, latency(10), (35,)),
            ),
            faults=(PlannedFault(FaultKind.CPU_LOAD, 21800, 22400),),
        ),
    ),
    plotted=("eight",),
    figures=(
        at_most("first converged by", 1000, "s", "SoCC'18 8.2.1"),
        at_most("recovered by", 23000, "s", "SoCC'18 8.2.1", headline=True),
        neither("jobs reduced", 2, "jobs", "SoCC'18 8.2.1"),
    ),
    chosen=("size and end of the CPU load", "priorities", CORES_NOT_SAID),
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
        ),
        at_least(
            "average utility after the arrivals at 8 h",
            35,
            "utility",
            "SoCC'18 8.4.1, figure 15",
            headline=True,
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
        at_least(
            "5th percentile of satisfaction, 10 machines",
            0.003,
            "ratio",
            "SoCC'18 8.4.1",
            headline=True,
        ),
        at_least(
            "5th percentile of satisfaction, 20 machines",
            0.564,
            "ratio",
            "SoCC'18 8.4.1",
            headline=True,
        ),
        at_least("5th percentile of satisfaction, 30 machines", 0.740, "ratio", "SoCC'18 8.4.1"),
        at_least(
            "5th percentile of satisfaction, 40 machines",
            0.945,
            "ratio",
            "SoCC'18 8.4.1",
            headline=True,
        ),
        at_least("jobs that meet their intents, 10 machines", 0.4, "ratio", "SoCC'18 8.4.1"),
        at_most("median convergence, 10 machines", 537.2, "s", "report, figure 20b"),
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
            faults=(PlannedFault(FaultKind.METRICS_LOST, 1020, 1380),),
        ),
    ),
    plotted=("nine",),
    figures=(
        at_most("actions while numbers are missing", 0, "steps", "SoCC'18 8.4.2", headline=True),
        at_least("first action after it", 1680, "s", "SoCC'18 8.4.2", headline=True),
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
        at_most("reached by", 2444, "s", "SoCC'18 8.5"),
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
