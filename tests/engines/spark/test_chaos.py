"""The benchmark that disturbs a job again and again: its short form."""

import pytest

from bench.chaos import measure, parser, wrong


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_the_short_form_disturbs_a_diamond_and_loses_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kills = "--rescales 1 --executor-kills 1 --broker-kills 0 --driver-kills 0"
    short = f"--shape diamond --records 1000 --rate 100 {kills}"
    results = measure(parser().parse_args(short.split()))
    assert list(results) == ["diamond"]
    result = results["diamond"]
    assert wrong(result) == []
    assert result["arrived_distinct"] == 2 * result["sent"] >= 2000
    # What an executor had not committed came again: the ids that remove doubles were put to use.
    assert result["doubles"] > 0
    happened = {item["kind"]: item for item in result["disturbances"]}
    assert happened.keys() == {"rescale", "executor"}
    printed = capsys.readouterr().out
    for kind, item in happened.items():
        assert item["flows_again_s"] > 0
        assert f"{kind:<9} after {item['after']:>7} records" in printed
