"""Long work in a process of its own: in a thread it would slow every answer to a guest."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

POLITE = 10
"""How nice the process is: guests come first."""

Report = Callable[[int, int], None]
"""Takes how much is done, and of how much."""

Work = Callable[[Report], T]
"""What can be sent to another process, and does the work there."""


class _Told(NamedTuple):
    done: int
    total: int


class _Result(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    """An error as it travels: those with facts of their own could not be made anew from their message."""

    kind: type[Exception]
    arguments: tuple[object, ...]
    facts: dict[str, object]

    def error(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.arguments)
        error.__dict__.update(self.facts)
        return error


async def done_elsewhere(work: Work[T], report: Report | None = None) -> T:
    """Do work in a process of its own; raise what it raises, and EOFError if the process ends without a word.

    Whoever stops waiting ends the process.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    loop = asyncio.get_running_loop()
    nobody_waits = threading.Event()

    def pass_on(told: _Told) -> None:
        if report is not None and not nobody_waits.is_set():
            loop.call_soon_threadsafe(report, told.done, told.total)

    def talk() -> T:
        # Nobody else closes our end: its number could be another connection's by the time that this thread reads on.
        with ours:
            with theirs:
                process.start()
            try:
                if nobody_waits.is_set():  # since before there was a process that could be ended
                    raise EOFError
                result: T = _conversation(ours, work, pass_on)
                return result
            finally:
                process.kill()
                process.join()

    try:
        return await asyncio.to_thread(talk)
    except asyncio.CancelledError:
        nobody_waits.set()
        if process.is_alive():
            process.kill()
        raise


def _conversation(pipe: Connection, work: Work[T], pass_on: Callable[[_Told], None]) -> T:
    """Hand the work over, and hear how far it is and what comes of it."""
    try:
        pipe.send(work)
        while isinstance(news := pipe.recv(), _Told):
            pass_on(news)
    except OSError as error:  # the process has ended in the middle of a message
        raise EOFError from error
    if isinstance(news, _Raised):
        raise news.error()
    result: T = news.value
    return result


def _work(pipe: Connection) -> None:
    os.nice(POLITE)
    work: Work[Any] = pipe.recv()
    try:
        pipe.send(_Result(work(lambda done, total: pipe.send(_Told(done, total)))))
    except Exception as error:  # noqa: BLE001  # whoever asked for the work deals with it
        pipe.send(_Raised(type(error), error.args, vars(error)))
