"""Defines the tree of errors: each class with its stable code, its exit code and its HTTP status.

    class                          code                    exit  HTTP
    TrilithonError                 TRILITHON_ERROR            1   500
    ├── InvalidJob                 INVALID_JOB                3   422
    │   └── InvalidScenario        INVALID_SCENARIO           3   422
    ├── InvalidIntent              INVALID_INTENT             3   422
    ├── InvalidPolicy              INVALID_POLICY             3   422
    ├── InvalidRecording           INVALID_RECORDING          5   422
    ├── FileUnreadable             FILE_UNREADABLE            4   500
    ├── FileUnwritable             FILE_UNWRITABLE            4   500
    ├── FileExists                 FILE_EXISTS                6   409
    ├── NotFound                   NOT_FOUND                  7   404
    ├── NotAllowed                 NOT_ALLOWED               17   401
    ├── Forbidden                  FORBIDDEN                 17   403
    │   └── TopicNotAllowed        TOPIC_NOT_ALLOWED         17   403
    ├── TooManyRequests            TOO_MANY_REQUESTS         18   429
    ├── BodyTooLarge               BODY_TOO_LARGE            18   413
    ├── VersionConflict            VERSION_CONFLICT          16   412
    ├── NotUnderstood              NOT_UNDERSTOOD             3   422
    ├── InvalidAllocation          INVALID_ALLOCATION         3   422
    │   ├── BatchingUnsupported    CANNOT_BATCHING            3   422
    │   ├── StateIsFixed           STATE_IS_FIXED             3   422
    │   ├── TooManyInstances       TOO_MANY_INSTANCES         3   422
    │   ├── UnknownMachine         UNKNOWN_MACHINE            3   422
    │   ├── WeightsWithPlacement   WEIGHTS_WITH_PLACEMENT     3   422
    │   └── CannotSpread           CANNOT_SPREAD              3   422
    ├── InvalidSetting             INVALID_SETTING            3   422
    ├── InvalidLoad                INVALID_LOAD              10   422
    ├── DoesNotFit                 DOES_NOT_FIT              11   409
    ├── NeedsNewCheckpoint         NEEDS_NEW_CHECKPOINT      16   409
    │   └── RecordsExpired         RECORDS_EXPIRED           16   409
    ├── JobEnding                  JOB_ENDING                16   409
    ├── NotObservable              NOT_OBSERVABLE            16   409
    ├── PartsMissing               PARTS_MISSING              8   503
    │   └── ProbeNotBuilt          PROBE_NOT_BUILT            8   503
    ├── BrokerUnavailable          BROKER_UNAVAILABLE         9   503
    │   └── KafkaUnreachable       KAFKA_UNREACHABLE          9   503
    ├── SparkNotStarted            SPARK_NOT_STARTED         13   503
    │   ├── ClusterUnavailable     CLUSTER_UNAVAILABLE       13   503
    │   ├── ClusterTooSmall        CLUSTER_TOO_SMALL         13   503
    │   ├── QueryNotStarted        QUERY_NOT_STARTED         13   503
    │   └── PlanMismatch           PLAN_MISMATCH             13   503
    ├── EngineFailed               ENGINE_FAILED              1   500
    ├── HostUnreachable            HOST_UNREACHABLE          12   503
    │   └── HostStarting           HOST_STARTING             12   503
    ├── HostRuns                   HOST_RUNS                 12   409
    ├── DaemonUnreachable          DAEMON_UNREACHABLE        15   503
    ├── DaemonRuns                 DAEMON_RUNS               15   409
    ├── JournalUnusable            JOURNAL_UNUSABLE          14   503
    │   └── NotAudited             NOT_AUDITED               14   500
    └── Refused                    REFUSED                    3   409

Problems inside an `InvalidJob` have codes of their own. docs/reference/problems.md lists them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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

    @property
    def sentence(self) -> str:
        """Where, what and what to do, without the code: for where the code is shown beside it."""
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.message} {self.hint}".rstrip()

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        at = f"{place}: " if place else ""
        where = f" at {self.path}" if self.path else ""
        return f"{at}{self.code}{where}: {self.message} {self.hint}".rstrip()


class TrilithonError(Exception):
    """An error that has no name of its own."""

    code: str = "TRILITHON_ERROR"
    exit_code: int = 1
    http_status: int = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message} {self.hint}".rstrip()


class InvalidJob(TrilithonError):
    """A job that breaks rules. Carries every problem found."""

    code = "INVALID_JOB"
    exit_code = 3
    http_status = 422

    def __init__(
        self, problems: Sequence[Problem], name: str = "the job", where: str = "", hint: str = ""
    ) -> None:
        count = len(problems)
        super().__init__(f"{name} has {count} problem{'s' if count != 1 else ''}{where}.", hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(f"  {problem}" for problem in self.problems)))


class InvalidScenario(InvalidJob):
    """A scenario of the simulated cluster that breaks rules. Carries every problem found."""

    code = "INVALID_SCENARIO"


class InvalidIntent(TrilithonError):
    """A utility or a threshold that is invalid."""

    code = "INVALID_INTENT"
    exit_code = 3
    http_status = 422


class InvalidPolicy(TrilithonError):
    """A parameter of a policy, or a rule of the guard, that is invalid."""

    code = "INVALID_POLICY"
    exit_code = 3
    http_status = 422


class InvalidRecording(TrilithonError):
    """A snapshot or series that cannot be read or contradicts itself."""

    code = "INVALID_RECORDING"
    exit_code = 5
    http_status = 422


class FileUnreadable(TrilithonError):
    """A file that is missing, too large or of another format than its name says."""

    code = "FILE_UNREADABLE"
    exit_code = 4


class FileUnwritable(TrilithonError):
    """A file that cannot be written."""

    code = "FILE_UNWRITABLE"
    exit_code = 4


class FileExists(TrilithonError):
    """A file that would be overwritten."""

    code = "FILE_EXISTS"
    exit_code = 6
    http_status = 409


class NotFound(TrilithonError):
    """A name that nothing has: of a job, a policy, a utility function."""

    code = "NOT_FOUND"
    exit_code = 7
    http_status = 404


class NotAllowed(TrilithonError):
    """A request without a valid token."""

    code = "NOT_ALLOWED"
    exit_code = 17
    http_status = 401


class Forbidden(TrilithonError):
    """A request that the caller's role does not allow."""

    code = "FORBIDDEN"
    exit_code = 17
    http_status = 403


class TopicNotAllowed(Forbidden):
    """Records of a topic that the job's tenant may not read. In a job, a problem of that name."""

    code = "TOPIC_NOT_ALLOWED"


class TooManyRequests(TrilithonError):
    """More requests of one caller than the service answers in that time."""

    code = "TOO_MANY_REQUESTS"
    exit_code = 18
    http_status = 429

    def __init__(self, message: str, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, hint)
        self.retry_after_s = retry_after_s


class BodyTooLarge(TrilithonError):
    """A request whose body is larger than the service reads."""

    code = "BODY_TOO_LARGE"
    exit_code = 18
    http_status = 413


class VersionConflict(TrilithonError):
    """A change of a job that somebody else has changed meanwhile."""

    code = "VERSION_CONFLICT"
    exit_code = 16
    http_status = 412


class NotUnderstood(TrilithonError):
    """A request or a message that is not part of the contract."""

    code = "NOT_UNDERSTOOD"
    exit_code = 3
    http_status = 422


class InvalidAllocation(TrilithonError):
    """Wanted state that no engine could bring about."""

    code = "INVALID_ALLOCATION"
    exit_code = 3
    http_status = 422


class BatchingUnsupported(InvalidAllocation):
    """A batching time for an edge, on an engine that cannot change batching."""

    code = "CANNOT_BATCHING"


class StateIsFixed(InvalidAllocation):
    """A change of how an operator's state is divided over its instances."""

    code = "STATE_IS_FIXED"


class TooManyInstances(InvalidAllocation):
    """A parallelism above the tasks that an operator holds."""

    code = "TOO_MANY_INSTANCES"


class UnknownMachine(InvalidAllocation):
    """A placement on a machine that the engine does not have, or a removal of it."""

    code = "UNKNOWN_MACHINE"


class WeightsWithPlacement(InvalidAllocation):
    """Weights for an operator whose instances have named machines."""

    code = "WEIGHTS_WITH_PLACEMENT"


class CannotSpread(InvalidAllocation):
    """A key group spread over instances, where each key needs one instance."""

    code = "CANNOT_SPREAD"


class InvalidSetting(TrilithonError):
    """A setting that is not of the form key=value, or has an impossible value."""

    code = "INVALID_SETTING"
    exit_code = 3
    http_status = 422


class InvalidLoad(TrilithonError):
    """A trace or a setting of a load that is invalid."""

    code = "INVALID_LOAD"
    exit_code = 10
    http_status = 422


class DoesNotFit(TrilithonError):
    """A job for which there are not enough tasks or slots."""

    code = "DOES_NOT_FIT"
    exit_code = 11
    http_status = 409


class NeedsNewCheckpoint(TrilithonError):
    """A version of a job that cannot go on from the checkpoint of the one before."""

    code = "NEEDS_NEW_CHECKPOINT"
    exit_code = 16
    http_status = 409


class RecordsExpired(NeedsNewCheckpoint):
    """A job whose next records Kafka has deleted before they were read."""

    code = "RECORDS_EXPIRED"


class JobEnding(TrilithonError):
    """A job that is about to end and cannot be submitted again meanwhile."""

    code = "JOB_ENDING"
    exit_code = 16
    http_status = 409


class NotObservable(TrilithonError):
    """A place inside an operator, a job that does not run, or an engine that shows no records."""

    code = "NOT_OBSERVABLE"
    exit_code = 16
    http_status = 409


class PartsMissing(TrilithonError):
    """A JDK or a jar that is missing, cannot be fetched or is not the right one."""

    code = "PARTS_MISSING"
    exit_code = 8
    http_status = 503


class ProbeNotBuilt(PartsMissing):
    """The Java part, which does not compile."""

    code = "PROBE_NOT_BUILT"


class BrokerUnavailable(TrilithonError):
    """A Kafka that does not start, does not answer or belongs to another folder."""

    code = "BROKER_UNAVAILABLE"
    exit_code = 9
    http_status = 503


class KafkaUnreachable(BrokerUnavailable):
    """A Kafka that an engine cannot reach."""

    code = "KAFKA_UNREACHABLE"


class SparkNotStarted(TrilithonError):
    """Spark, which does not start."""

    code = "SPARK_NOT_STARTED"
    exit_code = 13
    http_status = 503


class ClusterUnavailable(SparkNotStarted):
    """A standalone cluster whose master or workers do not start, or do not run."""

    code = "CLUSTER_UNAVAILABLE"


class ClusterTooSmall(SparkNotStarted):
    """A standalone cluster without room for the executors of an application."""

    code = "CLUSTER_TOO_SMALL"


class QueryNotStarted(SparkNotStarted):
    """A job's query, which does not start."""

    code = "QUERY_NOT_STARTED"


class PlanMismatch(SparkNotStarted):
    """Other stages in Spark's plan than were compiled: the probes would count nonsense."""

    code = "PLAN_MISMATCH"


class EngineFailed(TrilithonError):
    """An engine that failed in a way it has no code for. The host's log has the traceback."""

    code = "ENGINE_FAILED"


class HostUnreachable(TrilithonError):
    """A host that does not answer."""

    code = "HOST_UNREACHABLE"
    exit_code = 12
    http_status = 503


class HostStarting(HostUnreachable):
    """A host that does not answer yet."""

    code = "HOST_STARTING"


class HostRuns(TrilithonError):
    """A host that runs there already."""

    code = "HOST_RUNS"
    exit_code = 12
    http_status = 409


class DaemonUnreachable(TrilithonError):
    """A daemon that does not answer."""

    code = "DAEMON_UNREACHABLE"
    exit_code = 15
    http_status = 503


class DaemonRuns(TrilithonError):
    """A daemon that runs there already."""

    code = "DAEMON_RUNS"
    exit_code = 15
    http_status = 409


class JournalUnusable(TrilithonError):
    """A journal that is damaged, of a newer version, or cannot be written."""

    code = "JOURNAL_UNUSABLE"
    exit_code = 14
    http_status = 503


class NotAudited(JournalUnusable):
    """A change that was made, but could not be written to the audit log."""

    code = "NOT_AUDITED"
    # Not 503, after which some clients send the same request again by themselves.
    http_status = 500


class Refused(TrilithonError):
    """A refusal by another process, the host or the daemon. It has the code of that refusal, with
    the exit code and the HTTP status that belong to it.
    """

    code = "REFUSED"
    exit_code = 3
    http_status = 409

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        kind = {kind.code: kind for kind in error_classes()}.get(code, Refused)
        self.code, self.exit_code, self.http_status = code, kind.exit_code, kind.http_status


def error_classes(root: type[TrilithonError] = TrilithonError) -> Iterator[type[TrilithonError]]:
    """Every class of the tree, parents before their children."""
    yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "something went wrong that Trilithon has no name for",
    2: "the command line itself is wrong",
    InvalidJob.exit_code: "a job, an intent, an allocation, a policy or a setting breaks rules",
    FileUnreadable.exit_code: "a file is missing, or cannot be read or written",
    InvalidRecording.exit_code: "a recording cannot be read or contradicts itself",
    FileExists.exit_code: "a file would be overwritten",
    NotFound.exit_code: "nothing has the name that was given",
    PartsMissing.exit_code: "a JDK or a jar is missing, cannot be fetched or is not the right one",
    BrokerUnavailable.exit_code: "a Kafka does not start or does not answer",
    InvalidLoad.exit_code: "a trace or a setting of a load is invalid",
    DoesNotFit.exit_code: "a job does not fit into the cluster",
    HostUnreachable.exit_code: "no host answers, or one runs there already",
    SparkNotStarted.exit_code: "Spark, or a job on it, does not start",
    JournalUnusable.exit_code: "the journal is damaged, of a newer version, or cannot be written",
    DaemonUnreachable.exit_code: "no daemon answers, or one runs there already",
    NeedsNewCheckpoint.exit_code: "the present state of a job does not allow it",
    NotAllowed.exit_code: "the token is missing or not valid, or its role does not allow this",
    TooManyRequests.exit_code: "the daemon refused a request: one of too many, or too large",
    130: "stopped by Ctrl-C",
}
