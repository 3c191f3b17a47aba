"""Defines the parameters of the policy `latency`: the paper's, and those that it leaves open."""

from dataclasses import dataclass

from trilithon.policies.parameters import Parameters, choice, parameter

# What to do about output batching where the engine can change it without an outage.
ADAPTIVE, UNCHANGED = "adaptive", "unchanged"


@dataclass(frozen=True)
class LatencyParameters(Parameters):
    interval_s: float = parameter(
        5.0, "s", "adjustment interval: window of measurements, and time between rounds", least=1
    )
    inactive: int = parameter(2, "intervals", "without a decision after a scale-up (V)")
    waiting_share: float = parameter(
        0.2,
        "ratio",
        "of the time left after the operators' work that records may wait in queues (IV-F)",
        least=0.01,
        most=1,
    )
    waiting_share_alone: float = parameter(
        0.5,
        "ratio",
        "the same where batching cannot give way at once; 0.2 is the paper's way",
        least=0.01,
        most=1,
    )
    batching: str = choice(
        ADAPTIVE,
        (ADAPTIVE, UNCHANGED),
        "adaptive: edges gather records for as long as the rest of that time allows (IV-F), if the "
        "engine can change that live or at the end of a batch",
    )
    bottleneck: float = parameter(
        0.95, "ratio", "ρmax: utilisation from which an operator is a bottleneck (IV-E)", most=1
    )
    highest_utilisation: float = parameter(
        0.85, "ratio", "to which Rebalance may lead an operator", least=0.05, most=1
    )
    least_coefficient: float = parameter(
        0.5, "ratio", "below which the fitted e is not trusted; 0 is the paper's way"
    )
    error_bound: float = parameter(
        0.5,
        "ratio",
        "of the allowed waiting by which measured may exceed predicted waiting before scale-downs "
        "are held",
    )
    error_keep_s: float = parameter(
        600.0, "s", "for which an error of the model holds scale-downs", least=1
    )
    waiting_keep_s: float = parameter(
        120.0,
        "s",
        "for which waiting measured with fewer instances counts when instances would go; 0 is the "
        "paper's way",
    )
    uneven: float = parameter(
        1.5,
        "ratio",
        "of one instance's service time or rate to that of its peers above which an assumption is "
        "broken (IV-A)",
        least=1,
    )
    alert_again_s: float = parameter(600.0, "s", "before the same alert is raised again", least=1)
