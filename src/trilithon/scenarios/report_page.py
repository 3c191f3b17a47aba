"""Renders the report of a run: one self-contained HTML file."""

import html as escaping
import json
from importlib import resources
from typing import Any, Final

from trilithon.scenarios.run_figures import JobFigures, RunFigures, first_latency_threshold
from trilithon.scenarios.scenario import Scenario

_FILES: Final = resources.files("trilithon.scenarios")
UPLOT: Final = "uplot-1.6.32"
# Longer series are thinned to every n-th round: a screen has no more columns.
MAX_POINTS: Final = 2000


def render(scenario: Scenario, figures: RunFigures) -> str:
    """The page, with its data and the script that plots it; nothing is fetched."""
    template = (_FILES / "report.html").read_text(encoding="utf-8")
    parts = {
        "@TITLE@": escaping.escape(scenario.name),
        "@ABOUT@": escaping.escape(scenario.about),
        "@STYLE@": (_FILES / "vendor" / f"{UPLOT}.min.css").read_text(encoding="utf-8"),
        "@UPLOT@": (_FILES / "vendor" / f"{UPLOT}.iife.min.js").read_text(encoding="utf-8"),
        "@LICENSE@": (_FILES / "vendor" / f"{UPLOT}.LICENSE").read_text(encoding="utf-8"),
        # `</` would end the script element.
        "@DATA@": json.dumps(_data(scenario, figures)).replace("</", "<\\/"),
    }
    for name, content in parts.items():
        template = template.replace(name, content)
    return template


def _data(scenario: Scenario, figures: RunFigures) -> dict[str, Any]:
    every = max(1, -(-len(figures.times_s) // MAX_POINTS))

    def thin(values: list[Any]) -> list[Any]:
        return values[::every]

    return {
        "name": scenario.name,
        "facts": _facts(scenario, figures),
        "times": thin(figures.times_s),
        "cluster": thin(figures.cluster),
        "load": {name: thin(line) for name, line in figures.load.items()},
        "cores": scenario.machines[0].cores,
        "jobs": [_job(name, of_job, thin) for name, of_job in figures.jobs.items()],
        "acted": [
            {
                "time": acted.time_s,
                "job": acted.decision.job,
                "text": acted.decision.sentence,
                "done": [outcome.status.value for outcome in acted.outcomes],
            }
            for acted in figures.acted
            if acted.outcomes
        ],
        "faults": [{"time": fault.at_s, "text": type(fault).__name__} for fault in scenario.faults],
        "summary": figures.summary(),
    }


def _facts(scenario: Scenario, figures: RunFigures) -> list[list[Any]]:
    policy = "none" if scenario.policy is None else scenario.policy.name
    return [
        ["engine", scenario.character.name],
        ["way", scenario.way.value],
        ["machines", f"{len(scenario.machines)} × {scenario.machines[0].cores:g} cores"],
        ["jobs", len(scenario.jobs)],
        ["length", f"{scenario.length_s:g} s"],
        ["seed", scenario.seed],
        ["policy", policy],
        ["SLO satisfaction", figures.overall],
    ]


def _job(name: str, figures: JobFigures, thin: Any) -> dict[str, Any]:
    threshold = first_latency_threshold(figures.job)
    key = "latency.mean" if threshold is None else threshold.key
    return {
        "name": name,
        "utility": thin(figures.utility),
        "max_utility": figures.job.intent.max_utility,
        "satisfaction": thin(figures.satisfaction),
        "latency": thin(figures.values[key]),
        "latency_name": key,
        "threshold": None if threshold is None else threshold.value,
        "input": thin(figures.input_per_s),
        "output": thin(figures.values["throughput"]),
        "lag": thin(figures.lag),
        "parallelism": {operator: thin(count) for operator, count in figures.parallelism.items()},
    }
