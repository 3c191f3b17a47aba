"""Assembles Henge's paper from its catalogue, measures, findings, reasons and plots."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from trilithon.experiments.definition import Topology, Variant
from trilithon.experiments.henge.catalogue import EXECUTORS, EXPERIMENTS, MORE_MACHINES
from trilithon.experiments.henge.finding_sentences import FINDINGS
from trilithon.experiments.henge.measures import HENGE, MEASURES
from trilithon.experiments.henge.reasons import REASONS
from trilithon.experiments.paper import Paper, SensitivityPlan, SparkComparison
from trilithon.experiments.plots import (
    LargestMoves,
    MixRanking,
    Plot,
    SatisfactionBySize,
    SatisfactionCdf,
    SparkHours,
    UtilityBySize,
    UtilityOverTime,
)
from trilithon.experiments.strategies import (
    BEST_STATIC,
    MANUAL,
    MANUAL_HEADROOM,
    UNCONTROLLED,
    differing,
    under,
    with_timing,
)
from trilithon.policies.henge.henge_parameters import ALL, HengeParameters

# The paper has no limit of slots, and so no bounds on a step: equation 4 stands alone, a Reduction
# takes its share whatever is left, and an external change releases all blacklisted jobs.
AS_PRINTED: Final[Mapping[str, Any]] = {
    "least_capacity": 0.0,
    "reduced_capacity": 10.0,
    "forget": ALL,
}
# Henge in minutes instead of hours: rounds, windows and waits of seconds.
QUICK: Final[Mapping[str, Any]] = {
    "round_s": 5.0,
    "window_s": 15.0,
    "part_s": 5.0,
    "settle_s": 15.0,
    "settle_most_s": 40.0,
    "recover_s": 15.0,
    "warm_up_s": 10.0,
    "blacklist_s": 120.0,
}
# Henge's timing for rivals: they decide by the 60 s since the last change.
HENGE_TIMING: Final = "60 s"
INTRODUCTION: Final = """\
Henge (Kalim et al., SoCC'18, and the report before it, arXiv 1802.00082) divides one cluster among
many streaming jobs so that their total utility is highest. Jobs, intents, priorities, loads and
faults are the paper's. Henge runs with the product's defaults, which keep the paper's parameters,
and only observes in the first 900 s.
"""


def _tenth(variant: Variant) -> Variant:
    """A tenth of the jobs on a tenth of the machines: moved numbers are hundreds of runs."""
    return replace(
        variant,
        name=f"a tenth of {variant.name}",
        jobs=tuple(replace(jobs, count=max(1, jobs.count // 10)) for jobs in variant.jobs),
        machines=max(1, variant.machines // 10),
    )


_TENTH: Final = _tenth(MORE_MACHINES.variant("10x8"))
_TIGHT: Final = ("cost", "60%")
SENSITIVITY: Final = SensitivityPlan(
    runs=(
        ("hybrid", "ten"),
        ("spikes", "two"),
        ("stateful", "four"),
        ("memory", "eight"),
        ("initial-configuration", "60ms-10-1x"),
        ("cpu-spike", "eight"),
        _TIGHT,
        (MORE_MACHINES.name, _TENTH.name),
    ),
    tight=_TIGHT,
    # Loads change in the one, and there is little room in the other.
    policy_runs=(("spikes", "two"), _TIGHT),
    parameters=tuple(
        parameter
        for parameter in HengeParameters.describe()
        if parameter.meaning.startswith("chosen:")
    ),
    words={"storm.waiting": ("kept", "dealt"), "arrivals.default": ("poisson",)},
    beside="arrivals.default",
    variants={_TENTH.name: _TENTH},
)


def _over_time(
    experiment: str, variant: str, caption: str, *, hours: bool = False, in_details: bool = False
) -> Plot:
    return UtilityOverTime(
        file=f"plots/henge-{experiment}.svg",
        section=experiment,
        variant=variant,
        caption=caption,
        hours=hours,
        in_details=in_details,
    )


# Eight on the page, the others among the details.
PLOTS: Final[tuple[Plot, ...]] = (
    _over_time("juice", "tripled", "Total utility; the load trebles at 67 min", in_details=True),
    UtilityBySize(
        file="plots/henge-initial-configuration.svg",
        section="initial-configuration",
        caption="Utility by the executors at the start (as the report's figures 11 and 12)",
        panels=tuple(
            (
                title,
                tuple(
                    (
                        f"{ms} ms",
                        tuple((count, f"{ms}ms-{count}-{factor}x") for count in EXECUTORS),
                    )
                    for ms in (40, 50, 60, 70)
                ),
            )
            for title, factor in (("the usual load", 1), ("twice the load", 2))
        ),
        label="executors of the slowest operator at the start",
        max_utility=35.0,
        height_in=3.3,
    ),
    _over_time(
        "priorities",
        "nine",
        "Total utility of nine jobs with priorities 10 to 90, and Henge's actions (as figure 9)",
    ),
    _over_time(
        "hybrid",
        "ten",
        "Total utility of ten jobs that ask for juice and latency (as figure 10)",
        in_details=True,
    ),
    _over_time(
        "spikes",
        "two",
        "Total utility; each load doubles for an hour (as figure 11)",
        in_details=True,
    ),
    SatisfactionCdf(
        file="plots/henge-diurnal-cdf.svg",
        section="diurnal",
        variant="two-days",
        caption="Distribution of satisfaction over two days of the traces (as figure 12c)",
        figures=tuple(
            (strategy, percent, f"{what}, {name}")
            for strategy, name in (
                (HENGE, "Henge"),
                (UNCONTROLLED.name, "uncontrolled"),
                (MANUAL.name, "manual"),
            )
            for percent, what in ((15, "15th percentile"), (50, "median"), (90, "90th percentile"))
            if (percent, name) != (15, "uncontrolled")  # which the paper does not print
        ),
        height_in=3.2,
    ),
    _over_time(
        "diurnal",
        "two-days",
        "Total utility over two days of the traces (as figure 12b)",
        hours=True,
        in_details=True,
    ),
    SatisfactionBySize(
        file="plots/henge-cost.svg",
        section="cost",
        caption="Satisfaction on a share of the resources (as figure 1)",
        points=((40, "40%"), (60, "60%"), (80, "80%"), (100, "100%")),
        label="resources, of those in clusters of their own (%)",
        figures=((40, "satisfaction at 40 %"), (60, "satisfaction at 60 %")),
        in_details=True,
    ),
    _over_time(
        "production",
        "table-3",
        "Total utility of five production-size jobs (as figure 13b)",
        hours=True,
    ),
    _over_time(
        "cpu-spike",
        "eight",
        "Total utility; other processes take CPU (as figure 14)",
        hours=True,
    ),
    _over_time(
        "stateful",
        "four",
        "Total utility of two stateful and two stateless word counts",
        in_details=True,
    ),
    _over_time(
        "more-jobs",
        "to-85",
        "Total utility as jobs arrive, 85 in the end (as figure 15)",
        hours=True,
    ),
    SatisfactionBySize(
        file="plots/henge-more-machines.svg",
        section="more-machines",
        caption="Forty jobs on ten to forty machines of 8 cores (as figure 16)",
        points=((10, "10x8"), (20, "20x8"), (30, "30x8"), (40, "40x8")),
        label="machines",
        figures=tuple(
            (count, f"5th percentile of satisfaction, {count} machines")
            for count in (10, 20, 30, 40)
        ),
        figures_label="5th percentile over the jobs (%)",
    ),
    _over_time(
        "failure",
        "nine",
        "Total utility; no metrics from 17 to 23 min (as figure 17)",
        in_details=True,
    ),
    _over_time(
        "memory",
        "eight",
        "Total utility of eight jobs with large state (as figure 18)",
        in_details=True,
    ),
    MixRanking(
        file="plots/henge-mixes.svg",
        caption="Mean satisfaction in the random mixes, ranked for each strategy",
    ),
    LargestMoves(
        file="plots/henge-chosen.svg",
        caption="The chosen numbers that move Henge's satisfaction the most",
        in_details=True,
    ),
    SparkHours(
        file="plots/henge-spark.svg",
        caption="Satisfaction on Spark in each hour of the traces",
        in_details=True,
    ),
)

PAPER: Final = Paper(
    name="henge",
    title="Henge",
    introduction=INTRODUCTION,
    experiments=EXPERIMENTS,
    strategies=(
        under(HENGE),
        under("threshold"),
        with_timing("threshold", HENGE_TIMING, {"window_s": 60.0}),
        under("ds2"),
        # The median of what it wants in six intervals of 10 s.
        with_timing("ds2", HENGE_TIMING, {"warm_up": 0, "activation": 6}),
        differing(
            "Henge as printed",
            HENGE,
            AS_PRINTED,
            "equation 4 without a bound, Reductions whatever the load, and an external change "
            "releases all blacklisted jobs, as in the paper, whose cluster has no limit of slots",
        ),
        UNCONTROLLED,
        MANUAL,
        MANUAL_HEADROOM,
        BEST_STATIC,
    ),
    measures=MEASURES,
    findings=FINDINGS,
    reasons=REASONS,
    plots=PLOTS,
    mixed_topologies=(
        Topology.PAGELOAD,
        Topology.LINEAR,
        Topology.DIAMOND,
        Topology.STAR,
        Topology.WORDCOUNT,
        Topology.JOIN,
    ),
    sensitivity=SENSITIVITY,
    spark=SparkComparison(
        policies=(HENGE, "threshold", "none"),
        parameters={HENGE: QUICK, "threshold": {"window_s": 15.0}},
    ),
)
