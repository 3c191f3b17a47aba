"""Divides the instances of new machines by ETP (Stela, sections II-B to II-E).

Instances to give = ⌈new machines · average instances per machine⌉ (algorithm 2 counts up to that
number). Each goes to the congested operator with the highest ETP; without a congested one, to an
operator that reads a source. Then rates are projected, and ETP computed anew.

Chosen, where the paper says nothing:

- Of operators with the same ETP the one comes first that raises the projected throughput most.
- Across jobs ETP is not defined. An operator's rank is

      priority · (1 − share) · ETP        share = throughput of the job / its own maximum

  with the maximum that the job would have if only its first operators had a limit. So the job that
  has the least of what it could have comes first, weighted by its priority; among the operators of
  one job the order is that of ETP.
- Then single instances are exchanged between operators of the same job as long as the projection
  gains (`refine`). The paper stops before that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.measures.etp import project
from trilithon.measures.group import ratio
from trilithon.model.columns import Floats, Ints
from trilithon.model.layout import Layout
from trilithon.policies.free_slots import FreeSlots
from trilithon.policies.stela.scaling_plan import EXCHANGED, ScalingPlan, Step, placed
from trilithon.policies.stela.scaling_view import Bools, ScalingView
from trilithon.policies.stela.stela_parameters import AS_PRINTED, PROJECTED


@dataclass(frozen=True, eq=False)
class OperatorRanking:
    """All operators at one moment: which are congested, their ETP, and the rank across jobs."""

    congested: Bools
    etp: Floats
    rank: Floats
    input: Floats
    could_take: Floats
    # Per job of the layout: throughput, and its share of the job's own maximum.
    throughput: Floats
    share: Floats


class Division:
    """The state of a division: instances given so far, and what is left of every limit."""

    def __init__(self, view: ScalingView, added: int) -> None:
        self.view = view
        self.extra: Ints = np.zeros(len(view.layout.node_names), dtype=np.int64)
        self._jobs = view.job_room()
        self._slots: FreeSlots = view.free_slots(added)
        self._own_maximum = view.flow.most(view.sink_weight)

    def allowed(self) -> Ints:
        """The operators that may have one more instance."""
        view, layout = self.view, self.view.layout
        return np.array(
            [
                node
                for node in layout.operator_nodes
                if (job := layout.jobs[layout.node_job[node]]) in view.jobs
                and layout.parallelism[node] + self.extra[node] < view.most[node]
                and min(
                    self._jobs[job],
                    self._slots.cluster,
                    self._slots.of_tenant(view.scene.statuses[job].tenant),
                )
                >= 1
            ],
            dtype=np.int64,
        )

    def give(self, node: int) -> None:
        job = self.view.layout.jobs[self.view.layout.node_job[node]]
        self.extra[node] += 1
        self._jobs[job] -= 1
        self._slots.take(self.view.scene.statuses[job].tenant, 1)

    def take_back(self, node: int) -> None:
        job = self.view.layout.jobs[self.view.layout.node_job[node]]
        self.extra[node] -= 1
        self._jobs[job] += 1
        self._slots.take(self.view.scene.statuses[job].tenant, -1)

    def ranking(self) -> OperatorRanking:
        """As measured before anything was given, and as projected after that."""
        view = self.view
        if not self.extra.any():
            input_, could, taken = view.input, view.could_take, view.processing
            throughput = view.throughput
        elif view.parameters.projection == AS_PRINTED:
            after = project(view.layout, view.rates, self.extra)
            input_, could, taken = after.input, after.processing, after.processing
            throughput = self._sinks(taken)
        else:
            rates = view.flow.rates(self.extra)
            input_, could, taken = rates.input, rates.could_take, rates.taken
            throughput = view.flow.throughput(rates, view.sink_weight)
        congested = view.congested(input_, could)
        etp = np.nan_to_num(view.etp(taken, congested))
        share = np.clip(np.nan_to_num(ratio(throughput, self._own_maximum, nothing=1.0)), 0, 1)
        need = view.priorities * np.maximum(1 - share, 1e-9)
        return OperatorRanking(
            congested, etp, etp * need[view.layout.node_job], input_, could, throughput, share
        )

    def _sinks(self, taken: Floats) -> Floats:
        layout, sinks = self.view.layout, self.view.layout.sink_nodes
        written = taken[sinks] * self.view.sink_weight
        return np.bincount(layout.node_job[sinks], written, len(layout.jobs)).astype(np.float64)

    def value(self, extra: Ints) -> float:
        """What a division is worth: the shares of their own maxima that jobs would have, weighted
        by priority. For one job that is the order of its throughput.
        """
        view = self.view
        rates = view.flow.rates(extra)
        share = ratio(view.flow.throughput(rates, view.sink_weight), self._own_maximum, nothing=1.0)
        rows = [view.layout.job_row[name] for name in view.jobs]
        return float((np.nan_to_num(share) * view.priorities)[rows].sum())

    def exchange(self, given: list[int]) -> list[int]:
        """Exchanges single instances between operators of a job as long as the projection gains by
        it. ETP looks one step ahead, and at operators above the congestion rate only.
        """
        job_of = self.view.layout.node_job
        for _ in range(_MOST_EXCHANGES):
            now = self.value(self.extra)
            best, gained = None, now * (1 + _GAIN)
            for place, taken in enumerate(given):
                if taken in given[:place]:
                    continue
                self.take_back(taken)
                same_job = (n for n in self.allowed() if job_of[n] == job_of[taken])
                for node in map(int, same_job):
                    self.extra[node] += 1
                    value = self.value(self.extra)
                    self.extra[node] -= 1
                    if value > gained:
                        best, gained = (place, node), value
                self.give(taken)
            if best is None:
                return given
            place, node = best
            self.take_back(given[place])
            self.give(node)
            given[place] = node
        return given

    def projected(self, node: int | None = None) -> float:
        """The throughput of all jobs with what was given, and one more for a node."""
        extra = self.extra.copy()
        if node is not None:
            extra[node] += 1
        view = self.view
        rows = [view.layout.job_row[name] for name in view.jobs]
        rates = view.flow.rates(extra)
        return float(view.flow.throughput(rates, view.sink_weight)[rows].sum())


# An exchange that gains less is not worth the trouble.
_GAIN: Final = 1e-3
_MOST_EXCHANGES: Final = 50
Chooser = Callable[[Division, Ints, OperatorRanking], int]


def instances_to_give(view: ScalingView, machines: int) -> int:
    return math.ceil(machines * view.instances_per_machine - 1e-9)


def divide(view: ScalingView, machines: Sequence[str], choose: Chooser, added: int) -> ScalingPlan:
    """Gives instances one by one and places them on the new machines in turn. `added` is how many
    of the machines are not there yet.
    """
    division, layout = Division(view, added), view.layout
    first = division.ranking()
    wanted = instances_to_give(view, len(machines))
    nodes: list[int] = []
    steps: list[Step] = []
    for _ in range(wanted):
        allowed = division.allowed()
        if not len(allowed):
            break
        ranking = division.ranking()
        node = choose(division, allowed, ranking)
        division.give(node)
        nodes.append(node)
        etp, why = float(ranking.etp[node]), _why(view, choose, ranking, node)
        steps.append(Step(_subject(view, node), "etp", etp, division.projected(), why))
    before_exchange = division.projected()
    if choose is by_etp and view.parameters.refine == PROJECTED:
        steps = _exchanged(division, nodes, steps)
    given = [(layout.jobs[layout.node_job[node]], layout.node_names[node]) for node in nodes]
    counts, places = placed(view, given, machines)
    short = (
        f"{len(given)} of {wanted} instances are given: operators, jobs, tenants or the cluster "
        "are at their maximum."
    )
    rows = [layout.job_row[name] for name in view.jobs]
    return ScalingPlan(
        counts,
        places,
        steps=tuple(steps),
        throughput=float(first.throughput[rows].sum()),
        projected=division.projected(),
        before_exchange=before_exchange,
        notes=(*((short,) if len(given) < wanted else ()), *_full_notes(division)),
    )


def _exchanged(division: Division, nodes: list[int], steps: Sequence[Step]) -> list[Step]:
    """Exchanges instances, in `nodes`, too; the steps as they are then."""
    before, projected = list(nodes), division.projected
    after = division.exchange(nodes)
    return [
        step
        if node == was
        # Chosen by the projection: the ETP is that of a step that was not taken.
        else Step(
            _subject(division.view, node),
            "etp",
            None,
            projected(),
            EXCHANGED,
            _subject(division.view, was),
        )
        for step, was, node in zip(steps, before, after, strict=True)
    ]


def _why(view: ScalingView, choose: "Chooser", ranking: OperatorRanking, node: int) -> str:
    if choose is not by_etp:
        return "in turn"
    if ranking.congested[node]:
        return f"highest rank of the congested, ETP {100 * ranking.etp[node]:.0f} %"
    reads = ", reads a source" if node in _first_operators(view.layout) else ""
    return f"none that may grow is congested{reads}"


def _full_notes(division: Division) -> list[str]:
    """The operators that are congested still and cannot have more instances, and what helps."""
    view, layout = division.view, division.view.layout
    congested, counts = division.ranking().congested, layout.parallelism + division.extra
    notes = []
    for node in layout.operator_nodes:
        job, name = layout.jobs[layout.node_job[node]], layout.node_names[node]
        if job in view.jobs and congested[node] and counts[node] >= view.most[node]:
            limit = _limit_of(view, job, name)
            notes.append(f"Still congested: {job} {name} with {counts[node]} instances, {limit}.")
    return notes


def _limit_of(view: ScalingView, job: str, name: str) -> str:
    """Why an operator cannot have more instances, and what helps."""
    apply = f"`trilithon job apply` with a higher {{}} of {name} restarts the job once"
    if name in view.window.jobs[job].bounds.fixed:
        return "which its job declares as `fixed`"
    if view.fixed(job, name):
        return (
            "all of its tasks, since it keeps state that the engine cannot divide while it runs: "
            f"{apply.format('`parallelism.initial`')} and divides it anew"
        )
    return f"its maximum: {apply.format('`parallelism.max`')}"


def _subject(view: ScalingView, node: int) -> str:
    return f"{view.layout.jobs[view.layout.node_job[node]]} {view.layout.node_names[node]}"


def by_etp(division: Division, allowed: Ints, ranking: OperatorRanking) -> int:
    """The congested operator of the highest rank; a first operator if none is congested."""
    layout = division.view.layout
    congested = [int(node) for node in allowed if ranking.congested[node]]
    if congested:
        highest = max(ranking.rank[node] for node in congested)
        tied = [node for node in congested if ranking.rank[node] >= highest * (1 - 1e-6)]
        if len(tied) == 1:
            return tied[0]
        return max(tied, key=lambda node: (round(division.projected(node), 6), -node))
    first = _first_operators(layout)
    priority = division.view.priorities[layout.node_job]
    return max(
        (int(node) for node in allowed),
        key=lambda node: (node in first, priority[node], ranking.etp[node], -node),
    )


def _first_operators(layout: Layout) -> set[int]:
    reads_source = np.isin(layout.edge_source, layout.source_nodes)
    return set(layout.edge_target[reads_source].tolist())


def in_turn(division: Division, allowed: Ints, ranking: OperatorRanking) -> int:
    """The operator that was given the fewest, in their order: as many instances, no measure."""
    del ranking
    return min(map(int, allowed), key=lambda node: (division.extra[node], node))
