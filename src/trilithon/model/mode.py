"""Defines how far a controller may go with a job, or with machines."""

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"  # decide and act
    ADVISE = "advise"  # decide and say so, and leave acting to people
    OFF = "off"  # do not decide
