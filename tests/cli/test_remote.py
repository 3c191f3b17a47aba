"""Commands call the daemon that the environment names, and send a token only where it is safe."""

from pathlib import Path

import pytest

from trilithon.cli.client import _address, check_remote
from trilithon.errors import DaemonUnreachable, InvalidSetting
from trilithon.service.address import publish


def test_the_environment_names_a_daemon_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    with pytest.raises(DaemonUnreachable):
        _address(0.0)
    monkeypatch.setenv("TRILITHON_URL", "https://streams.example:8443/")
    monkeypatch.setenv("TRILITHON_TOKEN", "trl_1_2")
    assert _address(0.0) == ("https://streams.example:8443", "trl_1_2", None, False)


def test_a_token_alone_is_shown_to_the_daemon_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir()
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    publish(folder, "http://127.0.0.1:4711", "the owner's")
    assert _address(0.0) == ("http://127.0.0.1:4711", "the owner's", None, True)
    monkeypatch.setenv("TRILITHON_TOKEN", "trl_1_2")
    assert _address(0.0) == ("http://127.0.0.1:4711", "trl_1_2", None, True)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://streams.example", "t"),
        ("ftp://streams.example", "t"),
        ("streams.example", "t"),
        ("https://user:password@streams.example", "t"),
        ("https://streams.example", "a\nb"),
    ],
)
def test_an_address_where_others_could_read_the_token_is_refused(url: str, token: str) -> None:
    with pytest.raises(InvalidSetting):
        check_remote(url, token)
    check_remote("http://127.0.0.1:8080", token.replace("\n", ""))
