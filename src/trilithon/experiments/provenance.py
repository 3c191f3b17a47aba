"""Identifies what results were made by: the chosen numbers, and how the code behaves with them.

Results that the code would make again are kept when everything is run: so an interrupted run goes
on where it was, also with a later version that does the same. Whether it does is not told by its
text, of which most has nothing to do with a run, but by short check runs, compared to the last bit.
Pages, plots and verdicts are made of stored numbers and do not count.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Final

import trilithon
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.experiments.definition import Experiment
from trilithon.experiments.paper import Paper, PaperPart
from trilithon.experiments.papers import PAPERS
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run
from trilithon.experiments.seeds import with_seed
from trilithon.experiments.sensitivity import numbers
from trilithon.experiments.strategies import StrategyKind
from trilithon.scenarios.chosen import ChosenNumbers

_ROOT: Final = Path(trilithon.__file__).parent
# What draws and searches, and a paper's own modules: the check runs do not run these.
_MODULES: Final = ("demand", "mixes", "search", "seeds")
_PAPER_MODULES: Final = (
    "catalogue",
    "every_choice",
    "findings",
    "measures",
    "random_dags",
    "random_jobs",
    "set_ups",
)
# The parts of the chosen numbers that are about one engine.
_ENGINES: Final = {"storm", "heron", "nephele"}
# The lines of a run that are compared.
_LINES: Final = ("utility", "queue", "juice", "instances")
# How many experiments are checked, with a seed that no result has, and for how long: before the
# policy may act, and from then on.
_CHECKED: Final = 2
_CHECK_SEED: Final = 90
_CHECK_WARM_UP_S: Final = 300.0
_CHECK_S: Final = 420.0
# Single records take longer: so much less of them.
_EVENTS_SHARE: Final = 0.1


def fingerprint(paper: Paper, chosen: ChosenNumbers) -> str:
    """The same for the same chosen numbers, strategies and behaviour."""
    parts = (
        _source_digest(paper.name),
        repr(paper.strategies),
        repr(_numbers(paper, chosen)),
        _behaviour(paper.name, chosen.model_dump_json()),
    )
    return digest(*parts)


def part_fingerprint(paper: Paper, part: PaperPart, chosen: ChosenNumbers) -> str:
    """What results of a part with a page of its own are made by."""
    return fingerprint(paper, chosen) if part.made_by is None else part.made_by(chosen)


def digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def code_of(module: ModuleType) -> str:
    """The code of a module, or of all modules of a package, without comments and docstrings. It
    tells of changes that no short run comes across.
    """
    path = Path(str(module.__file__))
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return "\n".join(_bare_code(file.read_text(encoding="utf-8")) for file in files)


def _bare_code(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (ast.get_docstring(node, clean=False) is not None):
            del node.body[0]
    return ast.unparse(tree)


def _numbers(paper: Paper, chosen: ChosenNumbers) -> list[tuple[str, object]]:
    """The chosen numbers that the paper's runs can depend on."""
    builder, (first, *_) = paper.builder(chosen, paper.name), paper.experiments
    engine = builder.scenario(first, first.variants[0]).character.name
    other_engines = tuple(f"{name}." for name in _ENGINES - {engine})
    return sorted(
        (path, number)
        for path, number in numbers(chosen, paper.name).items()
        if not path.startswith(other_engines) and _of_its_jobs(paper, path)
    )


def _of_its_jobs(paper: Paper, path: str) -> bool:
    """Whether a number is not about a job that the paper does not have."""
    section, _, rest = path.partition(".")
    names = {str(topology) for topology in paper.topologies}
    return section not in {"profiles", "rates"} or rest.partition(".")[0] in names


@cache
def _behaviour(name: str, chosen: str) -> str:
    """The digest of the check runs. It takes some seconds, once per process."""
    paper = PAPERS[name].load()
    builder = paper.builder(ChosenNumbers.model_validate_json(chosen), name)
    runner = Runner(builder, paper.policy)
    digest = sha256()
    for experiment in _checked(paper.experiments):
        scenario = with_seed(builder.scenario(experiment, experiment.variants[0]), _CHECK_SEED)
        part = _EVENTS_SHARE if scenario.way is SimulationMode.EVENTS else 1.0
        warm_up_s = min(scenario.warm_up_s, part * _CHECK_WARM_UP_S)
        length_s = min(scenario.length_s, warm_up_s + part * _CHECK_S)
        short = replace(scenario, warm_up_s=warm_up_s, length_s=length_s)
        for strategy in paper.plotted_strategies:
            if strategy.kind is StrategyKind.POLICY:
                prepared = runner.prepared(short, strategy, {})
                digest.update(run_bits(runner.simulated(prepared, strategy, warm_up_s)))
    return digest.hexdigest()


def _checked(experiments: Sequence[Experiment]) -> Sequence[Experiment]:
    """The first, the last, and some between if there are to be more."""
    steps = min(_CHECKED, len(experiments))
    last = len(experiments) - 1
    return [experiments[round(i * last / max(1, steps - 1))] for i in range(steps)]


def run_bits(run: Run) -> bytes:
    """What of a run is compared."""
    lines = b"".join(run.lines[name].tobytes() for name in _LINES)
    actions = [(a.time_s, a.job, a.reason, a.changed, a.outage_s) for a in run.actions]
    return lines + repr((actions, run.final_instances)).encode()


@cache
def _source_digest(paper: str) -> str:
    digest = sha256()
    for path in _sources(paper):
        digest.update(f"{path.relative_to(_ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(paper: str) -> Iterator[Path]:
    """The files of the experiments. A paper of a test has no folder of its own."""
    experiments = _ROOT / "experiments"
    yield from (experiments / f"{module}.py" for module in _MODULES)
    own = (experiments / paper / f"{module}.py" for module in _PAPER_MODULES)
    yield from (path for path in own if path.exists())
