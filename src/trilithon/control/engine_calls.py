"""Calls an engine so that every call has an outcome, also when the engine does not answer."""

from collections.abc import Callable

from trilithon.control.failpoints import hit
from trilithon.errors import TrilithonError
from trilithon.model.action import Outcome, Status


def call_engine(name: str, call: Callable[[], Outcome]) -> Outcome:
    """The outcome of a call; UNKNOWN if the engine does not answer. `name` names the failpoints."""
    hit(f"engine.{name}.before")
    try:
        outcome = call()
    except TrilithonError as error:
        outcome = Outcome(Status.UNKNOWN, error.code, error.message)
    hit(f"engine.{name}.after")
    return outcome
