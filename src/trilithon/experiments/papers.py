"""Registers the papers whose experiments can be run.

The command line imports this module at start-up: it must stay light.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trilithon.experiments.paper import Paper


@dataclass(frozen=True)
class RegisteredPaper:
    """A paper by its name; its catalogue is imported when it is asked for."""

    name: str
    title: str
    load: "Callable[[], Paper]"


def _henge() -> "Paper":
    from trilithon.experiments.henge.henge_paper import PAPER  # noqa: PLC0415

    return PAPER


def _stela() -> "Paper":
    from trilithon.experiments.stela.stela_paper import PAPER  # noqa: PLC0415

    return PAPER


def _dhalion() -> "Paper":
    from trilithon.experiments.dhalion.dhalion_paper import PAPER  # noqa: PLC0415

    return PAPER


def _latency() -> "Paper":
    from trilithon.experiments.latency.latency_paper import PAPER  # noqa: PLC0415

    return PAPER


PAPERS: Final[dict[str, RegisteredPaper]] = {
    entry.name: entry
    for entry in (
        RegisteredPaper("henge", "Henge (SoCC'18, and the report before it)", _henge),
        RegisteredPaper("stela", "Stela (IC2E'16)", _stela),
        RegisteredPaper("dhalion", "Dhalion (VLDB'17)", _dhalion),
        RegisteredPaper("latency", "latency guarantees in Nephele (ICDCS'15)", _latency),
    )
}
