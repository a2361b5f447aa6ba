"""Run CPU-bound work in a separate process: in a thread it would slow down every guest response.

Large arguments and results are passed `without_copy`, in chunks: then no step of passing them on holds the lock of the
interpreter, and with it the event loop, for long.
"""

import asyncio
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar, cast

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


def without_copy(chunks: Iterable[bytes]) -> list[bytes]:
    """Return the chunks as something that is passed to or from the process without a copy, and arrives as bytes."""
    return cast("list[bytes]", [pickle.PickleBuffer(chunk) for chunk in chunks])


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
        _send(pipe, work)
        while isinstance(message := _receive(pipe), _Progress):
            on_progress(message)
    except OSError as error:  # the process died in the middle of a message
        raise EOFError from error
    if isinstance(message, _Raised):
        raise message.error
    result: T = message.value
    return result


def _run_child(pipe: Connection) -> None:
    os.nice(NICENESS)
    work: Work[Any] = _receive(pipe)
    try:
        _send(pipe, _Result(work(lambda done, total: _send(pipe, _Progress(done, total)))))
    except Exception as error:  # noqa: BLE001  # raised again in the parent process
        _send(pipe, _Raised(error))


def _send(pipe: Connection, message: object) -> None:
    """Send a message, and after it each of its buffers, without a copy."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    pipe.send((content, len(buffers)))
    for buffer in buffers:
        pipe.send_bytes(buffer)


def _receive(pipe: Connection) -> Any:
    """Receive a message. Its buffers become bytes."""
    content, count = pipe.recv()
    buffers = [pipe.recv_bytes() for _ in range(count)]
    return pickle.loads(content, buffers=buffers)  # noqa: S301 - it comes from our own process
