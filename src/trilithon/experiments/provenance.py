"""Identifies the code and the chosen numbers that results were made by.

Results that this code would make again are kept when everything is run: so an interrupted run goes
on where it was. Pages, plots and verdicts are made of stored numbers and do not count.
"""

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import trilithon
from trilithon.experiments.paper import Paper
from trilithon.scenarios.chosen import ChosenNumbers

_ROOT: Final = Path(trilithon.__file__).parent
_PACKAGES: Final = (
    "model",
    "measures",
    "policies",
    "contract",
    "control",
    "engines/simulated",
    "scenarios",
    "workloads",
)
# What decides a run or measures it, of the experiments' own modules.
_MODULES: Final = (
    "definition",
    "demand",
    "experiment_result",
    "mixes",
    "run_series",
    "runner",
    "runs",
    "scenario_builder",
    "search",
    "seeds",
    "sensitivity",
)
_PAPER_MODULES: Final = ("catalogue", "findings", "measures", "random_jobs", "set_ups")


def fingerprint(paper: Paper, chosen: ChosenNumbers) -> str:
    """The same for the same code, strategies and chosen numbers."""
    parts = (_source_digest(paper.name), repr(paper.strategies), chosen.model_dump_json())
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def _source_digest(paper: str) -> str:
    digest = sha256()
    for path in _sources(paper):
        digest.update(f"{path.relative_to(_ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(paper: str) -> Iterator[Path]:
    """The files that a run depends on. A paper of a test has no folder of its own."""
    for package in _PACKAGES:
        yield from sorted((_ROOT / package).rglob("*.py"))
    experiments = _ROOT / "experiments"
    yield from (experiments / f"{module}.py" for module in _MODULES)
    own = (experiments / paper / f"{module}.py" for module in _PAPER_MODULES)
    yield from (path for path in own if path.exists())
