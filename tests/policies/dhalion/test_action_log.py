"""The action log, its purging, and the blacklist."""

from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import Diagnosis, LogEntry, action_key

PARAMETERS = DhalionParameters()
UNDER = Diagnosis("under_provisioned", "count", "", ())


def entry(time_s: float = 0.0) -> LogEntry:
    return LogEntry("scale_up", time_s, "under_provisioned", "count", "1:j", {"emission": 100.0})


def after(*verdicts: bool, parameters: DhalionParameters = PARAMETERS) -> ActionLog:
    log = ActionLog()
    for i, helped in enumerate(verdicts):
        log = log.added(entry(i), parameters).evaluated(helped, 100.0)
    return log


def test_only_the_latest_entries_are_kept() -> None:
    log = after(*[True] * 9, parameters=DhalionParameters(log_entries=4))
    assert [each.time_s for each in log.entries] == [5, 6, 7, 8]


def test_entries_older_than_so_many_hours_are_dropped() -> None:
    log, parameters = ActionLog(), DhalionParameters(log_hours=2)
    for hour in range(5):
        log = log.added(entry(3600.0 * hour), parameters).evaluated(True, None)
    assert [each.time_s / 3600 for each in log.entries] == [2, 3, 4]


def test_a_log_to_which_nothing_is_added_is_purged_too() -> None:
    parameters = DhalionParameters(log_hours=2)
    log = ActionLog().added(entry(0.0), parameters).evaluated(True, None)
    log = log.added(entry(3600.0), parameters)
    assert [each.time_s for each in log.purged(2.5 * 3600, parameters).entries] == [3600]
    open_entry = log.purged(9 * 3600, parameters).entries
    assert [each.time_s for each in open_entry] == [3600], "it is still to be evaluated"
    assert log.purged(9 * 3600, DhalionParameters()) == log


def blacklisted(
    log: ActionLog,
    *,
    emission: float = 100.0,
    action: str = "scale_up",
    operator: str = "count",
    parameters: DhalionParameters = PARAMETERS,
) -> bool:
    return action_key(UNDER.kind, operator, action) in log.blacklist(parameters, emission)


def test_an_action_that_failed_is_blacklisted_for_a_similar_diagnosis_only() -> None:
    log = after(False)
    assert blacklisted(log)
    assert not blacklisted(log, action="move_keys")
    assert not blacklisted(log, operator="split")


def test_the_ratio_of_failures_decides() -> None:
    assert not blacklisted(after(True, False))
    assert blacklisted(after(True, False, False))


def test_what_failed_less_often_was_tried_in_vain_nevertheless() -> None:
    assert after(True, False).tried_in_vain(UNDER, PARAMETERS, 100.0)
    assert not after(True, True).tried_in_vain(UNDER, PARAMETERS, 100.0)
    other = Diagnosis("under_provisioned", "split", "", ())
    assert not after(True, False).tried_in_vain(other, PARAMETERS, 100.0)


def test_the_blacklist_can_be_switched_off() -> None:
    off = DhalionParameters(blacklist="off")
    assert not blacklisted(after(False), parameters=off)
    assert not after(False).tried_in_vain(UNDER, off, 100.0)


def test_what_failed_under_another_load_may_be_tried_again() -> None:
    assert blacklisted(after(False), emission=120.0)
    assert not blacklisted(after(False), emission=200.0)
    assert after(False).tried_in_vain(UNDER, PARAMETERS, 120.0)
    assert not after(False).tried_in_vain(UNDER, PARAMETERS, 200.0)


def test_the_blacklist_outlives_the_entries() -> None:
    log = after(False, parameters=DhalionParameters(log_entries=1))
    log = log.added(entry(9.0), DhalionParameters(log_entries=1))
    assert blacklisted(log)


def test_it_comes_back_from_json_data() -> None:
    log = after(True, False)
    assert ActionLog.of(log.plain()) == log
