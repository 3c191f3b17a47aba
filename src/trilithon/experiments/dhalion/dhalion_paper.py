"""Assembles Dhalion's paper from its catalogue, measures, parts and plots."""

from collections.abc import Mapping
from typing import Any, Final

from trilithon.experiments.dhalion import diagnoses, layered_run, spark_health
from trilithon.experiments.dhalion.catalogue import EXPERIMENTS
from trilithon.experiments.dhalion.findings import FINDINGS, REASONS
from trilithon.experiments.dhalion.measures import AS_PRINTED, DHALION, MEASURES
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.plots import Plot, UtilityOverTime
from trilithon.experiments.strategies import UNCONTROLLED, differing, under

# Table 1 alone, a skew threshold between the 1.4 and the 2.5 of table 2, over-provisioning by empty
# queues, and no look at queues that grow.
PRINTED: Final[Mapping[str, Any]] = {
    "diagnosis": "table_1",
    "skew": 2.0,
    "over": "pending",
    "growth": "off",
}
INTRODUCTION: Final = """\
Dhalion (Floratou et al., VLDB'17) diagnoses what ails a streaming job and cures it. The word count,
its loads and its faults are the paper's, on a simulated Heron: one full queue stops all spouts,
queues fill for minutes, and nothing flows during a change. Dhalion runs with the product's
defaults, which keep the paper's period, windows and waits.
"""


def _over_time(experiment: str, variant: str, caption: str) -> Plot:
    return UtilityOverTime(
        file=f"plots/dhalion-{experiment}-{variant}.svg",
        section=experiment,
        variant=variant,
        caption=caption,
    )


PAPER: Final = Paper(
    name="dhalion",
    title="Dhalion",
    introduction=INTRODUCTION,
    experiments=EXPERIMENTS,
    strategies=(
        under(DHALION),
        differing(
            AS_PRINTED,
            DHALION,
            PRINTED,
            "table 1 without service times, a skew threshold of 2, scale-downs by empty queues, "
            "and no look at queues that grow, as in the paper",
        ),
        under("ds2"),
        UNCONTROLLED,
    ),
    measures=MEASURES,
    findings=FINDINGS,
    reasons=REASONS,
    plots=(
        _over_time("load-change", "spouts", "Satisfaction; the load changes at 10 and 40 min"),
        _over_time("slo", "from-one", "Share of the SLO that the spouts emit (as figure 7)"),
        _over_time("mixed", "slow-25", "Too few instances and one 25 % slower (as figure 9)"),
        _over_time("mixed", "slow-75", "Too few instances and one 75 % slower (as figure 10)"),
    ),
    parts=(
        PaperPart(
            "diagnoses",
            "the confusion matrix over 500 random jobs",
            diagnoses.run_diagnoses,
            diagnoses.page,
        ),
        PaperPart(
            "layered",
            "Henge with and without Dhalion's diagnosis first",
            layered_run.run_layered,
            layered_run.page,
        ),
        PaperPart(
            "spark-health",
            "diagnoses on Spark, ten runs of each ailment; it takes hours of an idle machine",
            spark_health.run_health,
            spark_health.page,
            in_all=False,
        ),
    ),
)
