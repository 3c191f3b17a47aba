"""Assembles Dhalion's paper from its catalogue, measures, parts and plots."""

from collections.abc import Mapping
from typing import Any, Final

from trilithon.experiments.dhalion import diagnoses, layered_run, spark_health
from trilithon.experiments.dhalion.catalogue import EXPERIMENTS
from trilithon.experiments.dhalion.findings import BOTH, FINDINGS, REASONS, VOID_REASONS
from trilithon.experiments.dhalion.measures import AS_PRINTED, DHALION, MEASURES
from trilithon.experiments.dhalion.part_versions import (
    diagnoses_made_by,
    layered_made_by,
    spark_health_made_by,
)
from trilithon.experiments.dhalion.reasons import TABLE_TWO, TABLE_TWO_VOID
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.plots import InstancesOverTime, Plot, UtilityOverTime
from trilithon.experiments.strategies import UNCONTROLLED, differing, under
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters

# Table 1 alone, a skew threshold between the 1.4 and the 2.5 of table 2, over-provisioning by empty
# queues, and no look at queues that grow.
PRINTED: Final[Mapping[str, Any]] = {
    "diagnosis": "table_1",
    "skew": 2.0,
    "over": "pending",
    "growth": "off",
}
_DEFAULTS: Final = DhalionParameters()
_PRESSURE: Final = round(100 * _DEFAULTS.back_pressure)
INTRODUCTION: Final = f"""\
Dhalion (Floratou et al., VLDB'17) diagnoses what ails a streaming job and cures it. The word count,
its loads and its faults are the paper's, on a simulated Heron: one full queue stops all spouts,
queues fill for minutes, and nothing flows during a change. "Dhalion" runs with the product's
defaults, which keep the paper's period, windows and waits. "As printed" runs with the paper's
rules.

A cure is wrong if it does not fit what ails the job or, where the load changes, if it goes against
the change. A job is healthy while it has 99 % of its utility. A dash stands for what a run did not
reach: an action, or health at its end.

Why figures differ: by default Dhalion removes instances only if the rest are at work for at most
{100 * _DEFAULTS.full:.0f} % of the time, and back-pressure for at most {_PRESSURE} % of the time is
no symptom. So the changes of the load lead to no action, and their figures are void. The figures of
table 2 are taken at the first diagnosis, a window after the start: for a part of it the queue of a
slow instance was still filling. Its ratios under skew follow from the number of counters, which the
paper does not say. "X % slower" is a peak rate that is X % lower (section 6.4); section 6.5 reads
75 % the other way round.
"""


def _over_time(experiment: str, variant: str, caption: str) -> Plot:
    return UtilityOverTime(
        file=f"plots/dhalion-{experiment}-{variant}.svg",
        section=experiment,
        variant=variant,
        caption=caption,
    )


def _instances(experiment: str, variant: str, caption: str, *operators: str) -> Plot:
    return InstancesOverTime(
        file=f"plots/dhalion-{experiment}-{variant}-instances.svg",
        section=experiment,
        variant=variant,
        caption=caption,
        operators=operators,
        strategies=BOTH,
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
    reasons={**REASONS, **TABLE_TWO},
    void_reasons={**VOID_REASONS, **TABLE_TWO_VOID},
    plots=(
        _over_time("load-change", "spouts", "Satisfaction; the load changes at 10 and 40 min"),
        _instances("load-change", "spouts", "Instances (as figure 6)", "split", "count"),
        _over_time("slo", "from-one", "Share of the SLO that the spouts emit (as figure 7)"),
        _instances("slo", "from-one", "Instances (as figure 8)", "spout", "split", "count"),
        _over_time("mixed", "slow-25", "Too few instances and one 25 % slower (as figure 9)"),
        _instances("mixed", "slow-25", "Instances, one 25 % slower", "split", "count"),
        _over_time("mixed", "slow-75", "Too few instances and one 75 % slower (as figure 10)"),
        _instances("mixed", "slow-75", "Instances, one 75 % slower", "split", "count"),
    ),
    parts=(
        PaperPart(
            "diagnoses",
            "the confusion matrix over 500 random jobs",
            lambda run: diagnoses.run_diagnoses(run.done, run.tell, run.chosen),
            diagnoses.page,
            made_by=diagnoses_made_by,
        ),
        PaperPart(
            "layered",
            "Henge with and without Dhalion's diagnosis first",
            lambda run: layered_run.run_layered(run.done, run.tell, run.chosen),
            layered_run.page,
            made_by=layered_made_by,
        ),
        PaperPart(
            "spark-health",
            "diagnoses on Spark, ten runs of each ailment; more than an hour of an idle machine",
            lambda run: spark_health.run_health(run.done, run.tell),
            spark_health.page,
            in_all=False,
            made_by=spark_health_made_by,
        ),
    ),
)
