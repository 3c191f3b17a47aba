"""`--state`: every command that uses the state folder takes it as an option."""

from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from tests.cli.test_commands import Terminal
from trilithon.cli.lazy import LazyCommand
from trilithon.cli.main import USES_STATE, app

# They read files and simulate: they have no state.
STATELESS = {
    "init",
    "validate",
    "plan",
    "advise",
    "replay",
    "simulate",
    "calibrate",
    "policy",
}


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    # The option sets the variable; this puts it back after the test.
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


def test_every_command_that_uses_the_state_folder_has_the_option() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) == USES_STATE | STATELESS
    for name in USES_STATE:
        lazy = group.commands[name]
        assert isinstance(lazy, LazyCommand)
        loaded = lazy.loaded
        leaves = list(loaded.commands.values()) if isinstance(loaded, TyperGroup) else [loaded]
        for leaf in leaves:
            assert "--state" in {o for p in leaf.params for o in p.opts}, f"{name} {leaf.name}"


def test_the_paths_of_a_broker_are_not_cut(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / ("a-long-name-" * 12)
    assert terminal.run("broker", "status", "--folder", str(folder)).code == 9
    assert str(folder / "broker.log") in terminal.out


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("job", "list"), "daemon"),
        (("top", "--once"), "daemon"),
        (("explain",), "daemon"),
        (("cluster", "status"), "daemon"),
        (("rescale", "j", "o=1"), "host.sock"),
        (("broker", "status", "-o", "json"), "broker"),
    ],
)
def test_the_folder_that_is_given_is_used(
    terminal: Terminal, arguments: tuple[str, ...], place: str, tmp_path: Path
) -> None:
    terminal.run(*arguments, "--state", "mine")
    assert str(tmp_path / "mine" / place) in terminal.out + terminal.err
