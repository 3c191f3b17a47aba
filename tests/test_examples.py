"""The examples are good jobs, and the commands beside them exist as they are written there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from ruamel.yaml import YAML
from typer.testing import CliRunner

from trilithon.cli.main import app
from trilithon.control.rules import Rules

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
RULES = "rules.yaml"
JOBS = sorted(
    path
    for folder in FOLDERS
    for path in (*folder.glob("*.yaml"), *folder.glob("*.py"))
    if path.name != RULES
)


def commands(page: Path) -> Iterator[list[str]]:
    """What stands after a prompt in the page, without the comments."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            yield shlex.split(line, comments=True)


WRITTEN = [
    pytest.param(folder, command, id=f"{folder.name}: {' '.join(command)}")
    for folder in FOLDERS
    for command in commands(folder / "README.md")
]


def test_every_example_has_a_page() -> None:
    assert [folder.name for folder in FOLDERS] == [
        "in-python",
        "one-job",
        "own-policy",
        "two-tenants",
    ]
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for folder in FOLDERS:
        assert f"({folder.name}/README.md)" in index


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.relative_to(EXAMPLES)))
def test_every_job_is_valid_and_can_be_planned(job: Path) -> None:
    checked = CliRunner().invoke(app, ["validate", str(job)])
    assert (checked.exit_code, checked.stdout[:2]) == (0, "ok")
    planned = CliRunner().invoke(app, ["plan", str(job)])
    assert planned.exit_code == 0
    # On Spark's default master there are 64 tasks, and the jobs of a folder are to fit together.
    assert "Spark tasks" in planned.stdout


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rules_are_those_that_serve_takes(folder: Path) -> None:
    rules = folder / RULES
    if rules.exists():
        Rules.of(YAML(typ="safe").load(rules))


@pytest.mark.parametrize(("folder", "command"), WRITTEN)
def test_every_command_exists_with_its_options(
    folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line is parsed as a terminal would, and not run."""
    monkeypatch.chdir(folder)
    assert command[0] == "trilithon"
    parsed: Any = typer.main.get_command(app)
    arguments = command[1:]
    while hasattr(parsed, "commands"):
        parsed = parsed.commands[arguments.pop(0)]
    parsed.make_context(" ".join(command), arguments)
    for argument in arguments:
        if argument.endswith((".yaml", ".py")):
            assert Path(argument).exists()


def test_every_file_of_an_example_is_used_by_its_page() -> None:
    for folder in FOLDERS:
        words = {word for command in commands(folder / "README.md") for word in command}
        for path in folder.iterdir():
            assert path.name in words or path.suffix not in {".yaml", ".py"}
