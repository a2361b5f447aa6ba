"""Tests of the background thread and the temporary directory of the in-test service."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import pytest

from forewarn.testing.background import BackgroundContext
from tests.testing.handlers import GUARD


class Context:
    """A context manager that logs where it is entered and that it is exited."""

    def __init__(self, *, fails: bool = False) -> None:
        self.log: list[str] = []
        self._fails = fails

    @asynccontextmanager
    async def make(self) -> AsyncIterator[str]:
        self.log.append(threading.current_thread().name)
        try:
            yield "value"
        finally:
            self.log.append("left")
        if self._fails:
            raise ValueError("it has gone wrong")


class TestBackground:
    def test_context_is_entered_and_exited_in_the_thread(self) -> None:
        context = Context()
        background = BackgroundContext(context.make, name="behind")
        assert background.start() == "value"
        assert context.log == ["behind"]
        background.stop()
        assert context.log == ["behind", "left"]

    def test_error_during_exit_is_raised_once(self) -> None:
        background = BackgroundContext(Context(fails=True).make, name="behind")
        background.start()
        with pytest.raises(ValueError, match="it has gone wrong"):
            background.stop()
        background.stop()

    def test_interrupt_during_start_exits_the_context_and_ends_the_thread(self) -> None:
        main, interrupted = threading.get_ident(), threading.Event()
        context = Context()

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            interrupted.set()
            raise KeyboardInterrupt

        @asynccontextmanager
        async def make() -> AsyncIterator[str]:
            signal.pthread_kill(main, signal.SIGINT)
            assert await asyncio.to_thread(interrupted.wait, GUARD)
            async with context.make() as value:
                yield value

        before, threads = signal.signal(signal.SIGINT, interrupt), set(threading.enumerate())
        try:
            with pytest.raises(KeyboardInterrupt):
                BackgroundContext(make, name="behind").start()
        finally:
            signal.signal(signal.SIGINT, before)
        assert context.log == ["behind", "left"]
        assert set(threading.enumerate()) <= threads


DIRECTORY = """
import os, sys
from forewarn.testing.service import temporary_directory
kept = temporary_directory()
directory = kept.__enter__()
print(directory, flush=True)
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
print(directory.is_dir())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_directory_is_removed_by_its_process_but_not_by_a_fork() -> None:
    command = [sys.executable, "-c", DIRECTORY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD)
    directory, is_there = done.stdout.splitlines()
    assert is_there == "True"
    assert not Path(directory).exists()
