"""Ends this host process so that another one takes its place.

A thread that cannot be ended ends with its JVM only, and in local mode that is the driver's. And a
host whose JVM died, which the system may kill first when memory is short, can do nothing any more.
The host ends as if it had died: its socket stays, by which the daemon knows that it must start
another. The jobs go on from their checkpoints.
"""

import os
import threading
from typing import Final

from trilithon import logs
from trilithon.engines.spark.session import kill_jvm

# The exit code of a host that asks to be replaced.
REPLACED: Final = 75
# Long enough for the answer to the call that led here.
_DELAY_S: Final = 1.0
_log = logs.logger()


def replace_this_host(reason: str) -> None:
    """Ends this process and its JVM shortly after this call."""
    _log.error("host_replaced", reason=reason)
    timer = threading.Timer(_DELAY_S, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    kill_jvm()
    os._exit(REPLACED)
