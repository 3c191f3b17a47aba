"""Chooses the machines that go (Stela, section II-F).

    ETPSum(machine) = Σ over its instances of the ETP of their operators

The machine with the lowest ETPSum goes; its instances move to the others in turn, in increasing
order of ETPSum, which is computed anew with the moved instances before the next machine is chosen.
Across jobs an ETP counts by the priority of its job, relative to the highest.

Chosen: then single machines are exchanged with those that stay, as long as the projected throughput
gains (`refine`). ETPSum does not see that machines get fuller; the projection does.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import cycle, product
from typing import Final

import numpy as np

from trilithon.measures.contention import could_take_when_placed
from trilithon.measures.group import ratio
from trilithon.model.layout import InstanceKey
from trilithon.policies.stela.scaling_plan import EXCHANGED, ScalingPlan, Step, placed
from trilithon.policies.stela.scaling_view import ScalingView
from trilithon.policies.stela.stela_parameters import PROJECTED

# Chosen, as for a scale-out: an exchange that gains less is not worth the trouble.
_GAIN: Final = 1e-3
_MOST_EXCHANGES: Final = 50
# In which rates and loads come close to what they are made of.
_TURNS: Final = 8


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
    plan = _remove(view, count)
    if view.parameters.refine != PROJECTED:
        return _remove(view, count, stepwise=True)
    better = _exchanged(view, plan)
    among = None if better is plan else frozenset(better.removed)
    final = _remove(view, count, among, stepwise=True)
    steps = _marked(final.steps, plan.removed)
    return replace(final, steps=steps, before_exchange=plan.projected)


def _exchanged(view: ScalingView, plan: ScalingPlan) -> ScalingPlan:
    # Nothing moves to a machine that goes itself a moment later.
    plan = max(plan, remove_machines(view, plan.removed), key=lambda each: each.projected or 0.0)
    for _ in range(_MOST_EXCHANGES):
        better = None
        for i, stays in product(range(len(plan.removed)), view.placement):
            if stays in plan.removed:
                continue
            going = (*plan.removed[:i], stays, *plan.removed[i + 1 :])
            other = remove_machines(view, going)
            least = (better or plan).projected or 0.0
            if (other.projected or 0.0) > least * (1 + _GAIN):
                better = other
        if better is None:
            return plan
        plan = better
    return plan


def _marked(steps: Sequence[Step], by_etp_sum: Sequence[str]) -> tuple[Step, ...]:
    """The steps, where those that ETPSum alone would not have taken name what they stand for."""
    going = [step.subject for step in steps]
    spared = iter([name for name in by_etp_sum if name not in going])
    return tuple(
        step
        if step.subject in by_etp_sum
        else replace(step, why=EXCHANGED, instead_of=next(spared))
        for step in steps
    )


def remove_machines(view: ScalingView, machines: Collection[str]) -> ScalingPlan:
    """These machines, with the same way of moving their instances."""
    return _remove(view, len(machines), frozenset(machines))


def remove_named(view: ScalingView, machines: Sequence[str]) -> ScalingPlan:
    """The machines that people named, whatever their ETPSum, with the throughput after each."""
    plan = _remove(view, len(machines), frozenset(machines), stepwise=True)
    why = "named; its ETPSum is {:.3f}"
    return replace(plan, steps=tuple(replace(s, why=why.format(s.value)) for s in plan.steps))


def _remove(
    view: ScalingView, count: int, among: frozenset[str] | None = None, *, stepwise: bool = False
) -> ScalingPlan:
    """So many machines, of these if any are named; always the one with the lowest ETPSum next. The
    throughput after each is projected only if `stepwise`: that takes as long as the whole.
    """
    placement = {name: list(keys) for name, keys in view.placement.items()}
    moved: dict[InstanceKey, str] = {}
    steps: list[Step] = []
    for _ in range(count):
        sums = etp_sums(view, placement)
        order = sorted(sums, key=lambda name: (sums[name], name))
        leaving = next(name for name in order if among is None or name in among)
        others = [name for name in order if name != leaving and name not in (among or ())]
        for turn, key in enumerate(placement.pop(leaving)):
            target = others[turn % len(others)]
            placement[target].append(key)
            moved[key] = target
        projected = _projected(view, moved) if stepwise else None
        why = f"lowest ETPSum, {sums[leaving]:.3f}"
        steps.append(Step(leaving, "etp_sum", sums[leaving], projected, why))
    return _plan(view, tuple(step.subject for step in steps), moved, tuple(steps))


def remove_at_random(view: ScalingView, count: int, seed: int) -> ScalingPlan:
    """Any machines; their instances are placed in turn on those that stay. The paper compares two
    such groups that end differently, so what runs on the others is left there.
    """
    names = list(view.placement)
    drawn = set(sorted(names, key=lambda name: _drawn(seed, name))[:count])
    leaving = tuple(name for name in names if name in drawn)
    turn = cycle([name for name in names if name not in drawn])
    moved: dict[InstanceKey, str] = {}
    steps: list[Step] = []
    for name in leaving:
        moved |= {key: next(turn) for key in view.placement[name]}
        steps.append(Step(name, "random", None, _projected(view, moved), "drawn at random"))
    return _plan(view, leaving, moved, tuple(steps))


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
    fixed = sorted({f"{job} {name}" for job, name, _ in moved if view.fixed(job, name)})
    stay = f"The engine itself moves the instances of {', '.join(fixed)}: these are fixed."
    rows = [view.layout.job_row[name] for name in view.jobs]
    return ScalingPlan(
        places=places,
        removed=removed,
        steps=steps,
        throughput=float(view.throughput[rows].sum()),
        projected=_projected(view, moved),
        notes=(stay,) if fixed else (),
    )


def _projected(view: ScalingView, moved: Mapping[InstanceKey, str]) -> float:
    """The throughput with instances moved, where machines that get fuller are slower. Who takes
    less then uses less of its machine, so rates and loads are found in turns.
    """
    layout = view.layout
    machine = np.nan_to_num(view.window.instances.machine).astype(np.int64)
    for key, name in moved.items():
        machine[layout.instance_row[key]] = layout.machine_row[name]
    load = np.ones(len(layout.node_names))
    for _ in range(_TURNS):
        could = could_take_when_placed(view.window, machine, load)
        rates = view.flow.rates(could_take=could)
        taken = np.nan_to_num(ratio(rates.taken, view.processing), nan=1.0)
        load = (load + taken) / 2
    rows = [layout.job_row[name] for name in view.jobs]
    return float(view.flow.throughput(rates, view.sink_weight)[rows].sum())
