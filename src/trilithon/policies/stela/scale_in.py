"""Chooses the machines that go (Stela, section II-F).

    ETPSum(machine) = Σ over its instances of the ETP of their operators

The machine with the lowest ETPSum goes; its instances move to the others in turn, in increasing
order of ETPSum, which is computed anew with the moved instances before the next machine is chosen.
Across jobs an ETP counts by the priority of its job, relative to the highest.

Chosen: then single machines are exchanged with those that stay, as long as the projected throughput
gains (`refine`). ETPSum does not see that machines get fuller; the projection does.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import cycle, product
from typing import Final

import numpy as np

from trilithon.measures.contention import could_take_when_placed
from trilithon.model.layout import InstanceKey
from trilithon.policies.stela.scaling_plan import ScalingPlan, Step, placed
from trilithon.policies.stela.scaling_view import ScalingView
from trilithon.policies.stela.stela_parameters import PROJECTED

# Chosen, as for a scale-out: an exchange that gains less is not worth the trouble.
_GAIN: Final = 1e-3
_MOST_EXCHANGES: Final = 50


def etp_sums(view: ScalingView, placement: Mapping[str, list[InstanceKey]]) -> dict[str, float]:
    """ETPSum of each machine, with its instances as they are placed here."""
    layout = view.layout
    weighted = np.nan_to_num(view.etp_now) * view.priorities[layout.node_job]
    return {
        machine: float(sum(weighted[layout.node_row[key[:2]]] for key in keys))
        for machine, keys in placement.items()
    }


def remove_by_etp(view: ScalingView, count: int) -> ScalingPlan:
    """The machines with the lowest ETPSum, one after the other; then machines are exchanged as long
    as the projection gains.
    """
    plan = _remove(view, (None,) * count)
    return plan if view.parameters.refine != PROJECTED else _exchanged(view, plan)


def _exchanged(view: ScalingView, plan: ScalingPlan) -> ScalingPlan:
    for _ in range(_MOST_EXCHANGES):
        better = None
        for i, stays in product(range(len(plan.removed)), view.placement):
            if stays in plan.removed:
                continue
            going = (*plan.removed[:i], stays, *plan.removed[i + 1 :])
            other = _remove(view, going)
            least = (better or plan).projected or 0.0
            if (other.projected or 0.0) > least * (1 + _GAIN):
                better = other
        if better is None:
            return plan
        plan = better
    return plan


def remove_machines(view: ScalingView, machines: Sequence[str]) -> ScalingPlan:
    """These machines, with the same way of moving their instances."""
    return _remove(view, machines)


def _remove(view: ScalingView, machines: Sequence[str | None]) -> ScalingPlan:
    going = {name for name in machines if name is not None}
    placement = {name: list(keys) for name, keys in view.placement.items()}
    moved: dict[InstanceKey, str] = {}
    steps: list[Step] = []
    for named in machines:
        sums = etp_sums(view, placement)
        order = sorted(sums, key=lambda name: (sums[name], name))
        leaving = order[0] if named is None else named
        others = [name for name in order if name != leaving and name not in going]
        steps.append(Step(leaving, "etp_sum", sums[leaving], None))
        for turn, key in enumerate(placement.pop(leaving)):
            target = others[turn % len(others)]
            placement[target].append(key)
            moved[key] = target
    return _plan(view, tuple(step.subject for step in steps), moved, tuple(steps))


def remove_at_random(view: ScalingView, count: int, seed: int) -> ScalingPlan:
    """Any machines; their instances are placed in turn on those that stay. The paper compares two
    such groups that end differently, so what runs on the others is left there.
    """
    names = list(view.placement)
    drawn = set(sorted(names, key=lambda name: _drawn(seed, name))[:count])
    leaving = tuple(name for name in names if name in drawn)
    turn = cycle([name for name in names if name not in drawn])
    moved = {key: next(turn) for name in leaving for key in view.placement[name]}
    steps = tuple(Step(name, "random", None, None) for name in leaving)
    return _plan(view, leaving, moved, steps)


def _drawn(seed: int, name: str) -> bytes:
    """A number that only the seed and the name decide, and that looks random."""
    return sha256(f"{seed}/{name}".encode()).digest()


def _plan(
    view: ScalingView,
    removed: tuple[str, ...],
    moved: Mapping[InstanceKey, str],
    steps: tuple[Step, ...],
) -> ScalingPlan:
    _, places = placed(view, (), (), moved)
    rows = [view.layout.job_row[name] for name in view.jobs]
    return ScalingPlan(
        places=places,
        removed=removed,
        steps=steps,
        throughput=float(view.throughput[rows].sum()),
        projected=_projected(view, moved, rows),
    )


def _projected(view: ScalingView, moved: Mapping[InstanceKey, str], rows: list[int]) -> float:
    """The throughput with instances moved, where machines that get fuller are slower."""
    layout = view.layout
    machine = np.nan_to_num(view.window.instances.machine).astype(np.int64)
    for key, name in moved.items():
        machine[layout.instance_row[key]] = layout.machine_row[name]
    could = could_take_when_placed(view.window, machine)
    rates = view.flow.rates(could_take=could)
    return float(view.flow.throughput(rates, view.sink_weight)[rows].sum())
