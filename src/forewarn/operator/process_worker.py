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
"""How nice the process is: guests come first."""

ProgressCallback = Callable[[int, int], None]
"""Takes how much is done, and of how much."""

Work = Callable[[ProgressCallback], T]
"""What can be sent to another process, and does the work there."""


class _Progress(NamedTuple):
    done: int
    total: int


class _Result(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    error: Exception


async def run_in_process(work: Work[T], on_progress: ProgressCallback | None = None) -> T:
    """Do work in a process of its own; raise what it raises, and EOFError if the process ends without a word.

    Whoever stops waiting ends the process.
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
        # Nobody else closes our end: its number could be another connection's by the time that this thread reads on.
        with parent_end:
            with child_end:
                process.start()
            try:
                if is_cancelled.is_set():  # since before there was a process that could be ended
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
    """Hand the work over, and hear how far it is and what comes of it."""
    try:
        pipe.send(work)
        while isinstance(message := pipe.recv(), _Progress):
            on_progress(message)
    except OSError as error:  # the process has ended in the middle of a message
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
    except Exception as error:  # noqa: BLE001  # whoever asked for the work deals with it
        pipe.send(_Raised(error))
