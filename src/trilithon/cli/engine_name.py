"""Names the engines, for options; without importing one."""

from enum import StrEnum


class EngineName(StrEnum):
    """The engines, as `--engine` names them."""

    SPARK = "spark"
    SIMULATED = "simulated"
