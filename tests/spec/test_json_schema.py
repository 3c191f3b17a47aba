"""The committed JSON Schema is the one generated from the models."""

import json

from trilithon.spec import json_schema
from trilithon.spec.durations import format_duration, parse_seconds


def test_the_committed_schema_is_the_generated_one() -> None:
    """If this fails after a change of the fields, run `make reference`."""
    assert json_schema.committed() == json_schema.render()


def test_the_schema_names_the_fields_as_the_file_does() -> None:
    generated = json.loads(json_schema.committed())
    source = generated["$defs"]["SourceSpec"]["properties"]
    assert "schema" in source
    assert "schema_" not in source
    assert generated["additionalProperties"] is False


def test_spans_of_time_are_written_as_spark_writes_them() -> None:
    assert [
        parse_seconds(t) for t in ("200 ms", "10 seconds", "5 minutes", "1h", "1.5 s", "2 days")
    ] == [
        0.2,
        10,
        300,
        3600,
        1.5,
        172800,
    ]
    assert [format_duration(s) for s in (0.2, 10, 300, 7200, 90)] == [
        "200 milliseconds",
        "10 seconds",
        "5 minutes",
        "2 hours",
        "90 seconds",
    ]
