"""The benchmark of how far one machine goes: its short form."""

import pytest

from bench.scale import measure, parser


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_the_short_form_gives_figures_for_jobs_and_for_tasks_and_loses_nothing() -> None:
    short = "--jobs 1 2 --pmax 4 --job-pmax 2 --seconds 3 --warm-up 3 --boundaries 1"
    results, problems = measure(parser().parse_args(short.split()))
    assert problems == []
    assert list(results) == ["1 jobs", "2 jobs", "Pmax 4"]
    for title, result in results.items():
        assert result["lost"] == result["doubled"] == 0, title
        assert None not in result.values(), title
    assert (results["2 jobs"]["threads"] or 0) > (results["1 jobs"]["threads"] or 0)
    assert (results["Pmax 4"]["stall_ms_median"] or 0) > 0
