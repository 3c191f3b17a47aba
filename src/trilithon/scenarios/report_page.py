"""Owns the page of a run: one HTML file with everything in it, to be opened from a disk or a mail."""

import html as escaping
import json
from importlib import resources
from typing import Any, Final

from trilithon.scenarios.run_figures import Figures, JobFigures, first_latency_threshold
from trilithon.scenarios.scenario import Scenario

_FILES: Final = resources.files("trilithon.scenarios")
UPLOT: Final = "uplot-1.6.32"
# More points than a screen has columns are thinned: every n-th round is drawn.
MOST_POINTS: Final = 2000


def render(scenario: Scenario, figures: Figures) -> str:
    """The page. A script in it draws the data that stands beside it; nothing is fetched."""
    template = (_FILES / "report.html").read_text(encoding="utf-8")
    parts = {
        "@TITLE@": escaping.escape(scenario.name),
        "@ABOUT@": escaping.escape(scenario.about),
        "@STYLE@": (_FILES / "vendor" / f"{UPLOT}.min.css").read_text(encoding="utf-8"),
        "@UPLOT@": (_FILES / "vendor" / f"{UPLOT}.iife.min.js").read_text(encoding="utf-8"),
        "@LICENSE@": (_FILES / "vendor" / f"{UPLOT}.LICENSE").read_text(encoding="utf-8"),
        # Inside a script only `</` could end it.
        "@DATA@": json.dumps(_data(scenario, figures)).replace("</", "<\\/"),
    }
    for name, content in parts.items():
        template = template.replace(name, content)
    return template


def _data(scenario: Scenario, figures: Figures) -> dict[str, Any]:
    every = max(1, -(-len(figures.times_s) // MOST_POINTS))

    def thin(values: list[Any]) -> list[Any]:
        return values[::every]

    return {
        "name": scenario.name,
        "facts": _facts(scenario, figures),
        "times": thin(figures.times_s),
        "cluster": thin(figures.cluster),
        "load": {name: thin(line) for name, line in figures.load.items()},
        "cores": scenario.machines[0].cores,
        "jobs": [_job(name, lines, thin) for name, lines in figures.jobs.items()],
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


def _facts(scenario: Scenario, figures: Figures) -> list[list[Any]]:
    rule = "none" if scenario.policy is None else scenario.policy.name
    return [
        ["engine", scenario.character.name],
        ["way", scenario.way.value],
        ["machines", f"{len(scenario.machines)} × {scenario.machines[0].cores:g} cores"],
        ["jobs", len(scenario.jobs)],
        ["length", f"{scenario.length_s:g} s"],
        ["seed", scenario.seed],
        ["policy", rule],
        ["SLO satisfaction", figures.overall],
    ]


def _job(name: str, lines: JobFigures, thin: Any) -> dict[str, Any]:
    bound = first_latency_threshold(lines.job)
    key = "latency.mean" if bound is None else bound.key
    return {
        "name": name,
        "utility": thin(lines.utility),
        "max_utility": lines.job.intent.max_utility,
        "satisfaction": thin(lines.satisfaction),
        "latency": thin(lines.values[key]),
        "latency_name": key,
        "threshold": None if bound is None else bound.value,
        "input": thin(lines.input_per_s),
        "output": thin(lines.values["throughput"]),
        "lag": thin(lines.lag),
        "parallelism": {operator: thin(count) for operator, count in lines.parallelism.items()},
    }
