"""The JSON Schema is the one that the models make."""

import json

from trilithon.spec import schema
from trilithon.spec.durations import seconds, text


def test_the_committed_schema_is_the_generated_one() -> None:
    """If this fails after a change of the fields, `make reference` writes it anew."""
    assert schema.committed() == schema.render()


def test_the_schema_names_the_fields_as_the_file_does() -> None:
    generated = json.loads(schema.committed())
    source = generated["$defs"]["SourceForm"]["properties"]
    assert "schema" in source
    assert "schema_" not in source
    assert generated["additionalProperties"] is False


def test_spans_of_time_are_written_as_spark_writes_them() -> None:
    assert [seconds(t) for t in ("200 ms", "10 seconds", "5 minutes", "1h", "1.5 s", "2 days")] == [
        0.2, 10, 300, 3600, 1.5, 172800,
    ]  # fmt: skip
    assert [text(s) for s in (0.2, 10, 300, 7200, 90)] == [
        "200 milliseconds", "10 seconds", "5 minutes", "2 hours", "90 seconds",
    ]  # fmt: skip
