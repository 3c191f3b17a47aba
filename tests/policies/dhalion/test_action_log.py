"""The action log, its purging, and the blacklist."""

from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import Diagnosis, LogEntry

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


def test_an_action_that_failed_is_blacklisted_for_a_similar_diagnosis_only() -> None:
    log = after(False)
    assert log.blacklisted(UNDER, "scale_up", PARAMETERS, 100.0)
    assert not log.blacklisted(UNDER, "move_keys", PARAMETERS, 100.0)
    other = Diagnosis("under_provisioned", "split", "", ())
    assert not log.blacklisted(other, "scale_up", PARAMETERS, 100.0)


def test_the_ratio_of_failures_decides() -> None:
    assert not after(True, False).blacklisted(UNDER, "scale_up", PARAMETERS, 100.0)
    assert after(True, False, False).blacklisted(UNDER, "scale_up", PARAMETERS, 100.0)


def test_the_blacklist_can_be_switched_off() -> None:
    assert not after(False).blacklisted(
        UNDER, "scale_up", DhalionParameters(blacklist="off"), 100.0
    )


def test_what_failed_under_another_load_may_be_tried_again() -> None:
    assert after(False).blacklisted(UNDER, "scale_up", PARAMETERS, 120.0)
    assert not after(False).blacklisted(UNDER, "scale_up", PARAMETERS, 200.0)


def test_the_blacklist_outlives_the_entries() -> None:
    log = after(False, parameters=DhalionParameters(log_entries=1))
    log = log.added(entry(9.0), DhalionParameters(log_entries=1))
    assert log.blacklisted(UNDER, "scale_up", PARAMETERS, 100.0)


def test_it_comes_back_from_json_data() -> None:
    log = after(True, False)
    assert ActionLog.of(log.plain()) == log
