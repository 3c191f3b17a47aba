"""Detectors, diagnosers and resolvers by name: in a health policy, and in parameters."""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tests.policies.dhalion.clinic import treated, words
from trilithon import plugins
from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.dhalion import extensions, parts
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import Diagnosis, JobCase, Resolution, Symptom
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy
from trilithon.policies.dhalion.resolvers import alert

QUIET = "quiet"


class QuietDetector:
    """Finds jobs whose sources emit few records. Nobody cares otherwise."""

    name = QUIET

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        rate = case.view.emission_per_s or 0.0
        few = Symptom(QUIET, None, f"the sources emit {rate:.3g} records/s", {"rate": rate})
        return [few] if rate < 500 else []


class QuietDiagnoser:
    name = QUIET

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:  # noqa: ARG002 - the contract
        found = [symptom for symptom in symptoms if symptom.kind == QUIET]
        return [Diagnosis(QUIET, None, "the job is quiet", tuple(found))] if found else []


class QuietResolver:
    name = "tell_quiet"
    cures = (QUIET,)

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:  # noqa: ARG002 - the contract
        return alert(case, "QUIET_JOB", "The job is quiet.", "Stop it.", None)


OWN: dict[str, Any] = {
    "detectors": QuietDetector,
    "diagnosers": QuietDiagnoser,
    "resolvers": QuietResolver,
}


@pytest.fixture
def own() -> Iterator[dict[str, Any]]:
    """Parts found by entry points, and the parameters that add them."""
    for kind, each in OWN.items():
        group = f"trilithon.{kind}"
        point = EntryPoint(each.name, f"{__name__}:{each.__name__}", group)
        assert plugins.register(group, point) is None
    yield {kind: each.name for kind, each in OWN.items()}
    for kind, each in OWN.items():
        parts.unregister_part(kind, each.name)


def test_parameters_add_parts_to_a_health_policy(own: dict[str, Any]) -> None:
    quiet = words(split=2, count=3)
    assert treated(quiet, 400.0, minutes=10).alerts() == set()
    clinic = treated(quiet, 400.0, minutes=10, **own)
    assert clinic.alerts() == {"QUIET_JOB"}
    assert "QUIET" in clinic.diagnoses()


def test_a_health_policy_may_name_its_parts(own: dict[str, Any]) -> None:
    class Quiet(ProvisioningPolicy):
        name = "only_quiet"
        detectors: Any = (own["detectors"], "back_pressure")
        diagnosers: Any = (own["diagnosers"],)
        resolvers: Any = (own["resolvers"],)

        def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:  # noqa: ARG002 - all alike
            return (own["resolvers"],)

    extensions.register(Quiet())
    try:
        clinic = treated(words(split=2, count=3), 400.0, minutes=10, health="only_quiet")
        shown = extensions.health_policy("only_quiet")
    finally:
        extensions.unregister("only_quiet")
    assert clinic.alerts() == {"QUIET_JOB"}
    assert [part.name for part in shown.detectors] == [QUIET, "back_pressure"]


def test_an_added_resolver_comes_first_only_for_what_it_cures(own: dict[str, Any]) -> None:
    [policy] = extensions.chosen_policies(DhalionParameters(**own))
    case: Any = None
    quiet, under = (Diagnosis(kind, "count", "", ()) for kind in (QUIET, "under_provisioned"))
    assert policy.candidates(case, quiet)[0] == "tell_quiet"
    assert "tell_quiet" not in policy.candidates(case, under)


def test_built_in_parts_can_be_added_by_name_and_are_there_once() -> None:
    parameters = DhalionParameters(health="provisioning", detectors="emission, growth")
    [policy] = extensions.chosen_policies(parameters)
    names = [part.name for part in policy.detectors]
    own = ["back_pressure", "pending", "rate_skew", "growth", "lasting_growth"]
    assert names == [*own, "emission"]


@pytest.mark.parametrize("wrong", ["nobody", "growth, nobody", 7])
def test_a_name_that_nobody_registered_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidPolicy, match="'detectors'"):
        DhalionParameters(detectors=wrong)
    with pytest.raises(NotFound, match="resolvers is named 'nobody'"):
        parts.part("resolvers", "nobody")


class WithoutMethod:
    name = "without_method"


class TakenName(QuietDetector):
    name = "growth"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (WithoutMethod(), "no method `detect`"),
        (TakenName(), "two detectors named 'growth'"),
        (object(), "is named None"),
    ],
)
def test_a_part_is_checked_when_it_is_registered(part: Any, why: str) -> None:
    with pytest.raises(InvalidPolicy, match=why):
        parts.register_part("detectors", part)
    assert "without_method" not in parts.parts("detectors")


def test_a_part_says_what_it_does() -> None:
    assert parts.summary(QuietDetector()) == "Finds jobs whose sources emit few records"
