"""Short forms of the service's benchmarks: fuzzed requests, and streams and reads beside rounds."""

import pytest

from bench import service_fuzz, service_load


@pytest.mark.slow
def test_requests_that_make_no_sense_break_nothing() -> None:
    result = service_fuzz.fuzz(250, seed=7)
    assert result["broken"] == []
    assert result["alive"]
    assert result["errors_logged"] == 0
    assert {200, 401, 404, 422} <= set(result["statuses"])


@pytest.mark.slow
def test_streams_and_reads_are_served_beside_rounds_and_their_descriptors_return() -> None:
    result = service_load.measure(jobs=20, streams=20, per_s=20.0, seconds=5.0, turns=1)
    phases = result["phases"]
    assert phases["streams"]["clients"] == 20
    assert phases["streams"]["fds"] >= phases["alone"]["fds"] + 20
    assert phases["and reads"]["rounds"] > 0
    # The two that read nothing are still connected at their own end: the daemon has ended them.
    assert phases["after"]["clients"] == 0
    assert phases["after"]["fds"] <= phases["alone"]["fds"]
    assert result["snapshots"] > 0
    assert result["reads"] > 0
    assert result["failures"] == []
