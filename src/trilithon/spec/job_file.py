"""Loads a job from a YAML file or text; every problem is reported with its line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trilithon.errors import InvalidJob
from trilithon.model.job import Job
from trilithon.model.utility import UTILITIES, Utilities
from trilithon.spec.job_builder import build_job
from trilithon.spec.yaml_reader import Document, read_yaml, read_yaml_file


def load_job(path: Path, utilities: Utilities = UTILITIES) -> Job:
    """The job that a YAML file describes."""
    return load_document(path, utilities)[0]


def load_document(path: Path, utilities: Utilities = UTILITIES) -> tuple[Job, Document]:
    """The job that a YAML file describes, and the document, which knows the lines of its parts."""
    document = read_yaml_file(path)
    return _build(document, utilities), document


def parse_job(text: str | bytes, utilities: Utilities = UTILITIES) -> Job:
    """The job that a YAML text describes."""
    return _build(read_yaml(text), utilities)


def _build(document: Document, utilities: Utilities) -> Job:
    data: Mapping[str, Any] = document.data
    try:
        return build_job(data, utilities)
    except InvalidJob as error:
        located = [document.locate(problem) for problem in error.problems]
        # In the order of the file, so that its author can fix it from top to bottom.
        located.sort(key=lambda problem: problem.line or 0)
        raise InvalidJob(located, document.file or str(data.get("name", "the job"))) from None
