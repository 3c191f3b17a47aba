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
    result = service_load.measure(jobs=20, streams=20, per_s=20.0, seconds=6.0, settle_s=10.0)
    phases = result["phases"]
    assert phases["under load"]["clients"] >= 18
    assert phases["under load"]["fds"] >= phases["alone"]["fds"] + 20
    # Two clients that read nothing may still be there: the full form waits until they are ended.
    assert phases["after"]["fds"] <= phases["alone"]["fds"] + 2
    assert result["snapshots"] > 0
    assert result["reads"] > 0
    assert result["failures"] == []
