"""Generates the JSON Schema of a job file, with which editors complete and check it."""

import json
from importlib import resources
from typing import Any

from trilithon.spec.fields import JobSpec

FILE = "job.schema.json"


def generate() -> dict[str, Any]:
    schema = JobSpec.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Trilithon job",
    }


def render() -> str:
    return json.dumps(generate(), indent=2, ensure_ascii=False) + "\n"


def committed() -> str:
    """The schema as shipped in the package."""
    return (resources.files("trilithon.spec") / FILE).read_text(encoding="utf-8")
