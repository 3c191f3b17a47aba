"""Defines what the policy `latency` says: reason codes, sentences, and alerts."""

from collections.abc import Iterable, Mapping
from typing import Final

from trilithon.measures.constraints import constraint_key
from trilithon.model.change import Alert, Severity
from trilithon.model.intent import Constraint, EdgeName
from trilithon.policies.latency.assumptions import UnevenInstance
from trilithon.policies.latency.scaling import JobPlan, SequencePlan, SlotRoom, Technique
from trilithon.policies.latency.sequence import ConstrainedOperator, ConstrainedSequence, path_text

# Reasons of decisions.
SCALE_UP: Final = "CONSTRAINT_NEEDS_MORE"
SCALE_DOWN: Final = "FEWER_KEEP_CONSTRAINTS"
BOTTLENECK: Final = "BOTTLENECK"
PREDICTION: Final = "PREDICTION_CHECKED"
BATCHING: Final = "BATCHING_ADAPTED"

# Alerts.
UNRESOLVABLE: Final = "BOTTLENECK_UNRESOLVABLE"
INFEASIBLE: Final = "CONSTRAINT_INFEASIBLE"
OUT_OF_REACH: Final = "CONSTRAINT_OUT_OF_REACH"
SLOTS_SHORT: Final = "SLOTS_SHORT"
NOT_MEASURED: Final = "CONSTRAINT_NOT_MEASURED"
UNEQUAL_MACHINES: Final = "INSTANCES_UNEQUAL"
UNEVEN_LOAD: Final = "LOAD_UNEVEN"
NOT_ELASTIC: Final = "OPERATOR_NOT_ELASTIC"
MODEL_ERROR: Final = "MODEL_ERROR"


def steps_text(now: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {now[name]} → {count}" for name, count in wanted.items())


def batching_text(limits_ms: Mapping[EdgeName, float]) -> str:
    return ", ".join(f"{edge} gathers for {ms:g} ms" for edge, ms in limits_ms.items())


def plan_text(plan: SequencePlan, counts: Mapping[str, int]) -> str:
    """A sentence on one sequence: its latency, its limit, and what the model says."""
    sequence = plan.sequence
    head = f"{sequence}: mean {_ms(sequence.measured_s)}, at most {_ms(sequence.limit_s)}"
    if plan.technique is Technique.RESOLVE_BOTTLENECKS:
        busy = ", ".join(f"{o.name} ({o.utilisation:.0%} utilised)" for o in plan.bottlenecks)
        return f"{head}. Bottleneck: {busy}"
    if plan.technique is Technique.WORK_OFF_QUEUES:
        queues = ", ".join(f"{o.name} ({o.queue:.0f} left)" for o in sequence.operators)
        return f"{head}. Queues are worked off: {queues}"
    if plan.technique is Technique.OUT_OF_REACH:
        return f"{head}. Without any waiting it takes {_ms(sequence.task_s + sequence.transport_s)}"
    predicted = sum(plan.predicted_s(counts).values())
    return f"{head}. Records may wait {_ms(plan.waiting_limit_s)} and would wait {_ms(predicted)}"


def numbers_of(plan: JobPlan, wanted: Mapping[str, int]) -> dict[str, float | None]:
    """The numbers that a decision follows from, by constraint and operator."""
    numbers: dict[str, float | None] = {}
    for each in plan.sequences:
        sequence = each.sequence
        key = constraint_key(sequence.number)
        numbers |= {
            f"{key}.mean_ms": 1000 * sequence.measured_s,
            f"{key}.at_most_ms": 1000 * sequence.limit_s,
            f"{key}.waiting_limit_ms": 1000 * each.waiting_limit_s,
        }
        predicted = each.predicted_s(wanted)
        for operator in sequence.operators:
            name = operator.name
            waiting_s = predicted.get(name)
            numbers |= {
                f"{name}.instances": operator.instances,
                f"{name}.utilisation": operator.utilisation,
                f"{name}.service_ms": 1000 * operator.service_s,
                f"{key}.{name}.waiting_ms": 1000 * operator.waiting_s,
                f"{key}.{name}.e": operator.coefficient,
                f"{key}.{name}.predicted_waiting_ms": None
                if waiting_s is None or waiting_s == float("inf")
                else 1000 * waiting_s,
            }
    return numbers


def unresolvable(job: str, operator: ConstrainedOperator) -> Alert:
    why = (
        "its parallelism is fixed"
        if operator.fixed
        else f"it has its maximum of {operator.most} instances"
    )
    return Alert(
        job,
        Severity.CRITICAL,
        UNRESOLVABLE,
        f"{operator.name} is a bottleneck ({operator.utilisation:.0%} utilised) and {why}.",
        "Raise `parallelism.max`, make the operator cheaper, or reduce its input.",
        operator.name,
    )


def infeasible(job: str, sequence: ConstrainedSequence, waiting_limit_s: float) -> Alert:
    return Alert(
        job,
        Severity.WARNING,
        INFEASIBLE,
        f"{sequence}: with all operators at their maxima, records would still wait longer than "
        f"{_ms(waiting_limit_s)}.",
        f"Promise more than {_ms(sequence.limit_s)}, or raise `parallelism.max`.",
    )


def out_of_reach(job: str, sequence: ConstrainedSequence) -> Alert:
    return Alert(
        job,
        Severity.CRITICAL,
        OUT_OF_REACH,
        f"{sequence}: operators take {_ms(sequence.task_s)}, batching and transport "
        f"{_ms(sequence.transport_s)}. No parallelism keeps {_ms(sequence.limit_s)}.",
        "Promise more, or make the operators or the transport faster.",
    )


def slots_short(job: str, short: Mapping[str, int], room: SlotRoom) -> Alert:
    missing = ", ".join(f"{count} for {name}" for name, count in short.items())
    return Alert(
        job,
        Severity.WARNING,
        SLOTS_SHORT,
        f"{sum(short.values())} slots are missing ({missing}): {room.limit}.",
        "Add machines, raise the limit, or free slots of other jobs.",
    )


def not_measured(job: str, constraint: Constraint) -> Alert:
    return Alert(
        job,
        Severity.WARNING,
        NOT_MEASURED,
        f"{path_text(constraint)}: a part of it is not measured; its operators keep their "
        "instances.",
        "Let it end before a sink, and check that records flow and clocks agree.",
    )


def unequal(job: str, operator: str, slow: UnevenInstance) -> Alert:
    where = "" if slow.machine is None else f" on {slow.machine}"
    return Alert(
        job,
        Severity.WARNING,
        UNEQUAL_MACHINES,
        f"Instance {slow.index} of {operator}{where} takes {slow.factor:.1f} times as long per "
        "record as its peers. The latency model assumes that instances are alike.",
        "Look for a slow machine or heavy neighbours, or move the instance.",
        operator,
    )


def uneven(job: str, operator: str, loaded: UnevenInstance) -> Alert:
    return Alert(
        job,
        Severity.WARNING,
        UNEVEN_LOAD,
        f"Instance {loaded.index} of {operator} gets {loaded.factor:.1f} times as many records as "
        "its peers. The latency model assumes that load is balanced.",
        "Choose a key that spreads, or move hot key groups.",
        operator,
    )


def not_elastic(job: str, operator: str) -> Alert:
    return Alert(
        job,
        Severity.INFO,
        NOT_ELASTIC,
        f"The parallelism of {operator} is fixed: its waiting counts, and cannot be changed.",
        "Nothing has to be done as long as its constraints are met.",
        operator,
    )


def model_error(job: str, errors: Mapping[str, float], held: Iterable[str]) -> Alert:
    worst = max(errors, key=lambda name: errors[name])
    return Alert(
        job,
        Severity.INFO,
        MODEL_ERROR,
        f"Records waited for {worst} longer than predicted, by {errors[worst]:.0%} of the allowed "
        f"waiting. Scale-downs of {', '.join(held)} are held.",
        "Nothing has to be done; the model is tried again when the errors are old.",
        worst,
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
