"""Classifies why a query ended: an outage outside the job, or a fault of the job's own.

Pure. Spark gives an exception's text, with the names of Java's classes and its own error classes in
it; they are matched in the order of the table, the most specific first.
"""

import re
from dataclasses import dataclass
from typing import Final

from trilithon.contract.condition import Cause
from trilithon.errors import (
    DoesNotFit,
    InvalidJob,
    KafkaUnreachable,
    PlanMismatch,
    RecordsExpired,
    TrilithonError,
)

_MAX_CHARS: Final = 500
_MAX_CAUSES: Final = 10
# A message that is the same up to here is the same message.
_SAME_CHARS: Final = 80
# A problem of a job that others can remove: somebody creates the topic.
_OTHERS_PROBLEMS: Final = frozenset({"MISSING_TOPIC"})

_SIGNS: Final[tuple[tuple[Cause, re.Pattern[str]], ...]] = tuple(
    (cause, re.compile("|".join(signs)))
    for cause, signs in (
        (Cause.DATA_LOSS, (r"KAFKA_DATA_LOSS", r"OffsetOutOfRangeException")),
        (Cause.TASKS, (r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT", r"INSUFFICIENT_SLOT")),
        (
            Cause.EXECUTOR,
            (
                r"ExecutorLostFailure",
                r"ExecutorDeadException",
                r"[Ll]ost executor",
                r"Executor .{0,40}(?:exited|lost|removed|unresponsive)",
                r"FetchFailed",
            ),
        ),
        (
            Cause.RECORD,
            (r"RecordTooLargeException", r"RecordBatchTooLargeException"),
        ),
        (
            Cause.KAFKA,
            (
                r"kafka\.common\.errors\.(?!Serialization|InvalidTopic|UnsupportedVersion)\w+",
                r"kafka\.clients\.consumer\.\w*Timeout\w*",
                r"Timeout[^\n]{0,200}(?:[Kk]afka|[Bb]roker|node assignment|for partition)",
                r"Timeout[^\n]{0,200}(?:topic metadata|describeTopics|listOffsets)",
                r"No resolvable bootstrap urls",
                r"KafkaException: Failed to (?:construct|create)",
                r"KAFKA_UNREACHABLE",
            ),
        ),
        (
            Cause.STORAGE,
            (
                r"No space left on device",
                r"Read-only file system",
                r"Input/output error",
                r"Disk quota exceeded",
                r"java\.io\.IOException",
                r"java\.nio\.file\.\w*Exception",
                r"java\.io\.FileNotFoundException",
                r"org\.apache\.hadoop\.\S*Exception",
                r"CONCURRENT_STREAM_LOG_UPDATE",
                r"STREAMING_CHECKPOINT_LOG_WRITE_FAILURE",
            ),
        ),
        (
            Cause.EXPRESSION,
            (
                r"ARITHMETIC_OVERFLOW",
                r"CAST_INVALID_INPUT",
                r"DIVIDE_BY_ZERO",
                r"INVALID_ARRAY_INDEX",
                r"SparkArithmeticException",
            ),
        ),
        (
            Cause.PLAN,
            (
                r"AnalysisException",
                r"ParseException",
                r"SparkUnsupportedOperationException",
                r"STREAMING_REAL_TIME_MODE",
                r"CompileException",
                r"failed to compile",
            ),
        ),
        (Cause.TIMEOUT, (r"[Tt]ime(?:d )?out", r"within \d+ s")),
    )
)

# A shuffle takes several files for each pair of tasks. What comes of it has many names.
_FILES: Final = "Too many open files"
_MORE_FILES: Final = (
    "The JVM has too many open files: raise their limit where it is started (ulimit -n, or "
    "LimitNOFILE), or let operators hold fewer tasks (parallelism.max, or tasks: follow)."
)

_FRAME: Final = re.compile(r"\s+(?:at |\.\.\. )")

# What an owner does about a job that failed by its own fault.
_REMEDIES: Final = {
    Cause.PLAN: "Change the job and apply the new version",
    Cause.EXPRESSION: "Correct the expression and apply the new version",
    Cause.RECORD: "Remove or skip the record, or apply a version that can process it",
    Cause.DATA_LOSS: (
        "Kafka deleted records before the job read them; apply the job with --anew to start from "
        "its startingOffsets, and let the topic keep its records for longer"
    ),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended, in one line."""

    cause: Cause
    reason: str


def classify(error: BaseException, *, executor_lost: bool = False) -> Failure:
    """The failure of a query that ended, or did not start, with this error. `executor_lost`: an
    executor was lost a moment ago. A reader often reports first that its connection to a writer
    closed, and that may as well come from a record that killed the writer.
    """
    failure = _classify(error)
    if executor_lost and failure.cause is Cause.UNKNOWN:
        return Failure(Cause.EXECUTOR, f"An executor was lost: {failure.reason}")
    return failure


def _classify(error: BaseException) -> Failure:
    if isinstance(error, KafkaUnreachable):
        return Failure(Cause.KAFKA, error.message)
    if isinstance(error, DoesNotFit):
        return Failure(Cause.TASKS, error.message)
    if isinstance(error, RecordsExpired):
        return Failure(Cause.DATA_LOSS, error.message)
    if isinstance(error, PlanMismatch):
        return Failure(Cause.PLAN, error.message)
    if isinstance(error, InvalidJob):
        reason = " ".join(str(problem) for problem in error.problems)
        others = all(problem.code in _OTHERS_PROBLEMS for problem in error.problems)
        return Failure(Cause.KAFKA if others else Cause.PLAN, reason[:_MAX_CHARS])
    return classify_text(_whole_text(error), describe(error))


def classify_text(text: str, reason: str) -> Failure:
    """The failure with this text; the reason is the line that people see. Names in a stack trace
    say nothing: every connection has a timeout handler.
    """
    text = "\n".join(line for line in text.splitlines() if not _FRAME.match(line))
    if _FILES in text:
        return Failure(Cause.STORAGE, _MORE_FILES)
    for cause, pattern in _SIGNS:
        if pattern.search(text):
            return Failure(cause, reason)
    return Failure(Cause.UNKNOWN, reason)


def remedy(cause: Cause, job: str) -> str:
    """What starts a failed job again."""
    what = _REMEDIES.get(cause, "Remove the cause")
    return f"{what}; `trilithon job resume {job}` starts it again from its checkpoint."


def describe(error: BaseException) -> str:
    """An error in one line: of a query, the innermost cause that Spark names."""
    if isinstance(error, TrilithonError):
        return error.message
    text = str(error).strip()
    lines = text.splitlines() or [""]
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE) or _java_causes(error)
    first = lines[0] or type(error).__name__
    # Spark wraps an exception in another one with the same message.
    if causes and _message(causes[-1])[:_SAME_CHARS] not in first:
        # The innermost cause is what people look for: it is not what is cut.
        cause = f" ({causes[-1][: _MAX_CHARS // 2]})"
        return first[: _MAX_CHARS - len(cause)] + cause
    return first[:_MAX_CHARS]


def _message(line: str) -> str:
    """The message of an exception without its class; the whole line if it has no other."""
    return line.partition(": ")[2] or line


def _java_causes(error: BaseException) -> list[str]:
    """The first lines of the exceptions that an exception of Java came from, the innermost last."""
    lines: list[str] = []
    seen = getattr(error, "_cause", None)
    while isinstance(seen, BaseException) and len(lines) < _MAX_CAUSES:
        lines += str(seen).strip().splitlines()[:1]
        seen = getattr(seen, "_cause", None)
    return lines


def _whole_text(error: BaseException) -> str:
    """The text of an error and of what it came from."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(texts) < _MAX_CAUSES:
        texts.append(f"{type(seen).__name__}: {seen}")
        # PySpark keeps Java's stack trace beside the message.
        texts.append(str(getattr(seen, "_stackTrace", "") or ""))
        seen = seen.__cause__
    return "\n".join(texts)
