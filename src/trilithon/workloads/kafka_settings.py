"""Translates settings of Kafka's Java client for librdkafka: the same file serves both."""

import re
from collections.abc import Mapping
from typing import Final

_JAAS: Final = "sasl.jaas.config"
_OPTION: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
# Java's names for files of certificates; librdkafka reads PEM files by other names.
_JAVA_ONLY: Final = re.compile(r"^ssl\.(trust|key)store\.|^sasl\.(login|client)\.callback")
_NAMES: Final = {"ssl.truststore.location": "ssl.ca.location"}


def librdkafka_settings(java: Mapping[str, str]) -> dict[str, str]:
    """The settings as librdkafka has them: user and password of JAAS, and a PEM trust store. What
    it has no word for is left out.
    """
    settings: dict[str, str] = {}
    pem = java.get("ssl.truststore.type", "").upper() == "PEM"
    for name, value in java.items():
        if name == _JAAS:
            options = {key: re.sub(r"\\(.)", r"\1", text) for key, text in _OPTION.findall(value)}
            settings |= {f"sasl.{key}": text for key, text in options.items()}
        elif name in _NAMES and pem:
            settings[_NAMES[name]] = value
        elif not _JAVA_ONLY.match(name):
            settings[name] = value
    return settings
