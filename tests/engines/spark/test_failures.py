"""Why a query ended: an outage, or a fault of the job's own."""

import pytest

from trilithon.contract.condition import Cause
from trilithon.engines.spark.failures import classify, classify_text, describe, remedy
from trilithon.errors import (
    DoesNotFit,
    EngineFailed,
    InvalidJob,
    KafkaUnreachable,
    PlanMismatch,
    Problem,
    QueryNotStarted,
    RecordsExpired,
)

# What Spark 4.3 and the connector said when these things were done to them.
TEXTS = {
    Cause.KAFKA: [
        "Caused by: org.apache.kafka.common.errors.TimeoutException: Call: describeTopics",
        "org.apache.kafka.common.errors.TimeoutException: Expiring 3 record(s) for out-0",
        "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone",
        "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
    ],
    Cause.TASKS: [
        "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] The minimum number of free slots required is 12"
    ],
    Cause.EXECUTOR: [
        "Lost task 3.0 (TID 40) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited)",
    ],
    Cause.STORAGE: [
        "Caused by: java.io.IOException: No space left on device",
        "failed with exception: [STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.OFFSET_LOG] Failed to",
    ],
    Cause.DATA_LOSS: ["[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost"],
    Cause.RECORD: [
        "Caused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 5242958"
    ],
    Cause.EXPRESSION: ["[CAST_INVALID_INPUT] The value 'x' of the type \"STRING\" cannot be cast"],
    Cause.PLAN: ["org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN] no such column"],
    Cause.TIMEOUT: ["ads/a did not start a batch within 60 s."],
    Cause.UNKNOWN: [
        "java.lang.OutOfMemoryError: Java heap space",
        "java.lang.NullPointerException",
    ],
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in TEXTS.items() for text in texts]
)
def test_what_spark_says_has_a_cause(cause: Cause, text: str) -> None:
    assert classify_text(text, "").cause is cause


CLOSED = """Lost task 3.0 (127.0.0.1 executor 2): org.apache.spark.SparkException: Connection to \
streaming shuffle writer 146 closed before termination; the writer task likely failed.
\tat org.apache.spark.shuffle.streaming.StreamingShuffleClientHandler.channelInactive(x.scala:219)
\tat io.netty.handler.timeout.IdleStateHandler.channelInactive(IdleStateHandler.java:279)
\t... 21 more"""


def test_a_closed_connection_is_an_outage_only_if_an_executor_was_lost() -> None:
    """A record that kills its task looks the same to the tasks behind it."""
    assert classify(RuntimeError(CLOSED)).cause is Cause.UNKNOWN
    lost = classify(RuntimeError(CLOSED), executor_lost=True)
    assert lost.cause is Cause.EXECUTOR
    assert lost.reason.startswith("An executor was lost: Lost task 3.0")
    assert classify(RuntimeError(TEXTS[Cause.PLAN][0]), executor_lost=True).cause is Cause.PLAN


def test_causes_outside_the_job_are_told_from_its_own() -> None:
    outside = {cause for cause in Cause if cause.outside}
    assert outside == {
        Cause.KAFKA,
        Cause.TASKS,
        Cause.EXECUTOR,
        Cause.STORAGE,
        Cause.TIMEOUT,
        Cause.HOST,
    }


def problem(code: str) -> Problem:
    return Problem(code, "sources[0]", "It is not there.", "Make it.")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KafkaUnreachable("Kafka does not answer at x."), Cause.KAFKA),
        (DoesNotFit("Waits for tasks."), Cause.TASKS),
        (PlanMismatch("Other stages."), Cause.PLAN),
        (RecordsExpired("Kafka deleted 3 records."), Cause.DATA_LOSS),
        # A topic that was deleted can be created again by somebody.
        (InvalidJob([problem("MISSING_TOPIC")]), Cause.KAFKA),
        (InvalidJob([problem("MISSING_TOPIC"), problem("SPARK_REFUSED")]), Cause.PLAN),
        (EngineFailed("The query ended without an error."), Cause.UNKNOWN),
    ],
)
def test_our_own_errors_have_a_cause(error: Exception, cause: Cause) -> None:
    assert classify(error).cause is cause


def test_an_error_is_judged_by_what_it_came_from_too() -> None:
    error = QueryNotStarted("ads/a ended: [STREAM_FAILED]")
    error.__cause__ = RuntimeError(TEXTS[Cause.KAFKA][0])
    assert classify(error).cause is Cause.KAFKA


def test_a_reason_is_one_line_with_the_innermost_cause() -> None:
    error = RuntimeError("Writing job aborted\nCaused by: a.B: one\nCaused by: c.D: the root")
    assert describe(error) == "Writing job aborted (c.D: the root)"
    assert describe(RuntimeError()) == "RuntimeError"


def test_every_own_fault_says_what_to_do() -> None:
    for cause in (Cause.PLAN, Cause.EXPRESSION, Cause.RECORD, Cause.DATA_LOSS, Cause.UNKNOWN):
        assert "`trilithon job resume ads/a`" in remedy(cause, "ads/a")


def test_a_reason_has_the_innermost_cause_that_java_kept() -> None:
    class Captured(Exception):
        """As PySpark's own, which keeps Java's cause like this."""

        def __init__(self, text: str, cause: Exception | None = None) -> None:
            super().__init__(text)
            self._cause = cause

    disk = Captured("java.io.IOException: No space left on device\n\tat java.base/...")
    error = Captured("[LOG_WRITE_FAILURE] Failed to write", Captured("Failed", disk))
    assert describe(error) == (
        "[LOG_WRITE_FAILURE] Failed to write (java.io.IOException: No space left on device)"
    )
    same = Captured(
        "org.apache.spark.SparkException: Job aborted: Lost task 2.0\nDriver stacktrace:"
    )
    assert describe(Captured("Job aborted: Lost task 2.0", same)) == "Job aborted: Lost task 2.0"
    long = describe(Captured("x" * 1000, disk))
    assert len(long) == 500
    assert long.endswith("x (java.io.IOException: No space left on device)")


def test_too_many_open_files_are_named_with_what_helps() -> None:
    text = (
        "Job aborted due to stage failure: Task 44 in stage 2.0 failed\n"
        "Caused by: io.netty.channel.ChannelException: epoll_create1() failed: Too many open files"
    )
    failure = classify_text(text, "Job aborted due to stage failure")
    assert failure.cause is Cause.STORAGE
    assert "raise their limit where it is started (ulimit -n, or LimitNOFILE)" in failure.reason
