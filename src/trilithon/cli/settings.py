"""Owns values of options: time spans, and settings as `key=value` or as lines of a file."""

from collections.abc import Sequence
from pathlib import Path

import typer

from trilithon.errors import FileUnreadable, InvalidSetting
from trilithon.service.private_files import check_private
from trilithon.spec.durations import parse_seconds

# Of settings whose values are secrets.
_SECRET_WORDS = ("password", "secret", "sasl.jaas.config", "key.pem")


def read_settings(path: Path) -> dict[str, str]:
    """Settings from a properties file: secrets do not belong on a command line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FileUnreadable(f"{path} cannot be read: {error}.", "Check the name.") from error
    settings = {}
    for line, written in enumerate(text.splitlines(), start=1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        key, equals, value = written.partition("=")
        if not equals or not key.strip():
            raise InvalidSetting(f"{path}:{line}: this is not a setting.", "Write key=value.")
        settings[key.strip()] = value.strip()
    if any(word in key.lower() for key in settings for word in _SECRET_WORDS):
        check_private(path, "Settings with secrets")
    return settings


def read_tenant_kafka(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of each tenant, from TENANT=FILE options. Files are private in every case."""
    settings = {}
    for tenant, file in given_settings(texts).items():
        check_private(Path(file), f"Kafka settings of {tenant}")
        settings[tenant] = read_settings(Path(file))
    return settings


def given_settings(texts: Sequence[str]) -> dict[str, str]:
    """Settings from NAME=VALUE options."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE.")
        settings[key.strip()] = value.strip()
    return settings


def given_numbers(texts: Sequence[str]) -> dict[str, int]:
    """Integers above 0 from NAME=NUMBER options."""
    numbers = {}
    for name, value in given_settings(texts).items():
        if not value.isdigit() or int(value) < 1:
            raise typer.BadParameter(f"{name}={value}: write NAME=NUMBER, with 1 or more.")
        numbers[name] = int(value)
    return numbers


def span(text: str) -> float:
    """The value of an option that is a span of time, as 60s or 5m; above 0."""
    try:
        span_s = parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
    if span_s <= 0:
        raise typer.BadParameter("it must be above 0.")
    return span_s
