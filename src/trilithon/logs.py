"""Configures structured logs: their level, their form, and that they go to stderr.

A module logs events with fields, `log.warning("query_died", job=…, reason=…)`; what a program
prints for its user is no log. Without `configure` only warnings and errors are written.
"""

import logging
import sys
from enum import StrEnum

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_CLEAR_LINE = "\r\x1b[K"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        return logging.getLevelNamesMapping()[self.name]


def configure(level: LogLevel = LogLevel.INFO, *, json: bool = False) -> None:
    """Sets up the logs of this process, those of libraries that use `logging` included: of them
    warnings and errors are written, whatever the level.
    """
    stamped, rendered = _processors(json)
    _configure_own(level, [*stamped, *rendered])
    handler = _StderrHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
            foreign_pre_chain=[*stamped, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level.number, logging.WARNING), force=True)


def logger() -> FilteringBoundLogger:
    """What a module logs with."""
    if not structlog.is_configured():
        stamped, rendered = _processors(json=False)
        _configure_own(LogLevel.WARNING, [*stamped, *rendered])
    found: FilteringBoundLogger = structlog.get_logger()
    return found


def _processors(json: bool) -> tuple[list[Processor], list[Processor]]:
    """What adds level and time to an event, and what makes text of it."""
    stamped: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json else "%Y-%m-%d %H:%M:%S", utc=json),
    ]
    if json:
        line = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
        return stamped, [structlog.processors.format_exc_info, line]
    return stamped, [_for_console]


def _configure_own(level: LogLevel, processors: list[Processor]) -> None:
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level.number),
        # Not kept: whoever shows something that moves puts itself in the place of stderr.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


class _StderrHandler(logging.Handler):
    """Writes to what is stderr at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def _for_console(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """One line for people, and a traceback below it. On a terminal it takes the place of a progress
    message, which would otherwise stand before it.
    """
    terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer(
        colors=terminal, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
    )
    return (_CLEAR_LINE if terminal else "") + str(renderer(logger, name, event))
