"""Owns the papers' jobs that come with the package, for simulated runs: their shape, not their work."""

from functools import cache
from importlib import resources
from typing import Final

from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

FOLDER: Final = resources.files("trilithon.scenarios") / "jobs"


@cache
def shipped_job_names() -> tuple[str, ...]:
    found = (entry.name for entry in FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def shipped_job(name: str) -> Job:
    """One of them by its name."""
    return parse_job((FOLDER / f"{name}.yaml").read_bytes())
