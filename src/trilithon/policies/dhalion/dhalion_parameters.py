"""Defines the parameters of the policy `dhalion`: the paper's, and those that it leaves open."""

from dataclasses import dataclass
from typing import Final

from trilithon.policies.parameters import Parameters, choice, choices, parameter

# Health policies by name, with a summary. Users' policies are added when they are registered.
HEALTH_POLICY_NAMES: Final[dict[str, str]] = {"provisioning": "", "throughput_slo": ""}
# Parts of health policies by kind and name, with a summary; filled where they are registered.
PART_NAMES: Final[dict[str, dict[str, str]]] = {"detectors": {}, "diagnosers": {}, "resolvers": {}}
ON, OFF = "on", "off"


@dataclass(frozen=True)
class DhalionParameters(Parameters):
    health: str = choices(
        HEALTH_POLICY_NAMES,
        "the health policies, in the order of precedence: what is diagnosed and cured",
        "throughput_slo",
    )
    period_s: float = parameter(120.0, "s", "between two looks at a job (section 6.2)", least=1)
    window_s: float = parameter(
        300.0, "s", "over which symptoms are measured (section 4.1)", least=1
    )
    wait_s: float = parameter(
        180.0, "s", "after an action until symptoms are measured again (section 4.1)"
    )
    back_pressure: float = parameter(
        0.05, "ratio", "of the time that senders are held back above which it is a symptom", most=1
    )
    suspends: float = parameter(
        0.5,
        "ratio",
        "of the longest time before an instance from which on another belongs to set B (table 1)",
        least=0.01,
        most=1,
    )
    skew: float = parameter(
        1.15,
        "ratio",
        "of rates in B to those of the rest above which they differ; the paper's lies between 1.4 "
        "and 2.5 (table 2)",
        least=1,
    )
    queues: float = parameter(
        2.0, "ratio", "of queues in B to those of the rest above which they differ", least=1
    )
    slow: float = parameter(
        1.1, "ratio", "of service times in B to those of the rest above which B is slow", least=1
    )
    diagnosis: str = choice(
        "service_times",
        ("service_times", "table_1"),
        "whether service times decide if an instance is slow, or table 1 alone as in the paper",
    )
    over: str = choice(
        "predicted",
        ("predicted", "pending"),
        "how over-provisioning is noticed: by the utilisation after the removal, or by empty "
        "queues as in the paper",
    )
    full: float = parameter(
        0.7, "ratio", "predicted: utilisation to which a scale-down may lead", least=0.05, most=1
    )
    empty_s: float = parameter(
        0.1, "s", "pending: time that it takes to work off a queue that counts as almost empty"
    )
    growth: str = choice(
        ON, (ON, OFF), "whether queues and lags that grow are a symptom before back-pressure is"
    )
    growing: float = parameter(
        0.05, "ratio", "of the processing rate by which a queue or lag must grow", least=0.001
    )
    lasting: int = parameter(
        5,
        "1",
        "examinations in a row after which a lag that grows by less than `growing` is told",
        least=1,
    )
    creeping: float = parameter(
        0.005, "ratio", "of what the sources emit by which such a lag must grow", least=0.0001
    )
    scale_down: float = parameter(
        0.2, "ratio", "of its instances that an operator loses at most at once", least=0.01, most=1
    )
    source_factor: float = parameter(
        4.0, "ratio", "by which instances at the sources grow at most at once (6.3)", least=1
    )
    improvement: float = parameter(
        0.05, "ratio", "by which a figure must improve for an action to have helped"
    )
    blacklist: str = choice(ON, (ON, OFF), "whether actions that failed are not repeated (4.3)")
    failure_ratio: float = parameter(
        0.5, "ratio", "of failed to all tries above which an action is blacklisted", most=1
    )
    log_entries: int = parameter(100, "1", "entries of the action log that are kept per job")
    log_hours: float = parameter(0.0, "h", "for which entries of the action log are kept; 0: ever")
    alert_again_s: float = parameter(600.0, "s", "before the same alert is raised again", least=1)
    scale: str = choice(
        ON, (ON, OFF), "whether it changes parallelism, or leaves that to the policies after it"
    )
    detectors: str = choices(
        PART_NAMES["detectors"], "detectors that are added to those of the first health policy"
    )
    diagnosers: str = choices(
        PART_NAMES["diagnosers"], "diagnosers that are asked after those of the first health policy"
    )
    resolvers: str = choices(
        PART_NAMES["resolvers"],
        "resolvers that come before those of the first health policy for diagnoses that they cure",
    )
