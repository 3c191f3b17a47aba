"""Owns values of options: time spans, and settings as `key=value` or as lines of a file."""

from collections.abc import Sequence
from pathlib import Path

import typer

from trilithon.errors import FileUnreadable, InvalidSetting
from trilithon.spec.durations import parse_seconds


def read_settings(path: Path) -> dict[str, str]:
    """Settings from a properties file: secrets do not belong on a command line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FileUnreadable(f"{path} cannot be read: {error}.", "Check the name.") from error
    found = {}
    for line, written in enumerate(text.splitlines(), start=1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        key, equals, value = written.partition("=")
        if not equals or not key.strip():
            raise InvalidSetting(f"{path}:{line}: this is not a setting.", "Write key=value.")
        found[key.strip()] = value.strip()
    return found


def given_settings(texts: Sequence[str]) -> dict[str, str]:
    """Settings as they stand on a command line."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE.")
        found[key.strip()] = value.strip()
    return found


def given_numbers(texts: Sequence[str]) -> dict[str, int]:
    """The same where the values are whole numbers above 0."""
    found = {}
    for name, value in given_settings(texts).items():
        if not value.isdigit() or int(value) < 1:
            raise typer.BadParameter(f"{name}={value}: write NAME=NUMBER, with 1 or more.")
        found[name] = int(value)
    return found


def span(text: str) -> float:
    """A span of time in an option, above 0."""
    try:
        found = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
    if found <= 0:
        raise typer.BadParameter("it must be above 0.")
    return found
