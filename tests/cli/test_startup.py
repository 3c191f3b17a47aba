"""Commands import what they use and no more: that is what their start takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from trilithon.cli.lazy import LazyCommand
from trilithon.cli.main import COMMANDS, app

HEAVY = {
    "confluent_kafka",
    "fastapi",
    "httpx2",
    "matplotlib",
    "numba",
    "numpy",
    "pyarrow",
    "pyspark",
    "scipy",
    "structlog",
    "uvicorn",
}
PROGRAM = """
import json, sys
from trilithon.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
json.dump(sorted(sys.modules), sys.stderr)
"""


def _imported(*arguments: str) -> list[str]:
    """The modules that are imported when a command has ended."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    modules: list[str] = json.loads(done.stderr.splitlines()[-1])
    return modules


def _packages(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_no_command_and_no_library_but_typer(argument: str) -> None:
    modules = _imported(argument)
    assert not _packages(modules) & (HEAVY | {"pydantic", "rich", "ruamel", "sqlglot"})
    own = {name for name in modules if name.startswith("trilithon.")}
    assert own == {
        "trilithon.cli",
        "trilithon.cli.lazy",
        "trilithon.cli.main",
        "trilithon.cli.state_option",
        "trilithon.errors",
    }
    assert len(modules) < 250


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_reading_a_job_imports_neither_numbers_nor_engines(command: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    _imported("init", str(job))
    modules = _imported(command, str(job))
    assert not _packages(modules) & HEAVY
    assert not [name for name in modules if name.startswith(("trilithon.control", "typer.rich"))]
    assert len(modules) < 800


def test_asking_a_daemon_imports_no_controller_and_no_engine() -> None:
    modules = _imported("job", "list", "--help")
    assert not _packages(modules) & (HEAVY - {"numpy"} | {"sqlglot"})
    layers = ("trilithon.control", "trilithon.engines")
    assert not [name for name in modules if name.startswith(layers)]


def _loaded() -> list[tuple[LazyCommand, str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = []
    for command in group.commands.values():
        assert isinstance(command, LazyCommand)
        found.append((command, command.loaded.help or ""))
    return found


def test_every_summary_is_the_first_sentence_of_the_commands_own_help() -> None:
    for command, text in _loaded():
        summary = COMMANDS[command.name or ""][1]
        assert f"{' '.join(text.split())} ".startswith(f"{summary} "), command.name
        assert command.loaded.name == command.name


def test_no_summary_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["--help"])
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
