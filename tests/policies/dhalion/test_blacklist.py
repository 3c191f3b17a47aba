"""If the resolver of a diagnosis is blacklisted, another one is drawn (section 5.1)."""

from dataclasses import replace

import pytest

from tests.policies.dhalion.clinic import Clinic, treated, words
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.simulated.character import heron
from trilithon.model.allocation import Allocation
from trilithon.model.change import Alert
from trilithon.policies.decision import Decision
from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.dhalion_policy import Examination
from trilithon.policies.dhalion.diagnosers import SLOW, UNDER
from trilithon.policies.dhalion.health import JobCase, LogEntry
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy

FULL, EMPTY = 1000.0, 10.0
PEERS = [instance_view(queue=EMPTY, parked_s=0) for _ in range(3)]
SLOW_ONE = [*PEERS, instance_view(queue=FULL, parked_s=200, service_s=0.01)]
# As fast as its peers, and full first: too few instances, or a little skew.
FULL_FIRST = [*PEERS, instance_view(queue=FULL, parked_s=200)]
RELIEVES = ("relieve_instance.weights", "relieve_instance.placement")
EVERYTHING = (*RELIEVES, "scale_up", "move_keys.256", "move_keys.spread")
SEEDS = range(8)


def failed(kind: str, *actions: str) -> ActionLog:
    """A log in which these actions were tried once each, in vain."""
    log = ActionLog()
    for action in actions:
        log = tried(log, kind, action, False)
    return log


def tried(log: ActionLog, kind: str, action: str, *verdicts: bool) -> ActionLog:
    """The log, in which an action was tried besides, with these verdicts."""
    for helped in verdicts:
        entry = LogEntry(action, 0.0, kind, "count", "1:x", {})
        log = log.added(entry, DhalionParameters()).evaluated(helped, 1000.0)
    return log


def action(case: JobCase, log: ActionLog, seed: int = 0) -> Decision:
    """The decision that changes something or tells people of it."""
    examination = Examination((ProvisioningPolicy(),), case, log, seed)
    examination.run()
    [decision] = [each for each in examination.decisions if each.changes]
    return decision


def drawn(case: JobCase, log: ActionLog) -> set[str]:
    return {action(case, log, seed).reason for seed in SEEDS}


def test_when_a_slow_instance_could_not_be_relieved_another_resolver_is_drawn_by_seed() -> None:
    case = case_of(operator_view("count", SLOW_ONE))
    assert drawn(case, ActionLog()) == {"RELIEVE_INSTANCE"}
    assert drawn(case, failed(SLOW, RELIEVES[0])) == {"RELIEVE_INSTANCE"}
    assert drawn(case, failed(SLOW, *RELIEVES)) == {"SCALE_UP", "MOVE_KEYS"}
    assert action(case, failed(SLOW, *RELIEVES), 3) == action(case, failed(SLOW, *RELIEVES), 3)


def test_when_more_instances_did_not_help_another_resolver_is_drawn_by_seed() -> None:
    case = case_of(operator_view("count", FULL_FIRST))
    assert drawn(case, ActionLog()) == {"SCALE_UP"}
    assert drawn(case, failed(UNDER, "scale_up")) == {"RELIEVE_INSTANCE", "MOVE_KEYS"}


GETS_LESS = [*PEERS, replace(SLOW_ONE[-1], rate_per_s=40.0, weight=0.4)]
LOWERED = Allocation("t/words", 1, {"count": 4}, weights={"count": (1.0, 1.0, 1.0, 0.4)})
ONCE_HELPED = tried(ActionLog(), SLOW, RELIEVES[0], True, False)


def changed(case: JobCase, log: ActionLog) -> set[str]:
    return {type(change).__name__ for change in action(case, log).changes}


def test_a_lower_weight_that_helped_once_and_then_failed_leads_on_to_a_spare_task() -> None:
    """It failed in half of the tries, and was neither blacklisted nor repeated nor replaced."""
    case = case_of(operator_view("count", GETS_LESS), allocation=LOWERED)
    assert "AvoidedTasksChange" in changed(case, ONCE_HELPED)
    equal = case_of(operator_view("count", SLOW_ONE))
    assert changed(equal, ONCE_HELPED) == {"WeightsChange"}


def test_without_a_spare_task_it_leads_on_to_another_resolver() -> None:
    case = case_of(operator_view("count", GETS_LESS), allocation=LOWERED, tasks=4)
    assert drawn(case, ActionLog()) == {"TELL"}
    assert drawn(case, ONCE_HELPED) == {"SCALE_UP", "MOVE_KEYS"}


def test_without_the_blacklist_a_step_of_relieving_is_repeated() -> None:
    parameters = DhalionParameters(blacklist="off")
    case = case_of(operator_view("count", SLOW_ONE), parameters=parameters)
    assert changed(case, failed(SLOW, *EVERYTHING)) == {"WeightsChange"}


def test_under_another_load_the_steps_of_relieving_begin_anew() -> None:
    log = failed(SLOW, *RELIEVES)
    same = case_of(operator_view("count", SLOW_ONE), emission=1200.0)
    assert drawn(same, log) == {"SCALE_UP", "MOVE_KEYS"}
    other = case_of(operator_view("count", SLOW_ONE), emission=1600.0)
    assert changed(other, log) == {"WeightsChange"}


def test_people_are_told_when_nothing_is_left() -> None:
    case = case_of(operator_view("count", SLOW_ONE))
    log = failed(SLOW, *EVERYTHING)
    assert drawn(case, log) == {"TELL"}
    [change] = action(case, log).changes
    assert isinstance(change, Alert)
    assert change.code == "SLOW_INSTANCE"


def test_while_an_alert_is_not_raised_again_the_job_stays_claimed() -> None:
    """Policies after this one would give it slots that cannot help."""
    case = case_of(operator_view("count", SLOW_ONE), fixed=frozenset({"count"}))
    raised = {"SLOW_INSTANCE count": case.scene.now_s - 100.0}
    examination = Examination((ProvisioningPolicy(),), case, ActionLog(), 0, raised)
    examination.run()
    assert examination.decisions == []
    assert [claim.job for claim in examination.claims] == ["t/words"]
    assert examination.alerts == raised


def test_what_cannot_be_relieved_is_told_at_once_if_nothing_was_tried_in_vain() -> None:
    case = case_of(operator_view("count", SLOW_ONE), fixed=frozenset({"count"}))
    assert drawn(case, ActionLog()) == {"TELL"}


def test_without_the_blacklist_nothing_is_drawn() -> None:
    parameters = DhalionParameters(blacklist="off")
    case = case_of(operator_view("count", FULL_FIRST), parameters=parameters)
    assert drawn(case, failed(UNDER, "scale_up")) == {"SCALE_UP"}


def with_a_small_skew(seed: int) -> Clinic:
    """One key has 5 % of the records, and by table 1 its instance looks slow."""
    character = heron(queue=2000, low_mark=0.5, transit_s=0.01, outage_s=30.0, restart_s=30.0)
    job = words(split=3, count=4, hot_key=0.05)
    return treated(
        job,
        1000.0,
        minutes=60,
        character=character,
        seed=seed,
        skew=1.4,
        diagnosis="table_1",
    )


@pytest.mark.parametrize(
    ("seed", "cure", "count"), [(0, "SCALE_UP", 5), (2, "MOVE_KEYS", 4), (3, "MOVE_KEYS", 4)]
)
def test_a_small_skew_that_looks_slow_is_found_through_the_blacklist(
    seed: int, cure: str, count: int
) -> None:
    """Section 6.4: the restart of the instance fails, and another resolver is drawn."""
    clinic = with_a_small_skew(seed)
    assert clinic.diagnoses() == ["SLOW_INSTANCE", "SLOW_INSTANCE"]
    assert clinic.reasons() == ["RELIEVE_INSTANCE", cure]
    assert clinic.parallelism["count"] == count
    said = [d.sentence for d in clinic.decisions if d.reason == "EVALUATED"]
    assert "did not help" in said[0]
    assert said[1].endswith("for slow instance helped.")
