"""Defines the rows of the journal as values: jobs, specs, decisions, actions and events."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trilithon.model.action import Outcome, Status
from trilithon.policies.requests import ScalingRequest


class DesiredState(StrEnum):
    """What the owner of a job wants of it."""

    RUN = "run"
    PAUSE = "pause"
    DELETE = "delete"


class SpecStatus(StrEnum):
    """The status of a spec, or of an allocation."""

    WANTED = "wanted"  # recorded, not yet confirmed by the engine
    GOOD = "good"  # a spec under which the job became healthy
    ACCEPTED = "accepted"  # an allocation that the engine has
    FAILED = "failed"  # a spec under which the job did not become healthy
    REFUSED = "refused"  # an allocation that the engine refused
    PAST = "past"  # of a job that was deleted


@dataclass(frozen=True, slots=True)
class RoundRow:
    number: int
    time_s: float
    policy: str
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobRow:
    id: str
    wish: str
    mode: str
    accepted_s: float
    changed_s: float | None
    resumed_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpecRow:
    job: str
    generation: int
    body: Mapping[str, Any]
    checkpoint: str
    accepted_s: float
    status: SpecStatus
    message: str


@dataclass(frozen=True, slots=True)
class ActionRow:
    id: str
    decision: str | None
    job: str | None
    kind: str
    body: Mapping[str, Any]
    wanted_s: float
    started_s: float | None
    ended_s: float | None
    status: str | None
    code: str | None
    message: str | None
    took_s: float | None
    facets: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, str]:
        """By its number in the decision; what is left of a refused action comes right after it."""
        number = self.id.rpartition("#")[2]
        digits = number.rstrip("+")
        return (int(digits) if digits.isdigit() else 0, len(number) - len(digits), self.id)

    @property
    def generation(self) -> int | None:
        """The generation of the wanted state that it asks for."""
        return self.body["allocation"]["generation"] if self.kind == "reallocate" else None

    @property
    def outcome(self) -> Outcome | None:
        """None while the action is pending; unknown if it was started and has no end."""
        if self.status is None:
            return Outcome(Status.UNKNOWN) if self.started_s is not None else None
        return Outcome(Status(self.status), self.code or "", self.message or "", self.took_s)


@dataclass(frozen=True, slots=True)
class DecisionRow:
    id: str
    round: int
    time_s: float
    job: str | None
    policy: str
    reason: str
    sentence: str
    numbers: Mapping[str, float | None]
    causes: tuple[str, ...]
    expects: Mapping[str, Any] | None
    asked: tuple[Mapping[str, Any], ...]
    granted: tuple[Mapping[str, Any], ...]
    clips: tuple[Mapping[str, Any], ...]
    times: int
    last_s: float
    came: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EventRow:
    id: int
    time_s: float
    kind: str
    job: str | None
    text: str


def spec_of(row: sqlite3.Row) -> SpecRow:
    return SpecRow(
        job=row["job"],
        generation=row["generation"],
        body=json.loads(row["body"]),
        checkpoint=row["checkpoint"],
        accepted_s=row["accepted_s"],
        status=SpecStatus(row["standing"]),
        message=row["told"],
    )


def action_of(row: sqlite3.Row) -> ActionRow:
    given = {**dict(row), "body": json.loads(row["body"])}
    return ActionRow(**{**given, "facets": tuple(json.loads(row["facets"]))})


def decision_of(row: sqlite3.Row) -> DecisionRow:
    given: dict[str, Any] = dict(row)
    for name in ("numbers", "expects", "came"):
        given[name] = None if given[name] is None else json.loads(given[name])
    for name in ("causes", "asked", "granted", "clips"):
        given[name] = tuple(json.loads(given[name]))
    return DecisionRow(**given)


def event_of(row: sqlite3.Row) -> EventRow:
    return EventRow(**dict(row))


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request of people; `done` is None until it has ended."""

    request: ScalingRequest
    ended_s: float | None
    done: bool | None
    message: str
