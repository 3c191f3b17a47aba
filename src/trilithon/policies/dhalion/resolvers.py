"""Resolves diagnoses (sections 5.1 and 5.2): what to change, or what to tell people.

What the engine cannot do, or what would not help, becomes an alert with advice.
"""

import math
from collections.abc import Mapping
from typing import Final

from trilithon.measures.rates import MOST_PARKED
from trilithon.model.capability import Ability, How
from trilithon.model.change import (
    Alert,
    AvoidedTasksChange,
    Change,
    InstanceRestart,
    KeyGroupsChange,
    ParallelismChange,
    PlacementChange,
    Severity,
    WeightsChange,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD, assign_key_groups
from trilithon.model.utility import Sense
from trilithon.policies.decision import Expectation
from trilithon.policies.dhalion.dhalion_parameters import ON
from trilithon.policies.dhalion.diagnosers import SKEW, SLOW, UNDER
from trilithon.policies.dhalion.health import Diagnosis, JobCase, Resolution
from trilithon.policies.dhalion.job_view import InstanceView, OperatorView

SCALE_UP: Final = "scale_up"
SCALE_DOWN: Final = "scale_down"
RELIEVE: Final = "relieve_instance"
MOVE_KEYS: Final = "move_keys"
SOURCE_SCALE_UP: Final = "source_scale_up"
TELL: Final = "tell"
# Below this share of the highest weight an instance counts as relieved.
_LOWERED: Final = 0.99
# A weight below this leaves an instance practically without records.
_LEAST_WEIGHT: Final = 0.05
# A note in the action log: the bits of the key groups of which one is hot, in hexadecimal.
_SUSPECTS: Final = "suspects"
_DIVIDE: Final = "Divide the hot key (a salt), or aggregate before this operator."
_DEALT_EVENLY: Final = (
    "Look at its machine: records without a key are dealt evenly, it may be slow."
)


def can(case: JobCase, ability: Ability) -> bool:
    return case.scene.cluster.capabilities.of(ability) is not How.NOT_AT_ALL


def alert(
    case: JobCase,
    code: str,
    sentence: str,
    advice: str,
    operator: str | None,
    *,
    claims: bool = False,
) -> Resolution:
    proposal = Alert(case.name, Severity.WARNING, code, sentence, advice, operator)
    return Resolution(TELL, (proposal,), f"{sentence} {advice}", claims=claims)


def why_fixed(case: JobCase, operator: OperatorView) -> str:
    """Why the records of an operator stay with their instances; empty if they may move. The guard
    would refuse such a change each time. Engines list operators whose state cannot move.
    """
    if operator.name not in case.view.status.fixed:
        return ""
    return "keeps state" if operator.stateful else "is one of the job's `fixed` operators"


def _expects_emission(case: JobCase, factor: float) -> Expectation | None:
    """After the wait and a window, the sources emit so many times as much as now."""
    rate = case.view.emission_per_s
    if rate is None or rate <= 0:
        return None
    parameters = case.parameters
    by_s = case.scene.now_s + parameters.wait_s + parameters.window_s
    return Expectation("emission", rate * factor, by_s, Sense.AT_LEAST)


def _rescale(
    case: JobCase, action: str, operator: OperatorView, wanted: int, expects: Expectation | None
) -> Resolution:
    sentence = f"{operator.name} {operator.parallelism} → {wanted} instances."
    changes: list[Change] = [ParallelismChange(case.name, {operator.name: wanted})]
    weights = case.view.status.allocation.weights.get(operator.name, ())
    if len(set(weights)) > 1:
        # A new number of instances would forget which of them is slow.
        kept = (*weights[:wanted], *(1.0,) * (wanted - len(weights)))
        changes.append(WeightsChange(case.name, {operator.name: kept}))
    places = case.view.status.allocation.placement.get(operator.name, ())
    if any(place is not None for place in places):
        # Nor where its work went. Avoided tasks and key groups stay as they are by themselves.
        stays = (*places[:wanted], *(None,) * (wanted - len(places)))
        changes.append(PlacementChange(case.name, {operator.name: stays}))
    return Resolution(action, tuple(changes), sentence, expects)


class ScaleUpResolver:
    """More instances: the share of the load that could not be handled is b / (1 − b)."""

    name = SCALE_UP

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.operator is None or case.parameters.scale != ON:
            return None
        operator = case.view.operator(diagnosis.operator)
        lacking = diagnosis.number("lacking")
        if lacking is None:
            held_back = min(operator.held_back, MOST_PARKED)
            lacking = held_back / (1 - held_back)
        wanted = max(operator.parallelism + 1, math.ceil(operator.parallelism * (1 + lacking)))
        return _grown(case, SCALE_UP, operator, wanted)


def _grown(case: JobCase, action: str, operator: OperatorView, wanted: int) -> Resolution:
    span = case.view.status.spans.get(operator.name)
    fixed = operator.name in case.view.status.fixed or span is None
    if fixed or operator.broadcast or not can(case, Ability.PARALLELISM):
        why = (
            "every instance gets every record, so more of them would not help"
            if operator.broadcast
            else "its parallelism cannot change"
        )
        return alert(
            case,
            "SCALE_UP_IMPOSSIBLE",
            f"{operator.name} needs {wanted} instances, but {why}.",
            "Start the job with more of them, or make each record cheaper.",
            operator.name,
        )
    most = operator.parallelism if span is None else span.max
    if operator.parallelism >= most:
        return alert(
            case,
            "AT_MAXIMUM",
            f"{operator.name} needs {wanted} instances and has its maximum of {most}.",
            "Raise `max` of its parallelism.",
            operator.name,
        )
    granted = min(wanted, most)
    expects = _expects_emission(case, 1 + case.parameters.improvement)
    return _rescale(case, action, operator, granted, expects)


class ScaleDownResolver:
    """Fewer instances: at most a share of them at once, and by default no fewer than keep the
    predicted utilisation below the bound. Each number of instances is an action of its own: where
    one was too few, it is not tried again, and neither are fewer.
    """

    name = SCALE_DOWN

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.operator is None or case.parameters.scale != ON:
            return None
        operator, parameters = case.view.operator(diagnosis.operator), case.parameters
        span = case.view.status.spans.get(operator.name)
        if span is None or operator.name in case.view.status.fixed:
            return None
        count, busy = operator.parallelism, operator.busiest
        wanted = max(round(count * (1 - parameters.scale_down)), span.min, 1)
        wanted = min(wanted, count - 1)
        if parameters.over == "predicted" and busy is not None:
            wanted = max(wanted, math.ceil(busy * count / parameters.full - 1e-9))
        if not max(1, span.min) <= wanted < count:
            return None
        to = f"{SCALE_DOWN}.to_{{}}"
        if any(case.blacklisted(diagnosis, to.format(each)) for each in range(wanted, count)):
            return None
        expects = _expects_emission(case, 0.95)
        return _rescale(case, to.format(wanted), operator, wanted, expects)


class RelieveInstanceResolver:
    """A slow instance gets less: first a lower weight, in proportion to how fast it is. If that did
    not help, it restarts, on engines that can; else its work goes to a spare task on another
    machine, with equal weights.
    """

    name = RELIEVE

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.operator is None or not diagnosis.instances:
            return None
        operator = case.view.operator(diagnosis.operator)
        if len(diagnosis.instances) >= operator.parallelism:
            return None  # none has peers that are faster
        fixed = why_fixed(case, operator)
        for action, step, moves_records in (
            (f"{RELIEVE}.weights", self._weights, True),
            (f"{RELIEVE}.restart", self._restart, False),
            (f"{RELIEVE}.placement", self._placement, True),
        ):
            if case.blacklisted(diagnosis, action) or (fixed and moves_records):
                continue
            changes, what = step(case, operator, diagnosis.instances)
            if changes:
                expects = _expects_emission(case, 1 + case.parameters.improvement)
                return Resolution(action, changes, what, expects, claims=True)
        if diagnosis.kind in {UNDER, SKEW}:
            return None  # it was drawn for another cause, and can do nothing about it
        indices = (operator.instances[i].index for i in diagnosis.instances)
        which = ", ".join(f"{operator.name}-{index}" for index in indices)
        why = f", and {operator.name} {fixed}: its records cannot move" if fixed else ""
        more = "" if fixed else " With a higher `max` of its parallelism there is a spare task."
        return alert(
            case,
            "SLOW_INSTANCE",
            f"{which} is slower than its peers{why}.",
            f"Look at its machine, and drain it if it is slow for other jobs, too.{more}",
            operator.name,
            claims=True,
        )

    def _weights(
        self, case: JobCase, operator: OperatorView, slow: tuple[int, ...]
    ) -> tuple[tuple[Change, ...], str]:
        service = [instance.service_s for instance in operator.instances]
        if not can(case, Ability.WEIGHTS) or None in service or len(slow) >= len(service):
            return (), ""
        allocation = case.view.status.allocation
        placed = allocation.placement.get(operator.name, ())
        if any(place is not None for place in placed) or operator.name in allocation.groups:
            return (), ""  # weights are refused beside places, and groups count in their stead
        now = allocation.weights.get(operator.name, ())
        if len(now) != len(service):
            now = (1.0,) * len(service)
        full = max(now)
        peers = [i for i, each in enumerate(now) if i not in slow and each > _LOWERED * full]
        if not peers:
            return (), ""
        known = [value for value in service if value is not None]
        usual = sum(known[i] for i in peers) / len(peers)
        # An instance that gets less already keeps that when another becomes slow.
        fresh = [i for i in slow if now[i] > _LOWERED * full and known[i] > usual]
        if not fresh:
            return (), ""
        weights = list(now)
        for i in fresh:
            weights[i] = full * max(_LEAST_WEIGHT, round(usual / known[i], 3))
        lowered = ", ".join(
            f"{operator.name}-{operator.instances[i].index} {weights[i]:g}" for i in fresh
        )
        return (WeightsChange(case.name, {operator.name: tuple(weights)}),), f"Weights: {lowered}."

    def _placement(
        self, case: JobCase, operator: OperatorView, slow: tuple[int, ...]
    ) -> tuple[tuple[Change, ...], str]:
        """Its work goes to a spare task on the machine with the fewest instances, and its own task
        is avoided from now on. An engine that cannot avoid tasks moves the instance itself; one
        that can restart instances does that instead.
        """
        if can(case, Ability.RESTART_INSTANCE):
            return (), ""
        moved = self._spare_places(case, operator, slow)
        avoids = can(case, Ability.AVOIDED_TASKS)
        avoided = self._avoided(case, operator, slow) if avoids else ()
        if not (avoided if avoids else moved):
            return (), ""
        allocation, count = case.view.status.allocation, operator.parallelism
        changes: list[Change] = []
        if moved:
            before = allocation.placement.get(operator.name, (None,) * count)
            places: list[str | None] = list(before) if len(before) == count else [None] * count
            for i, machine in moved.items():
                places[i] = machine
            changes.append(PlacementChange(case.name, {operator.name: tuple(places)}))
        if operator.name in allocation.weights:
            # An engine may refuse a placement beside different weights.
            changes.append(WeightsChange(case.name, {operator.name: (1.0,) * count}))
        names = {i: f"{operator.name}-{operator.instances[i].index}" for i in slow}
        if not avoids:
            where = ", ".join(f"{names[i]} → {machine}" for i, machine in moved.items())
            return tuple(changes), f"On another machine: {where}."
        changes.append(AvoidedTasksChange(case.name, {operator.name: avoided}))
        where = f" on {', '.join(sorted(set(moved.values())))}" if moved else ""
        which, task = ", ".join(names.values()), "a spare task" if len(slow) == 1 else "spare tasks"
        return tuple(changes), f"The work of {which} goes to {task}{where}."

    def _spare_places(
        self, case: JobCase, operator: OperatorView, slow: tuple[int, ...]
    ) -> dict[int, str]:
        """For each slow instance another machine, those with the fewest instances first."""
        if not can(case, Ability.PLACEMENT):
            return {}
        bad = {operator.instances[i].machine for i in slow}
        spare = sorted(
            (machine for machine in case.scene.machines if machine.name not in bad),
            key=lambda machine: (len(machine.instances), machine.name),
        )
        return {i: spare[turn % len(spare)].name for turn, i in enumerate(slow)} if spare else {}

    def _avoided(
        self, case: JobCase, operator: OperatorView, slow: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The tasks to avoid, with those that are avoided already; none if there is no spare task
        for each: then the same tasks would be used again.
        """
        before = set(case.view.status.allocation.avoided.get(operator.name, ()))
        after = before | {operator.instances[i].index for i in slow}
        tasks = case.view.job.operator(operator.name).tasks
        spare = after != before and operator.parallelism + len(after) <= tasks
        return tuple(sorted(after)) if spare else ()

    def _restart(
        self, case: JobCase, operator: OperatorView, slow: tuple[int, ...]
    ) -> tuple[tuple[Change, ...], str]:
        if not can(case, Ability.RESTART_INSTANCE):
            return (), ""
        index = operator.instances[slow[0]].index
        what = f"Restart {operator.name}-{index}."
        return (InstanceRestart(case.name, operator.name, index),), what


class MoveKeysResolver:
    """Key groups move from the instance that gets too many records to the others.

    One key may cause the skew, and nobody counts records per group. So what its group has alone is
    estimated: h = rate − groups · (rate of the others / their groups). At most half of the
    instance's groups move at once: if the hot one is among them, the skew appears elsewhere. The
    log remembers the suspects, all groups of the instance. Where the skew appears next, only those
    that came with it are suspects, and the others go: else the hot one would move on and on. If h
    alone is more than an instance can take, no move
    helps: then the instance's groups are spread over all instances, if the job keeps no order.
    """

    name = MOVE_KEYS

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        resolution = self._moved(case, diagnosis)
        if resolution is None or resolution.invasive or diagnosis.kind not in {UNDER, SLOW}:
            return resolution
        return None  # it was drawn for another cause, and can do nothing about it

    def _moved(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.operator is None or not diagnosis.instances:
            return None
        operator = case.view.operator(diagnosis.operator)
        which = f"{operator.name}-{operator.instances[diagnosis.instances[0]].index}"
        if not operator.keyed:
            text = f"{which} takes more records than its peers, although none has a key."
            return self._tell(case, operator, text, _DEALT_EVENLY)
        if not can(case, Ability.KEY_GROUPS):
            text = f"{which} gets too many records, and the engine cannot move key groups."
            return self._tell(case, operator, text)
        if stays := "keeps state by key" if operator.stateful else why_fixed(case, operator):
            text = f"{which} gets too many records, and {operator.name} {stays}."
            return self._tell(case, operator, text)
        groups = self._groups(case, operator)
        hot = diagnosis.instances[0]
        own = [group for group, instance in enumerate(groups) if instance == hot]
        others = [i for i in range(operator.parallelism) if i not in diagnosis.instances]
        rates = [instance.rate_per_s or 0.0 for instance in operator.instances]
        if not others:
            return self._tell(case, operator, f"One key is too much for {which}.")
        if len(own) < 2:
            text = f"One key is too much for {which}"
            return self._spread(case, operator, groups, hot, text)
        outside = sum(1 for instance in groups if instance in others)
        per_group = sum(rates[i] for i in others) / max(1, outside)
        hot_rate = max(0.0, rates[hot] - per_group * len(own))
        fair = sum(rates) / operator.parallelism
        capacity = _capacity(operator.instances[hot])
        if capacity is not None and hot_rate > 0.95 * capacity:
            share = hot_rate / sum(rates)
            text = f"One key has {share:.0%} of the records, more than an instance can take"
            return self._spread(case, operator, groups, hot, text)
        keeps = int((fair - hot_rate) / per_group) if per_group > 0 else 1
        keeps = max(1, min(len(own) - 1, keeps))
        noted = _suspects(case, operator.name)
        suspects = [group for group in own if group in noted] or own
        if len(suspects) < len(own):
            own = [*suspects, *(group for group in own if group not in noted)]
            keeps = max(keeps, len(suspects))
        else:
            keeps = max(keeps, len(own) // 2)
        moved = own[keeps:]
        after = list(groups)
        for turn, group in enumerate(moved):
            after[group] = others[turn % len(others)]
        sentence = f"{len(moved)} of {len(own)} key groups of {which} go to other instances."
        change = KeyGroupsChange(case.name, {operator.name: tuple(after)})
        # Each step is smaller than the one before: they are counted as different actions.
        action = f"{MOVE_KEYS}.{len(own)}"
        notes = {_SUSPECTS: f"{sum(1 << group for group in suspects):x}"}
        expects = _expects_emission(case, 1.0)
        return Resolution(action, (change,), sentence, expects, claims=True, notes=notes)

    def _spread(
        self, case: JobCase, operator: OperatorView, groups: tuple[int, ...], hot: int, text: str
    ) -> Resolution:
        """The groups of an instance are spread: nobody knows which of them is the hot one."""
        count = groups.count(hot)
        if not case.view.job.can_spread(operator.name) or not count:
            return self._tell(case, operator, f"{text}.")
        after = tuple(SPREAD if owner == hot else owner for owner in groups)
        which = f"{count} key group{'' if count == 1 else 's'}"
        name = f"{operator.name}-{operator.instances[hot].index}"
        sentence = f"{text}: the {which} of {name} are spread over all instances."
        change = KeyGroupsChange(case.name, {operator.name: after})
        expects = _expects_emission(case, 1.0)
        return Resolution(f"{MOVE_KEYS}.spread", (change,), sentence, expects, claims=True)

    def _groups(self, case: JobCase, operator: OperatorView) -> tuple[int, ...]:
        allocation = case.view.status.allocation
        given = allocation.groups.get(operator.name)
        if given is not None and len(given) == KEY_GROUPS:
            return given
        # Which instance each group is dealt to before any is moved.
        weights = allocation.weights.get(operator.name, (1.0,) * operator.parallelism)
        return assign_key_groups(weights)

    def _tell(
        self, case: JobCase, operator: OperatorView, sentence: str, advice: str = _DIVIDE
    ) -> Resolution:
        return alert(case, "DATA_SKEW", sentence, advice, operator.name, claims=True)


def _suspects(case: JobCase, operator: str) -> frozenset[int]:
    """The key groups of which one is hot, by the latest move of groups of this operator."""
    moves = (e for e in case.taken if e.operator == operator and e.action.startswith(MOVE_KEYS))
    noted = max(moves, key=lambda entry: entry.time_s, default=None)
    bits = 0 if noted is None else int(noted.notes.get(_SUSPECTS, "0"), 16)
    return frozenset(group for group in range(KEY_GROUPS) if bits >> group & 1)


def _capacity(instance: InstanceView) -> float | None:
    """Records per second that an instance can take at most."""
    return 1 / instance.service_s if instance.service_s else None


class SourceScaleUpResolver:
    """More instances at the sources: SLO / emitted, at most a factor of 4 at once (6.3)."""

    name = SOURCE_SCALE_UP

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.operator is None or case.parameters.scale != ON:
            return None
        operator = case.view.operator(diagnosis.operator)
        most = case.parameters.source_factor
        factor = min(most, diagnosis.number("factor") or most)
        wanted = max(operator.parallelism + 1, math.ceil(operator.parallelism * factor - 1e-9))
        return _grown(case, SOURCE_SCALE_UP, operator, wanted)


class TellResolver:
    """Alerts for what only people can cure."""

    name = TELL
    _MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
        "not_enough_data": ("NOT_ENOUGH_DATA", "Lower the SLO, or send more records."),
        "sources_at_their_limit": (
            "ADD_PARTITIONS",
            "Add partitions to the topics: each is read by one reader.",
        ),
        "small_deficit": (
            "LAG_GROWS",
            "Give the busiest operator more instances, or add partitions if none is busy.",
        ),
    }

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        if diagnosis.kind not in self._MESSAGES:
            return None
        code, advice = self._MESSAGES[diagnosis.kind]
        sentence = f"{diagnosis.sentence[0].upper()}{diagnosis.sentence[1:]}."
        return alert(case, code, sentence, advice, diagnosis.operator)
