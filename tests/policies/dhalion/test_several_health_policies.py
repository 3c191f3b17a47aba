"""Several health policies for one job: one invasive action at a time, alerts beside it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.policies.dhalion.clinic import Clinic, treated, words
from tests.policies.dhalion.test_parts import QuietDetector, QuietDiagnoser, QuietResolver
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.errors import InvalidPolicy
from trilithon.model.change import ParallelismChange
from trilithon.policies.dhalion import extensions
from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.dhalion_policy import Examination
from trilithon.policies.dhalion.health import Diagnosis, JobCase, LogEntry
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy


class QuietPolicy:
    """Tells people of jobs with few records, and changes nothing."""

    name = "quiet_jobs"
    summary = "alerts only"
    detectors: Any = (QuietDetector(),)
    diagnosers: Any = (QuietDiagnoser(),)
    resolvers: Any = (QuietResolver(),)

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:  # noqa: ARG002 - all alike
        return ("tell_quiet",)

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:  # noqa: ARG002 - it never acts
        return None


class StrictPolicy(ProvisioningPolicy):
    """As the built-in one, and no action has ever helped."""

    name = "strict"

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:  # noqa: ARG002 - never
        return False


class FailingDetector:
    name = "failing"

    def detect(self, case: JobCase) -> Sequence[Any]:
        raise ValueError(f"nothing is known of {case.name}")


class FailingResolver:
    name = "tell_quiet"
    cures = ("quiet",)

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Any:
        raise ValueError(f"no cure of {diagnosis.kind} for {case.name}")


class FailingPolicy(QuietPolicy):
    """Raises when it detects."""

    name = "failing"
    detectors: Any = (FailingDetector(),)


class UnresolvedPolicy(QuietPolicy):
    """Raises when it resolves."""

    name = "unresolved"
    resolvers: Any = (FailingResolver(),)


class UnjudgedPolicy(ProvisioningPolicy):
    """As the built-in one, and raises when it judges."""

    name = "unjudged"

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        raise ValueError(f"{entry.action} of {case.name}")


OWN = (QuietPolicy, StrictPolicy, FailingPolicy, UnresolvedPolicy, UnjudgedPolicy)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for policy in OWN:
        extensions.register(policy())
    yield
    for policy in OWN:
        extensions.unregister(policy.name)


@pytest.mark.parametrize("health", ["throughput_slo, quiet_jobs", "quiet_jobs,throughput_slo"])
def test_a_policy_with_alerts_only_runs_beside_one_that_acts(health: str) -> None:
    """Eight counters are too many for 400 records/s, and these are few."""
    clinic = treated(words(split=3, count=8), 400.0, minutes=6, health=health)
    assert set(clinic.reasons()) == {"SCALE_DOWN", "TELL"}
    assert clinic.alerts() == {"QUIET_JOB"}
    assert len({result.time_s for result in clinic.results}) == 1


def actions(clinic: Clinic) -> list[float]:
    """When something was changed, once for each change."""
    return [
        result.time_s
        for result in clinic.results
        for change in result.decision.changes
        if isinstance(change, ParallelismChange)
    ]


def test_two_that_act_take_one_action_at_a_time_and_diagnose_the_same_once() -> None:
    both = treated(words(split=1, count=1), 1200.0, minutes=25, health="provisioning, strict")
    alone = treated(words(split=1, count=1), 1200.0, minutes=25, health="provisioning")
    assert len(actions(both)) >= 2
    assert len(set(actions(both))) == len(actions(both))
    assert [d.sentence for d in both.decisions] == [d.sentence for d in alone.decisions]


@pytest.mark.parametrize(
    ("policy", "helped"), [("provisioning", True), ("strict", False), ("gone", True)]
)
def test_an_action_is_judged_by_the_policy_that_took_it(policy: str, helped: bool) -> None:
    """By the first if that one was taken out of the parameters meanwhile."""
    figures = {"operator_back_pressure": 0.5, "emission": 500.0}
    entry = LogEntry("scale_up", 0.0, "under_provisioned", "count", "1:x", figures, policy=policy)
    case = case_of(operator_view("count", [instance_view()], 0.0))
    examination = Examination((ProvisioningPolicy(), StrictPolicy()), case, ActionLog((entry,)), 0)
    examination.run()
    assert examination.log.entries[0].helped is helped


def test_the_log_says_whose_action_it_was() -> None:
    views = [instance_view(queue=1000.0, parked_s=50) for _ in range(2)]
    case = case_of(operator_view("count", views))
    examination = Examination((QuietPolicy(), StrictPolicy()), case, ActionLog(), 0)
    examination.run()
    assert [entry.policy for entry in examination.log.entries] == ["strict"]


def test_at_least_one_health_policy_is_named_and_none_twice() -> None:
    twice = DhalionParameters(health="strict, quiet_jobs, strict")
    assert [each.name for each in extensions.chosen_policies(twice)] == ["strict", "quiet_jobs"]
    for wrong in ("", " , ", "strict, nobody"):
        with pytest.raises(InvalidPolicy, match="'health'"):
            DhalionParameters(health=wrong)


@pytest.mark.parametrize("own", ["failing", "unresolved"])
@pytest.mark.parametrize("order", ["{0}, throughput_slo", "throughput_slo, {0}"])
def test_a_policy_that_raises_is_left_out_with_an_alert(own: str, order: str) -> None:
    """It kept all jobs from being examined."""
    clinic = treated(words(split=3, count=8), 400.0, minutes=6, health=order.format(own))
    assert "SCALE_DOWN" in clinic.reasons()
    assert clinic.alerts() == {"HEALTH_POLICY_FAILED"}
    (said,) = {d.sentence for d in clinic.decisions if d.reason == "HEALTH_POLICY_FAILED"}
    assert said.startswith(f"The health policy {own} failed, and is left out: ValueError: ")


def test_a_policy_that_cannot_judge_its_action_does_not_stop_the_others() -> None:
    clinic = treated(words(split=3, count=8), 400.0, minutes=30, health="unjudged, quiet_jobs")
    assert clinic.reasons().count("SCALE_DOWN") == 1
    assert clinic.alerts() == {"HEALTH_POLICY_FAILED", "QUIET_JOB"}
