"""Assembles Stela's paper from its catalogue, measures and plots."""

from typing import Final

from trilithon.experiments.markdown import number, table
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.plots import available_plots, images
from trilithon.experiments.results import PaperResults
from trilithon.experiments.stela import catalogue as names
from trilithon.experiments.stela import choices_section, dags_section
from trilithon.experiments.stela.catalogue import EXPERIMENTS, SCALE_IN, SCALED_S
from trilithon.experiments.stela.every_choice import run_choices
from trilithon.experiments.stela.measures import AFTER_S, BEFORE_S, FINDINGS, MEASURES
from trilithon.experiments.stela.random_dags import run_cases
from trilithon.experiments.stela.reasons import REASONS
from trilithon.experiments.stela.scaling_strategies import STRATEGIES
from trilithon.experiments.stela.spark_scaling import page, run_scaling
from trilithon.experiments.stela.stela_plots import (
    DagShares,
    EveryGroup,
    InterruptionBars,
    ThroughputOverTime,
    ThroughputPanels,
)
from trilithon.policies.requests import ScalingKind

INTRODUCTION: Final = """\
Stela (Xu, Peng and Gupta, IC2E'16) adds machines to a running job, or takes them away, when people
ask for it, and gives the new instances to the operators through which the most throughput can be
gained. Jobs, machines, instances and tasks are those of the paper's table I.

The default and the other strategies of section III-C create no instances, so they lose by
construction: beside them stands a fair rival with as many instances, given in turn.
Every change stops a job for the same time on the simulated engine, so the paper's advantage in
interruption cannot show; [on Spark](stela-spark-scaling.md) it is measured. [Every
choice](#every-choice) was tried.
"""

# Sections of the overview that have plots.
THROUGHPUT, INTERRUPTION = "throughput", "interruption"
_JOBS: Final = "../../src/trilithon/workloads/topologies"
PLACES: Final = f"""\
## The paper's figures here

| in the paper | here |
| --- | --- |
| figures 1 and 3: an example, the architecture | no results; \
[how it is built](../concepts/stela.md) |
| figure 2: ETP of an example | `tests/measures/test_etp.py` computes its 44, 44, 11 and 0 % |
| table I | [table I](#table-i) |
| figure 4: throughput of Star, Linear, Diamond | [throughput](#throughput) |
| figure 5: layouts | the job files of [PageLoad]({_JOBS}/pageload-topology.yaml), \
[Processing]({_JOBS}/processing-topology.yaml) and [Network]({_JOBS}/network-topology.yaml) |
| figure 6: throughput of PageLoad, Processing, Network | [throughput](#throughput) |
| figures 7a and 7b: convergence time | [interruption](#interruption) |
| figure 7c: Network around the scale-out | [network](stela-details.md#network) |
| figure 8: throughput and down time of a scale-in | [scale-in](#scale-in), \
[interruption](#interruption) |
"""


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
    plots = available_plots(results, paper)
    return "\n".join(
        [
            "## Table I\n",
            ("As in the paper, without its worker processes: instances run on machines.\n"),
            table(("job", "operators", "tasks", "instances", "machines", "kind"), _table_one()),
            "## Throughput\n",
            (
                f"Records per second at the sinks: the mean of the {BEFORE_S:.0f} s before the "
                f"request, and of the last {AFTER_S:.0f} s of the run. One machine more of "
                f"table I, or four of eight fewer ({SCALE_IN.name}).\n"
            ),
            table(heads, rows),
            *images(plots, THROUGHPUT),
            "## Interruption\n",
            (
                "From the request until throughput has been twice above and twice below its "
                "average after the action, within 5 % of it (section IV-D), and without any "
                "(IV-E), in windows of 10 s.\n"
            ),
            *images(plots, INTERRUPTION),
            PLACES,
        ]
    )


_FIGURES: Final = {
    "star": "as figure 4a",
    "linear": "as figure 4b",
    "diamond": "as figure 4c",
    "pageload": "as figure 6a",
    "processing": "as figure 6b",
    "network": "as figure 6c",
    "scale-in": "as figure 8",
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
        ThroughputPanels(
            file="plots/stela-micro-benchmarks.svg",
            section=THROUGHPUT,
            experiments=("star", "linear", "diamond"),
            caption="Throughput of the micro-benchmarks (as figure 4)",
            height_in=2.6,
        ),
        ThroughputPanels(
            file="plots/stela-applications.svg",
            section=THROUGHPUT,
            experiments=("pageload", "processing", "network"),
            caption="Throughput of Yahoo's jobs and Network (as figure 6)",
            height_in=2.6,
        ),
        InterruptionBars(
            file="plots/stela-interruption.svg",
            section=INTERRUPTION,
            caption="Convergence time (as figure 7) and down time (as figure 8)",
            height_in=4.4,
        ),
        *(
            ThroughputOverTime(
                file=f"plots/stela-{experiment.name}.svg",
                section=experiment.name,
                caption=f"Throughput of {experiment.variants[0].name}"
                f"{' at a scale-in' if experiment is SCALE_IN else ''} "
                f"({_FIGURES[experiment.name]})",
                height_in=2.4,
                in_details=experiment is not SCALE_IN,
            )
            for experiment in EXPERIMENTS
        ),
        ThroughputOverTime(
            file="plots/stela-network-convergence.svg",
            section="network",
            caption="Throughput of network around the scale-out (as figure 7c)",
            height_in=2.4,
            from_min=SCALED_S / 60 - 1,
            to_min=SCALED_S / 60 + 3,
            in_details=True,
        ),
        EveryGroup(
            file="plots/stela-groups.svg",
            caption="Throughput of PageLoad without each group of four machines",
        ),
        DagShares(
            file="plots/stela-dags.svg",
            caption="Throughput after a scale-out in random graphs, of the best division",
        ),
    ),
    parts=(
        PaperPart(
            "choices",
            "every division and every group of machines of the experiments",
            lambda run: run_choices(run.workers, run.tell, run.chosen, run.done),
            choices_section.section,
            own_page=False,
        ),
        PaperPart(
            "dags",
            "scale-outs in random graphs, beside the best division",
            lambda run: run_cases(run.workers, run.tell, run.chosen, run.done),
            dags_section.section,
            own_page=False,
        ),
        PaperPart(
            "spark-scaling",
            "scaling on a Spark cluster, in most of an hour",
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
