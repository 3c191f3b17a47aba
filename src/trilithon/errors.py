"""Owns the tree of exceptions and the one table from error to exit code.

    TrilithonError
    ├── InvalidJob          a job that breaks rules; carries every problem found
    ├── InvalidIntent       a utility or threshold that cannot be meant
    ├── InvalidRecording    a snapshot or series that cannot be read or contradicts itself
    ├── FileUnreadable      a file that is missing, too large or not what it claims to be
    ├── FileUnwritable      a file that cannot be written
    ├── FileExists          a file that would be overwritten
    └── NotFound            a name that nothing answers to: a job, a policy, a utility function

Each class has a stable `code`. Problems inside an `InvalidJob` have codes of their own, which are
listed in docs/reference/problems.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: what is wrong, where, and what to do about it."""

    code: str
    path: str
    message: str
    hint: str
    file: str | None = None
    line: int | None = None

    def located(self, file: str | None, line: int | None) -> "Problem":
        return Problem(self.code, self.path, self.message, self.hint, file, line)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        at = f"{place}: " if place else ""
        where = f" at {self.path}" if self.path else ""
        return f"{at}{self.code}{where}: {self.message} {self.hint}".rstrip()


class TrilithonError(Exception):
    """The root: whatever Trilithon refuses to do is one of these."""

    code: ClassVar[str] = "TRILITHON_ERROR"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message} {self.hint}".rstrip()


class InvalidJob(TrilithonError):
    code = "INVALID_JOB"
    exit_code = 3

    def __init__(self, problems: Sequence[Problem], name: str = "the job") -> None:
        count = len(problems)
        super().__init__(f"{name} has {count} problem{'s' if count != 1 else ''}.")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(f"  {problem}" for problem in self.problems)))


class InvalidIntent(TrilithonError):
    code = "INVALID_INTENT"
    exit_code = 3


class InvalidRecording(TrilithonError):
    code = "INVALID_RECORDING"
    exit_code = 5


class FileUnreadable(TrilithonError):
    code = "FILE_UNREADABLE"
    exit_code = 4


class FileUnwritable(TrilithonError):
    code = "FILE_UNWRITABLE"
    exit_code = 4


class FileExists(TrilithonError):
    code = "FILE_EXISTS"
    exit_code = 6


class NotFound(TrilithonError):
    code = "NOT_FOUND"
    exit_code = 7


EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "something went wrong that Trilithon has no name for",
    2: "the command line itself is wrong",
    InvalidJob.exit_code: "a job or an intent breaks rules",
    FileUnreadable.exit_code: "a file is missing, or cannot be read or written",
    InvalidRecording.exit_code: "a recording cannot be read or contradicts itself",
    FileExists.exit_code: "a file would be overwritten",
    NotFound.exit_code: "nothing answers to a name",
    8: "the Java part cannot be built",
    9: "Spark or Kafka cannot be started or reached, or a query does not start",
    130: "stopped by Ctrl-C",
}
