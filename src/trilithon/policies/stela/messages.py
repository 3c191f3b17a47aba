"""Defines what the policy `stela` says: reason codes and sentences."""

from collections import Counter
from typing import Final

from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.stela.scaling_plan import EXCHANGED, ScalingPlan

MACHINES_WANTED: Final = "MACHINES_REQUESTED"
SCALE_OUT: Final = "SCALE_OUT"
SCALE_IN: Final = "SCALE_IN"
REFUSED: Final = "REQUEST_REFUSED"
MEASURED: Final = "PREDICTION_CHECKED"
SUPERSEDED: Final = "PREDICTION_SUPERSEDED"


def machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def request_words(request: ScalingRequest) -> str:
    """Such as "scale-in by 2 machines" or "scale-in of m1, m3"."""
    if request.machine_names:
        return f"{request.kind.words} of {', '.join(request.machine_names)}"
    return f"{request.kind.words} by {machines(request.machines)}"


def plan_sentence(request: ScalingRequest, plan: ScalingPlan, strategy: str) -> str:
    if request.kind is ScalingKind.IN:
        moved = sum(len(by) for by in plan.places.values())
        by = "by the lowest ETPSum" if strategy == "stela" else f"by strategy {strategy}"
        by = "as named" if request.machine_names else by
        return (
            f"{machines(request.machines)} back on demand: {', '.join(plan.removed)}, {by}"
            f"{exchange_words(plan)}. Instances of {moved} operators move to the machines that "
            "stay."
        )
    given: dict[str, int] = {}
    for step in plan.steps:
        given[step.subject] = given.get(step.subject, 0) + 1
    if not plan.counts:
        return (
            f"{machines(request.machines)} more on demand, by strategy {strategy}: instances of "
            f"{sum(len(by) for by in plan.places.values())} operators move."
        )
    shares = ", ".join(f"{count} for {subject}" for subject, count in given.items())
    by = "ETP" if strategy == "stela" else f"strategy {strategy}"
    return (
        f"{machines(request.machines)} more on demand; instances by {by}{exchange_words(plan)}: "
        f"{shares}."
    )


def exchange_words(plan: ScalingPlan) -> str:
    """What was not chosen by the strategy's own measure, and what that gains."""
    if not plan.exchanged:
        return ""
    gain = plan.exchange_gain
    more = "" if gain is None else f", {100 * gain:+.1f} %"
    pairs = Counter(f"{step.subject} instead of {step.instead_of}" for step in plan.exchanged)
    each = ", ".join(f"{count} × {pair}" if count > 1 else pair for pair, count in pairs.items())
    return f", then {EXCHANGED}{more} ({each})"


def outcome_sentence(predicted: float, realised: float, before: float) -> str:
    off = f" ({100 * (realised / predicted - 1):+.1f} %)" if predicted else ""
    return (
        f"Throughput was {before:.4g}/s before the action, {predicted:.4g}/s was predicted, and "
        f"{realised:.4g}/s is measured{off}."
    )


def superseded_sentence(predicted: float, why: str) -> str:
    return (
        f"The prediction of {predicted:.4g}/s is superseded: {why} before the throughput was "
        "measured."
    )
