"""Runs many independent computations side by side in processes of their own."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import TypeVar

T = TypeVar("T")


def each_done(
    function: Callable[..., T], arguments: Sequence[tuple[object, ...]], workers: int
) -> Iterator[tuple[int, T]]:
    """The result for each tuple of arguments with its index, as soon as it is there.

    With one worker everything runs in this process.
    """
    if workers == 1:
        yield from ((i, function(*given)) for i, given in enumerate(arguments))
        return
    with process_pool(workers) as processes:
        index = {processes.submit(function, *given): i for i, given in enumerate(arguments)}
        for future in as_completed(index):
            yield index[future], future.result()


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one.

    After an error or an interruption nothing that waits is begun; when this process is killed, the
    workers exit, too.
    """
    context = get_context("spawn")
    processes = ProcessPoolExecutor(workers, mp_context=context, initializer=_exit_with_parent)
    try:
        yield processes
    except BaseException:
        processes.shutdown(wait=True, cancel_futures=True)
        raise
    processes.shutdown()


def _exit_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - it has just started this process

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
