"""Tries Stela on random graphs, against every way to divide the instances or to choose machines.

Graphs, costs, places and rates are drawn from a seed. Each division, and each group of machines, is
run on the simulated cluster by itself: what Stela is compared with is not its own projection.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from typing import Any, Final

import numpy as np

from trilithon.contract.observer import Observer
from trilithon.control.replay import status_in
from trilithon.engines.simulated.arrivals import EVEN_CV2
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.markdown import percent, table
from trilithon.experiments.worker_pool import each_done
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.profile import Profile
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Cluster, Scene
from trilithon.policies.stela.planning import make_plan, view_of
from trilithon.policies.stela.scale_in import remove_machines
from trilithon.policies.stela.scaling_plan import ScalingPlan
from trilithon.policies.stela.stela_parameters import (
    AS_PRINTED,
    NO_REFINEMENT,
    StelaParameters,
)
from trilithon.scenarios.chosen import ChosenNumbers, assumed_costs, storm_character
from trilithon.workloads.shapes import Constant

# Seeds below were used while developing.
FIRST_SEED: Final = 2000
COUNT: Final = 200
SAVED_EVERY: Final = 20
MACHINES: Final = 4
MACHINES_IN: Final = 6
REMOVED: Final = 2
SETTLE_S: Final = 60.0
MEASURED_S: Final = 30.0
GOAL: Final = 0.95
BEST_TENTH: Final = 0.1
# Throughputs closer than this are the same.
SAME: Final = 0.005
STRATEGIES: Final[Mapping[str, StelaParameters]] = {
    "stela": StelaParameters(window_s=MEASURED_S),
    "ETP alone": StelaParameters(window_s=MEASURED_S, refine=NO_REFINEMENT),
    "ETP alone, a sink once per path": StelaParameters(
        window_s=MEASURED_S, etp=AS_PRINTED, refine=NO_REFINEMENT
    ),
    "Stela as printed": StelaParameters(
        window_s=MEASURED_S, etp=AS_PRINTED, projection=AS_PRINTED, refine=NO_REFINEMENT
    ),
    "round robin": StelaParameters(window_s=MEASURED_S, strategy="round_robin"),
}
Places = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class DagCase:
    """A random job on machines of one core: what its sources give, and where its instances run."""

    job: Job
    rate: float
    machines: int
    places: Places


def drawn(seed: int, machines: int) -> DagCase:
    """Three to five operators; some of them cannot take what comes."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 6))
    names = [f"o{i}" for i in range(count)]
    edges = [Edge("source", names[0])]
    for i in range(1, count):
        parents = rng.choice(i, size=int(rng.integers(1, min(2, i) + 1)), replace=False)
        edges += [Edge(names[int(p)], names[i]) for p in sorted(parents)]
    ends = [n for n in names if not any(edge.source == n for edge in edges)]
    edges += [Edge(n, f"sink{i}") for i, n in enumerate(ends)]
    operators = tuple(
        Operator(
            name,
            parallelism=Parallelism(int(rng.integers(2, 4)), 1, 8),
            profile=Profile(
                service_ms=float(rng.uniform(1, 8)),
                service_cv=0.5,
                cpu_share=float(rng.uniform(0.1, 0.5)),
                selectivity=float(rng.choice([0.5, 1.0, 1.0, 1.0])),
            ),
        )
        for name in names
    )
    job = Job(
        tenant="random",
        name=f"dag{seed}",
        sources=(Source("source", (), ()),),
        operators=operators,
        edges=tuple(edges),
        sinks=tuple(Sink(f"sink{i}", ()) for i in range(len(ends))),
    )
    rate = float(rng.uniform(300, 1500))
    turn = rng.permutation(sum(o.parallelism.initial for o in operators))
    places: Places = {}
    used = 0
    for operator in operators:
        mine = turn[used : used + operator.parallelism.initial]
        used += len(mine)
        places[operator.name] = tuple(f"m{int(i) % machines}" for i in mine)
    return DagCase(job, rate, machines, places)


def _engine(machines: int, chosen: ChosenNumbers) -> SimulatedEngine:
    kind = chosen.common.machines["type1"]
    return SimulatedEngine(
        [MachineSpec(f"m{i}", kind.cores, kind.memory_gb * 1e9) for i in range(machines)],
        storm_character(chosen),
        assumed_costs(chosen),
        arrival_cv2=EVEN_CV2,
        step_s=2.0,
    )


def _observed(
    case: DagCase, machines: int, allocation: Allocation, chosen: ChosenNumbers
) -> Observer:
    """Two snapshots of a run, after it has settled."""
    engine = _engine(machines, chosen)
    engine.submit(case.job, allocation)
    engine.feed(case.job.id, "source", Constant(case.rate))
    observer = Observer(SETTLE_S + MEASURED_S)
    engine.advance(SETTLE_S)
    observer.observe(engine, engine.now_s)
    engine.advance(MEASURED_S)
    observer.observe(engine, engine.now_s)
    return observer


def _throughput(
    case: DagCase, machines: int, allocation: Allocation, chosen: ChosenNumbers
) -> float:
    window = _observed(case, machines, allocation, chosen).series.window()
    assert window is not None  # noqa: S101 - it has two snapshots
    return float(window.sinks.written.sum() / window.span_s)


def _scene(case: DagCase, machines: int, chosen: ChosenNumbers) -> Scene:
    first = replace(initial(case.job), placement=dict(case.places))
    series = _observed(case, machines, first, chosen).series
    status = replace(status_in(series.last, case.job.id), accepted_s=0.0)
    cluster = Cluster(Capabilities(dict.fromkeys(Ability, How.LIVE)))
    return Scene(1, series, {case.job.id: status}, cluster)


def _allocation(case: DagCase, plan: ScalingPlan) -> Allocation:
    counts = {o.name: o.parallelism.initial for o in case.job.operators}
    counts |= plan.counts.get(case.job.id, {})
    places: dict[str, tuple[str | None, ...]] = dict(case.places)
    places |= {name: tuple(by) for name, by in plan.places.get(case.job.id, {}).items()}
    return Allocation(case.job.id, 1, counts, placement=places)


def scale_out_case(seed: int, chosen: ChosenNumbers) -> dict[str, Any]:
    """One machine more: the throughput of every division of its instances, and of Stela's."""
    case = drawn(seed, MACHINES)
    scene = _scene(case, MACHINES + 1, chosen)
    request = ScalingRequest("dag", ScalingKind.OUT, 1, None, 0.0)
    new = f"m{MACHINES}"
    names = [o.name for o in case.job.operators]
    give = math.ceil(sum(o.parallelism.initial for o in case.job.operators) / MACHINES)
    by_division: dict[tuple[str, ...], float] = {}
    for division in combinations_with_replacement(names, give):
        extra = {name: division.count(name) for name in names}
        counts = {o.name: o.parallelism.initial + extra[o.name] for o in case.job.operators}
        places = {n: (*case.places[n], *([new] * extra[n])) for n in names}
        allocation = Allocation(case.job.id, 1, counts, placement=dict(places))
        by_division[division] = _throughput(case, MACHINES + 1, allocation, chosen)
    shares = {}
    best = max(by_division.values())
    for name, parameters in STRATEGIES.items():
        plan = make_plan(view_of(scene, request, parameters), request, seed)
        given = sorted((step.subject.split(" ")[1] for step in plan.steps), key=names.index)
        shares[name] = by_division[tuple(given)] / best if best > 0 else 1.0
    first = replace(initial(case.job), placement=dict(case.places))
    before = _throughput(case, MACHINES + 1, first, chosen)
    return {"divisions": len(by_division), "before": before / best if best else 1.0, **shares}


def scale_in_case(seed: int, chosen: ChosenNumbers) -> dict[str, Any]:
    """Two machines fewer: how many groups are better than Stela's, with the same way of moving."""
    case = drawn(seed, MACHINES_IN)
    scene = _scene(case, MACHINES_IN, chosen)
    request = ScalingRequest("dag", ScalingKind.IN, REMOVED, None, 0.0)
    view = view_of(scene, request, STRATEGIES["stela"])
    by_group = {
        group: _throughput(
            case, MACHINES_IN, _allocation(case, remove_machines(view, group)), chosen
        )
        for group in combinations([f"m{i}" for i in range(MACHINES_IN)], REMOVED)
    }

    def chosen_by(strategy: str) -> float:
        plan = make_plan(view_of(scene, request, STRATEGIES[strategy]), request, seed)
        return _throughput(case, MACHINES_IN, _allocation(case, plan), chosen)

    mine, alone = chosen_by("stela"), chosen_by("ETP alone")
    best = max(by_group.values())
    worse = sum(value < best * (1 - SAME) for value in by_group.values())
    return {
        "groups": len(by_group),
        "better": sum(value > mine * (1 + SAME) for value in by_group.values()),
        "better than ETP alone": sum(value > alone * (1 + SAME) for value in by_group.values()),
        "share": mine / best if best else 1.0,
        "share of ETP alone": alone / best if best else 1.0,
        # Where all groups are as good, nothing is chosen.
        "differ": worse > 0,
    }


def run_case(seed: int, chosen: ChosenNumbers) -> dict[str, Any]:
    return {
        "seed": seed,
        "out": scale_out_case(seed, chosen),
        "in": scale_in_case(seed, chosen),
    }


def run_cases(
    workers: int,
    tell: Callable[[str], None],
    chosen: ChosenNumbers,
    kept: Sequence[Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = range(FIRST_SEED, FIRST_SEED + COUNT),
) -> Iterator[list[Mapping[str, Any]]]:
    """The cases of all seeds, some more in each list."""
    results = {case["seed"]: case for case in kept or ()}
    wanted = [(seed, chosen) for seed in seeds if seed not in results]
    for done, (_, case) in enumerate(each_done(run_case, wanted, workers), start=1):
        results[case["seed"]] = case
        tell(f"{len(results)} of {len(seeds)} random graphs")
        if done % SAVED_EVERY == 0 or done == len(wanted):
            yield [results[seed] for seed in sorted(results)]


def summary(cases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The figures of the goals, over all cases."""
    shares = np.array([case["out"]["stela"] for case in cases])
    differ = [case for case in cases if case["in"]["differ"]]

    def best_tenth(key: str, among: Sequence[Mapping[str, Any]] = cases) -> float:
        inside = [case["in"][key] / case["in"]["groups"] < BEST_TENTH for case in among]
        return float(np.mean(inside or [True]))

    def share(key: str) -> float:
        return float(np.mean([case["in"][key] for case in cases]))

    return {
        "mean": float(shares.mean()),
        "least": float(shares.min()),
        "tenth percentile": float(np.percentile(shares, 10)),
        "at goal": float((shares >= GOAL).mean()),
        "in best tenth": best_tenth("better"),
        "in best tenth, ETP alone": best_tenth("better than ETP alone"),
        "in share": share("share"),
        "in share, ETP alone": share("share of ETP alone"),
        "groups differ": len(differ) / len(cases),
        "in best tenth where they differ": best_tenth("better", differ),
    }


def complete(cases: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are cases, and all of what is measured of them today."""
    return bool(cases) and all(
        case["out"].keys() >= STRATEGIES.keys() and "share of ETP alone" in case["in"]
        for case in cases
    )


def section(cases: Sequence[Mapping[str, Any]]) -> str:
    if not complete(cases):
        return ""
    rows = []
    for name in STRATEGIES:
        shares = np.array([case["out"][name] for case in cases])
        rows.append(
            (
                name,
                percent(float(shares.mean())),
                percent(float(np.percentile(shares, 10))),
                percent(float(shares.min())),
                percent(float((shares >= GOAL).mean())),
            )
        )
    before = float(np.mean([case["out"]["before"] for case in cases]))
    figures = summary(cases)
    divisions = sum(case["out"]["divisions"] for case in cases)
    return "\n".join(
        [
            "## Random graphs\n",
            (
                f"{len(cases)} random graphs (seeds {cases[0]['seed']} to {cases[-1]['seed']}, not "
                "looked at while developing; `trilithon experiment stela dags`): throughput after "
                f"one machine was added to {MACHINES}, as a share of the best of all divisions of "
                f"its instances ({divisions:,} simulated runs). Before, it is {percent(before)} of "
                "that.\n"
            ),
            table(("", "mean", "10th percentile", "least", f"at least {percent(GOAL)}"), rows),
            (
                f"The goal, {percent(GOAL)} of the best division, is reached in "
                f"{percent(figures['at goal'])} of the graphs and missed in the others.\n"
            ),
            (
                f"Of {MACHINES_IN} machines {REMOVED} are taken away, and all groups are tried "
                "with the same way of moving instances: Stela's is among the best tenth in "
                f"{percent(figures['in best tenth'])} of the graphs (ETPSum alone in "
                f"{percent(figures['in best tenth, ETP alone'])}); in the others the goal, the "
                f"best tenth, is missed. Where the groups differ by more than {100 * SAME:g} % "
                f"({percent(figures['groups differ'])} of the graphs) it is in "
                f"{percent(figures['in best tenth where they differ'])}. In the mean it has "
                f"{percent(figures['in share'])} of the throughput of the best group (ETPSum alone "
                f"{percent(figures['in share, ETP alone'])}).\n"
            ),
        ]
    )
