"""Assembles the latency paper from its catalogue, measures, random jobs and plots."""

from typing import Final

from trilithon.experiments.definition import Topology
from trilithon.experiments.latency.catalogue import EXPERIMENTS, LATENCY, THRESHOLD
from trilithon.experiments.latency.measures import MEASURES
from trilithon.experiments.latency.mixes_reasons import mixes_with_reasons
from trilithon.experiments.latency.overview import overview
from trilithon.experiments.latency.promise_plot import draw_promises
from trilithon.experiments.latency.random_jobs import (
    FEWEST,
    run_random_job,
)
from trilithon.experiments.latency.reasons import REASONS
from trilithon.experiments.latency.set_ups import LatencyBuilder
from trilithon.experiments.latency.spark_primetester import page, run_promises
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.plots import MixRanking, Plot, PredictedWaiting, UtilityOverTime
from trilithon.experiments.strategies import (
    UNCONTROLLED,
    Strategy,
    StrategyKind,
    under,
    with_timing,
)

INTRODUCTION: Final = """\
*Elastic Stream Processing with Latency Guarantees* (Lohrmann and others, ICDCS'15) keeps promises
on the mean latency of paths with few instances, by a queueing model. Jobs, rates, instances and
machines are the paper's, at full scale, record by record: as flows, waiting would be computed by
the model's own formula. The policy runs with the product's defaults. Satisfaction on this page is
the share of 5-s intervals in which the promise was kept **and** at least 99 % of what came in was
read; otherwise a promise is kept while the backlog grows.
"""
METHOD: Final = """\
Everything is simulated, record by record, on the engine `nephele` ([the simulated
cluster](../concepts/simulated.md)): a shipment costs its sender CPU, batching is per edge, input
queues are bounded, instances come and go within a second and without an outage. Numbers that the
text leaves open stand in `src/trilithon/scenarios/chosen.yaml`, each with its reason
([decision 16](../adr/0016-shipments-cost-their-sender.md)); those of TwitterSentiment's load in
`experiments/latency/set_ups.py`. Rounds are 5 s, and the guard lets everything through. The
experiments are run with three seeds that were not used while developing, and ± is half of a 95 %
interval (Student's t); a random job has its own seed. Series are those of the first.
"""


def _over_time(experiment: str, variant: str, file: str, caption: str) -> Plot:
    return UtilityOverTime(
        file=f"plots/latency-{file}.svg",
        section=experiment,
        variant=variant,
        caption=caption,
        axis="share of promises kept",
    )


def _honesty(experiment: str, variant: str) -> Plot:
    return PredictedWaiting(
        file=f"plots/latency-{experiment}-honesty.svg",
        section=experiment,
        variant=variant,
        caption="Waiting as predicted by the model and as measured, after each adjustment",
    )


PLOTS: Final[tuple[Plot, ...]] = (
    _over_time(
        "primetester", "20 ms", "primetester", "Intervals kept at 20 ms, through all phases"
    ),
    _over_time(
        "twittersentiment", "two weeks", "twittersentiment", "Share of the two promises kept"
    ),
    _honesty("primetester", "20 ms"),
    _honesty("twittersentiment", "two weeks"),
    MixRanking(
        file="plots/latency-mixes.svg",
        caption="Share of intervals kept in the random jobs, ranked for each strategy",
    ),
)
# The allocation of each piece of a random job's load, by search.
FEWEST_INSTANCES: Final = Strategy(
    StrategyKind.BEST_STATIC, FEWEST, other_timing=True, difference="see the random mixes"
)
PAPER: Final = Paper(
    name=LATENCY,
    title="Latency",
    introduction=INTRODUCTION,
    experiments=EXPERIMENTS,
    strategies=(
        under(LATENCY),
        under(THRESHOLD),
        with_timing(THRESHOLD, "10 s", {"window_s": 10.0}),
        UNCONTROLLED,
        FEWEST_INSTANCES,
    ),
    measures=MEASURES,
    reasons=REASONS,
    plots=PLOTS,
    mix=run_random_job,
    mixes_text=mixes_with_reasons,
    mixed_topologies=(Topology.PRIMETESTER, Topology.TWITTERSENTIMENT),
    overview=overview,
    builder=LatencyBuilder,
    # Seeds 1 and 11 to 13 were for development.
    seeds=(21, 22, 23),
    method=METHOD,
    parts=(
        PaperPart(
            "spark-primetester",
            "a promise on Spark, beside fixed numbers of instances",
            lambda run: run_promises(run.done, run.tell),
            page,
            in_all=False,
            draw=draw_promises,
        ),
    ),
)
