"""Owns the tree of exceptions and the one table from error to exit code.

    TrilithonError
    ├── InvalidJob          a job that breaks rules; carries every problem found
    │   └── InvalidScenario     a scenario that breaks rules
    ├── InvalidIntent       a utility or threshold that cannot be meant
    ├── InvalidPolicy       a parameter of a policy, or a rule of the guard, that cannot be meant
    ├── InvalidRecording    a snapshot or series that cannot be read or contradicts itself
    ├── FileUnreadable      a file that is missing, too large or not what it claims to be
    ├── FileUnwritable      a file that cannot be written
    ├── FileExists          a file that would be overwritten
    ├── NotFound            a name that nothing answers to: a job, a policy, a utility function
    ├── InvalidAllocation   wanted state that no engine could bring about
    │   ├── BatchingUnsupported     a batching time per edge, on an engine that has one for all jobs
    │   ├── TooManyInstances        a parallelism above the tasks that an operator holds
    │   ├── UnknownMachine          a placement on a machine that the engine does not have
    │   └── WeightsWithPlacement    weights for an operator whose instances have named machines
    ├── NewCheckpointNeeded a job that changed so that its checkpoint does not hold for it any more
    ├── InvalidSetting      a line that is no setting
    ├── NotUnderstood       a message that is no part of the contract
    ├── PartsMissing        a JDK or a jar that is missing, cannot be fetched or is not the right one
    │   └── ProbeNotBuilt       the Java part does not compile
    ├── BrokerUnavailable   a Kafka that does not start, does not answer or is somebody else's
    │   └── KafkaUnreachable    a Kafka that an engine cannot reach
    ├── DoesNotFit          a job for which there are not enough tasks or slots
    ├── HostUnreachable     no host answers
    ├── HostRuns            a host runs there already
    ├── NeedsNewCheckpoint  a version of a job that cannot go on where the one before was
    ├── JobEnding           a job that is about to end and cannot be handed in meanwhile
    ├── JournalUnusable     a journal that is damaged, or of a newer version
    ├── DaemonUnreachable   no daemon answers
    ├── DaemonRuns          a daemon runs there already
    ├── InvalidLoad         a trace or a setting of a load that cannot be meant
    └── SparkNotStarted     Spark does not start
        ├── QueryNotStarted     a job's query does not start
        └── PlanMismatch        Spark planned other stages than were compiled

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


class InvalidScenario(InvalidJob):
    """A file for the simulated cluster that cannot be meant; carries every problem found."""

    code = "INVALID_SCENARIO"


class InvalidIntent(TrilithonError):
    code = "INVALID_INTENT"
    exit_code = 3


class InvalidPolicy(TrilithonError):
    code = "INVALID_POLICY"
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


class PartsMissing(TrilithonError):
    code = "PARTS_MISSING"
    exit_code = 8


class BrokerUnavailable(TrilithonError):
    code = "BROKER_UNAVAILABLE"
    exit_code = 9


class ProbeNotBuilt(PartsMissing):
    code = "PROBE_NOT_BUILT"


class KafkaUnreachable(BrokerUnavailable):
    code = "KAFKA_UNREACHABLE"


class InvalidAllocation(TrilithonError):
    code = "INVALID_ALLOCATION"
    exit_code = 3


# One code per facet of an allocation: a caller can leave out that facet and ask for the rest.


class BatchingUnsupported(InvalidAllocation):
    code = "CANNOT_BATCHING"


class TooManyInstances(InvalidAllocation):
    code = "TOO_MANY_INSTANCES"


class UnknownMachine(InvalidAllocation):
    code = "UNKNOWN_MACHINE"


class WeightsWithPlacement(InvalidAllocation):
    code = "WEIGHTS_WITH_PLACEMENT"


class NewCheckpointNeeded(TrilithonError):
    """A job changed so that what its checkpoint says does not hold for it any more."""

    code = "NEW_CHECKPOINT_NEEDED"
    exit_code = 3


class NotUnderstood(TrilithonError):
    code = "NOT_UNDERSTOOD"
    exit_code = 3


class DoesNotFit(TrilithonError):
    code = "DOES_NOT_FIT"
    exit_code = 11


class HostUnreachable(TrilithonError):
    code = "HOST_UNREACHABLE"
    exit_code = 12


class HostRuns(TrilithonError):
    code = "HOST_RUNS"
    exit_code = 12


class NeedsNewCheckpoint(TrilithonError):
    code = "NEEDS_NEW_CHECKPOINT"
    exit_code = 16


class JobEnding(TrilithonError):
    code = "JOB_ENDING"
    exit_code = 16


class JournalUnusable(TrilithonError):
    code = "JOURNAL_UNUSABLE"
    exit_code = 14


class DaemonUnreachable(TrilithonError):
    code = "DAEMON_UNREACHABLE"
    exit_code = 15


class DaemonRuns(TrilithonError):
    code = "DAEMON_RUNS"
    exit_code = 15


class SparkNotStarted(TrilithonError):
    code = "SPARK_NOT_STARTED"
    exit_code = 13


class QueryNotStarted(SparkNotStarted):
    code = "QUERY_NOT_STARTED"


class PlanMismatch(SparkNotStarted):
    """Spark planned other stages than were compiled: what the probes would tell makes no sense."""

    code = "PLAN_MISMATCH"


class InvalidSetting(TrilithonError):
    code = "INVALID_SETTING"
    exit_code = 3


class InvalidLoad(TrilithonError):
    code = "INVALID_LOAD"
    exit_code = 10


EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "something went wrong that Trilithon has no name for",
    2: "the command line itself is wrong",
    InvalidJob.exit_code: "a job or an intent breaks rules",
    FileUnreadable.exit_code: "a file is missing, or cannot be read or written",
    InvalidRecording.exit_code: "a recording cannot be read or contradicts itself",
    FileExists.exit_code: "a file would be overwritten",
    NotFound.exit_code: "nothing answers to a name",
    PartsMissing.exit_code: "a JDK or a jar is missing, cannot be fetched or is not the right one",
    BrokerUnavailable.exit_code: "a Kafka does not start or does not answer",
    InvalidLoad.exit_code: "a trace or a setting of a load cannot be meant",
    DoesNotFit.exit_code: "a job does not fit into the cluster",
    HostUnreachable.exit_code: "no host answers, or one runs there already",
    SparkNotStarted.exit_code: "Spark, or a job on it, does not start",
    JournalUnusable.exit_code: "the journal is damaged, or of a newer version",
    DaemonUnreachable.exit_code: "no daemon answers, or one runs there already",
    NeedsNewCheckpoint.exit_code: "a version of a job cannot be taken: now, or without a new checkpoint",
    130: "stopped by Ctrl-C",
}
