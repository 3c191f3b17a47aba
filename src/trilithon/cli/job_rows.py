"""Turns jobs of the API into one row each, for tables and scripts."""

from collections.abc import Mapping
from typing import Any

from trilithon.cli.client import Client


def job_rows(daemon: Client) -> list[dict[str, Any]]:
    return [job_row(resource) for resource in daemon.get("/jobs")]


def job_row(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A job in one level: what a table has as columns."""
    metadata, status = resource["metadata"], resource["status"]
    return {
        "job": metadata["id"],
        "tenant": metadata["tenant"],
        "state": status["state"],
        "mode": metadata["mode"],
        "generation": metadata["generation"],
        "standing": status["standing"],
        "instances": status["slots"],
        "parallelism": status["parallelism"],
        "in_flight": status["in_flight"],
        "problem": status["problem"],
        "since_s": status["since_s"],
        "next_try_s": status["next_try_s"],
        "accepted_s": metadata["accepted_s"],
        "changed_s": status["changed_s"],
        "allocation_generation": status["allocation_generation"],
        "learned_gap_s": status["learned_gap_s"],
    }
