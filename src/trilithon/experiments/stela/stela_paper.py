"""Assembles Stela's paper from its catalogue, measures and plots."""

from typing import Final

from trilithon.experiments.markdown import number, table
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.results import PaperResults
from trilithon.experiments.stela import catalogue as names
from trilithon.experiments.stela.catalogue import EXPERIMENTS, SCALE_IN
from trilithon.experiments.stela.measures import AFTER_S, BEFORE_S, FINDINGS, MEASURES
from trilithon.experiments.stela.random_dags import run_cases, section
from trilithon.experiments.stela.reasons import REASONS
from trilithon.experiments.stela.spark_scaling import page, run_scaling
from trilithon.experiments.stela.stela_plots import DagShares, ThroughputOverTime
from trilithon.experiments.strategies import Strategy, differing, under
from trilithon.policies.requests import ScalingKind
from trilithon.policies.stela import stela_parameters as parameters

INTRODUCTION: Final = """\
Stela (Xu, Peng and Gupta, IC2E'16) adds machines to a running job, or takes them away, when people
ask for it, and gives the new instances to the operators through which the most throughput can be
gained. Jobs, machines, instances and tasks are those of the paper's table I; a machine is requested
through the controller, as `trilithon cluster scale-out` does it.

The default and the other strategies of section III-C create no instances, so they lose by
construction: beside them stands a fair rival with as many instances as Stela, given in turn.
Every change stops a job for the same time on the simulated engine, whatever it touches. So the
paper's advantage in interruption, which comes from leaving existing machines alone, cannot show.
"""


def _other(name: str, strategy: str, difference: str) -> Strategy:
    return differing(name, "stela", {"strategy": strategy}, difference)


STRATEGIES: Final = (
    under(names.STELA),
    differing(
        names.PRINTED,
        "stela",
        {
            "etp": parameters.AS_PRINTED,
            "projection": parameters.AS_PRINTED,
            "refine": parameters.NO_REFINEMENT,
        },
        "algorithm 1, which counts a sink once per path, a projection in which children keep their "
        "rates, and no exchange of instances or machines after it",
    ),
    _other(
        names.FAIR, parameters.ROUND_ROBIN, "as many instances as Stela, in turn, for all operators"
    ),
    _other(
        names.DEFAULT,
        parameters.DEFAULT,
        "every instance is placed again in turn on all machines; none is created",
    ),
    _other(
        names.LEAST_LINK,
        parameters.LEAST_LINK_LOAD,
        "instances with the least traffic move to the new machine, beside their neighbours",
    ),
    _other(names.MOST_LINK, parameters.MOST_LINK_LOAD, "the same with the most traffic"),
    _other(
        names.NEAR_SOURCE,
        parameters.NEAR_SOURCE,
        "instances of the operators nearest to a source move",
    ),
    _other(
        names.NEAR_SINK, parameters.NEAR_SINK, "instances of the operators nearest to a sink move"
    ),
    _other(
        names.DESCENDANTS,
        parameters.DESCENDANTS,
        "instances of the operators with the most descendants move",
    ),
    _other(
        names.CENTRALITY,
        parameters.CENTRALITY,
        "instances of the operators with the most edges move",
    ),
    *(
        differing(
            name,
            "stela",
            {"strategy": parameters.DEFAULT, "group": group},
            "a scale-in removes random machines, and places their instances in turn on the others",
        )
        for name, group in ((names.GROUP_1, 1), (names.GROUP_2, 2))
    ),
)


def overview(results: PaperResults, paper: Paper) -> str:
    """Throughput before and after, a column per experiment, of the first seed."""
    shown = [result for result in results.experiments if result.facts]
    if not shown:
        return ""

    def value(strategy: str, facts: object, what: str) -> str:
        assert isinstance(facts, dict)  # noqa: S101 - read from JSON
        known = facts.get(f"{strategy}, {what}")
        return "" if known is None else number(known, "")

    heads = ("", *(result.experiment.name for result in shown))
    rows = [("before", *(value(names.STELA, dict(r.facts), "before") for r in shown))]
    for strategy in paper.strategies:
        cells = [value(strategy.name, dict(r.facts), "after") for r in shown]
        if any(cells):
            rows.append((paper.label(strategy.name), *cells))
    return "\n".join(
        [
            "## Table I\n",
            (
                "What the paper's table I says of each job, and so do the scenarios. The simulated "
                "cluster has no worker processes: instances run on machines.\n"
            ),
            table(("job", "operators", "tasks", "instances", "machines", "kind"), _table_one()),
            "",
            "## Throughput\n",
            (
                f"Records per second at the sinks: the mean of the {BEFORE_S:.0f} s before the "
                f"request, and of the last {AFTER_S:.0f} s of the run. One machine more of "
                f"table I, or four of eight fewer ({SCALE_IN.name}).\n"
            ),
            table(heads, rows),
        ]
    )


_FIGURES: Final = {
    "star": "as figure 4a",
    "linear": "as figure 4b",
    "diamond": "as figure 4c",
    "pageload": "as figure 6a",
    "processing": "as figure 6b",
    "network": "as figure 6c",
    "scale-in": "as figure 8a",
}
PAPER: Final = Paper(
    name="stela",
    title="Stela",
    introduction=INTRODUCTION,
    experiments=EXPERIMENTS,
    strategies=STRATEGIES,
    measures=MEASURES,
    findings=FINDINGS,
    reasons=REASONS,
    plots=(
        *(
            ThroughputOverTime(
                file=f"plots/stela-{experiment.name}.svg",
                section=experiment.name,
                variant=experiment.variants[0].name,
                caption=f"Throughput of {experiment.variants[0].name}"
                f"{' at a scale-in' if experiment is SCALE_IN else ''} "
                f"({_FIGURES[experiment.name]})",
                height_in=2.4,
            )
            for experiment in EXPERIMENTS
        ),
        DagShares(
            file="plots/stela-dags.svg",
            caption="Throughput after a scale-out in random graphs, of the best division",
        ),
    ),
    parts=(
        PaperPart(
            "dags",
            "scale-outs in random graphs, beside the best division",
            lambda run: run_cases(run.workers, run.tell, run.chosen, run.done),
            section,
            own_page=False,
        ),
        PaperPart(
            "spark-scaling",
            "scaling out and in on a Spark cluster; it takes most of an hour of an idle machine",
            lambda run: run_scaling(run.done, run.tell),
            page,
            in_all=False,
        ),
    ),
    overview=overview,
)


def _table_one() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for experiment in EXPERIMENTS:
        (variant,) = experiment.variants
        (jobs,), scaling = variant.jobs, variant.scaling
        assert scaling is not None  # noqa: S101 - all of them are scaled
        more = scaling.machines if scaling.kind is ScalingKind.OUT else -scaling.machines
        operators = len(jobs.instances)
        rows.append(
            (
                experiment.name,
                str(operators),
                f"{(jobs.tasks or 0) // operators} each",
                f"{jobs.instances[0][1]} each",
                f"{variant.machines} to {variant.machines + more}",
                str(variant.machine_kind),
            )
        )
    return rows
