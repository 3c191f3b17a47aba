"""Runs Henge for a cluster with and without Dhalion's diagnosis before it.

Six word counts share slots. Two lack instances, which Henge can give them. Two have a hot word,
against which more instances do not help: one whose word an instance can take if other words move
away, and one whose word is more than any instance can take. With Dhalion first
(`policy: [dhalion, henge]`, `scale: off`), a job with skew is treated and claimed, so that Henge
leaves it alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from trilithon.experiments.definition import (
    Experiment,
    JobSet,
    RelativeLoad,
    Topology,
    Variant,
    juice,
)
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.strategies import under
from trilithon.plugins import policy
from trilithon.scenarios.chosen import ChosenNumbers, load_chosen

HENGE, LAYERED, ALONE = "henge", "dhalion, then henge", "dhalion"
DURATION_S: Final = 5400.0
# As in Henge's experiments: before, policies only observe.
POLICY_FROM_S: Final = 900.0
# Ten more than the jobs begin with.
SLOTS: Final = 58
_LOAD: Final = RelativeLoad(4.0)


def _jobs(name: str, count: int, instances: tuple[int, int], hot: float | None = None) -> JobSet:
    split, counting = instances
    return JobSet(
        name,
        count,
        Topology.WORDCOUNT,
        juice(),
        (1,),
        _LOAD,
        instances=(("split", split), ("count", counting)),
        hot_key=None if hot is None else ("count", hot),
    )


EXPERIMENT: Final = Experiment(
    name="layered",
    about="Henge for the cluster, with and without Dhalion's diagnosis first",
    source="",
    duration_s=DURATION_S,
    policy_from_s=POLICY_FROM_S,
    variants=(
        Variant(
            "six",
            (
                _jobs("enough", 2, (3, 6)),
                _jobs("few", 2, (2, 4)),
                _jobs("hot", 1, (3, 6), 0.15),
                _jobs("hotter", 1, (3, 6), 0.4),
            ),
            10,
            engine="spark-rtm",
        ),
    ),
    figures=(),
)
POLICIES: Final[Mapping[str, tuple[str | tuple[str, ...], Mapping[str, Any]]]] = {
    HENGE: ("henge", {}),
    LAYERED: (("dhalion", "henge"), {"dhalion": {"scale": "off"}}),
    ALONE: ("dhalion", {}),
}


def run_layered(
    done: Mapping[str, Any],
    tell: Callable[[str], None],
    chosen: ChosenNumbers | None = None,
    duration_s: float = DURATION_S,
) -> Iterator[dict[str, Any]]:
    """One run under each; those that were done are kept."""
    results = dict(done)
    for name in POLICIES:
        if name not in results:
            tell(f"layered: {name}")
            results[name] = _figures(simulated(name, chosen or load_chosen(), duration_s))
        yield dict(results)


def simulated(
    name: str,
    chosen: ChosenNumbers,
    duration_s: float = DURATION_S,
    policy_from_s: float = POLICY_FROM_S,
) -> Run:
    """The run under one of `POLICIES`."""
    names, parameters = POLICIES[name]
    experiment = replace(EXPERIMENT, duration_s=duration_s, policy_from_s=policy_from_s)
    runner = Runner(ScenarioBuilder(chosen, "dhalion"), None)
    scenario = runner.builder.scenario(experiment, experiment.variants[0])
    acting = policy(names, parameters)
    scenario = replace(scenario, slots=SLOTS, policy=acting, seed=1)
    return runner.simulated(scenario, under(name), policy_from_s)


def _figures(run: Run) -> dict[str, Any]:
    return {
        "satisfaction": run.average,
        "satisfaction at the end": run.at_end,
        "instances at the end": run.instances_at_end,
        "of the jobs with a hot word": sum(
            sum(counts.values()) for job, counts in run.final_instances.items() if "hot" in job
        ),
        "of those that lack instances": sum(
            sum(counts.values()) for job, counts in run.final_instances.items() if "few" in job
        ),
        "instance hours": run.instance_hours,
        "changes": len(run.changes()),
    }


def page(data: Mapping[str, Any]) -> str:
    """The runs side by side, as Markdown."""
    names = [name for name in POLICIES if name in data]
    rows = list(data[names[0]])
    text = (
        "# Henge with and without Dhalion's diagnosis\n\n"
        "Printed by `trilithon experiment dhalion layered --into docs/results/dhalion.md`: six "
        f"word counts on the simulated `spark-rtm` with {SLOTS} slots, {DURATION_S / 60:.0f} "
        "minutes, of which policies only observe the first 15. Two jobs lack instances, and two "
        "have a hot word (`experiments/dhalion/layered_run.py`).\n\n"
        f"| | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1)}\n"
    )
    for row in rows:
        cells = " | ".join(_cell(row, data[name][row]) for name in names)
        text += f"| {row} | {cells} |\n"
    if HENGE in data and LAYERED in data:
        text += f"\n{_worth(data)}\n"
    return text


def _worth(data: Mapping[str, Any]) -> str:
    """What Dhalion's diagnosis first is worth, in slots and in satisfaction."""
    before, first = data[HENGE], data[LAYERED]
    more = 100 * (first["satisfaction"] - before["satisfaction"])
    hot, few = "of the jobs with a hot word", "of those that lack instances"
    used, instead = first["instances at the end"], before["instances at the end"]
    instances = f"the same {used:g}" if used == instead else f"{used:g} instead of {instead:g}"
    sentence = (
        f"With Dhalion's diagnosis first, satisfaction is {abs(more):.1f} points "
        f"{'higher' if more >= 0 else 'lower'} on average with {instances} instances: jobs "
        f"with a hot word have {first[hot] - before[hot]:+g}, those that lack instances "
        f"{first[few] - before[few]:+g}."
    )
    if ALONE in data:
        alone = data[ALONE]
        share, used = alone["satisfaction"], alone["instances at the end"]
        sentence += f" Dhalion alone has {100 * share:.1f} % with {used:g}."
    return f"{sentence} One run of each, with one seed."


def _cell(row: str, value: float) -> str:
    return f"{100 * value:.1f} %" if row.startswith("satisfaction") else f"{value:.4g}"
