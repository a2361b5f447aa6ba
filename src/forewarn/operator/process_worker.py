"""Run CPU-bound work in a separate process: in a thread it would slow down every guest response."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

NICENESS = 10
"""The niceness of the process: responses to guests have priority."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of done items and the total."""

Work = Callable[[ProgressCallback], T]
"""A picklable function that does the work in the other process."""


class _Progress(NamedTuple):
    done: int
    total: int


class _Result(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    error: Exception


async def run_in_process(work: Work[T], on_progress: ProgressCallback | None = None) -> T:
    """Run work in a separate process; raise its error, or EOFError if the process dies.

    Cancelling the caller kills the process.
    """
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_run_child, args=(child_end,), daemon=True)
    loop = asyncio.get_running_loop()
    is_cancelled = threading.Event()

    def forward_progress(progress: _Progress) -> None:
        if on_progress is not None and not is_cancelled.is_set():
            loop.call_soon_threadsafe(on_progress, progress.done, progress.total)

    def communicate() -> T:
        # Only this thread closes our end: otherwise its file descriptor could be reused while this thread still reads.
        with parent_end:
            with child_end:
                process.start()
            try:
                if is_cancelled.is_set():  # cancelled before the process existed
                    raise EOFError
                result: T = _exchange(parent_end, work, forward_progress)
                return result
            finally:
                process.kill()
                process.join()

    try:
        return await asyncio.to_thread(communicate)
    except asyncio.CancelledError:
        is_cancelled.set()
        if process.is_alive():
            process.kill()
        raise


def _exchange(pipe: Connection, work: Work[T], on_progress: Callable[[_Progress], None]) -> T:
    """Send the work, report its progress, and return its result."""
    try:
        pipe.send(work)
        while isinstance(message := pipe.recv(), _Progress):
            on_progress(message)
    except OSError as error:  # the process died in the middle of a message
        raise EOFError from error
    if isinstance(message, _Raised):
        raise message.error
    result: T = message.value
    return result


def _run_child(pipe: Connection) -> None:
    os.nice(NICENESS)
    work: Work[Any] = pipe.recv()
    try:
        pipe.send(_Result(work(lambda done, total: pipe.send(_Progress(done, total)))))
    except Exception as error:  # noqa: BLE001  # raised again in the parent process
        pipe.send(_Raised(error))
