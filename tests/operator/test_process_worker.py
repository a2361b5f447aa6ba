"""Work in a separate process: result, errors and cancellation."""

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forewarn.api.errors import NotFound
from forewarn.operator import process_worker
from forewarn.operator.process_worker import run_in_process, without_copy
from tests.operator.running_api import GUARD

pytestmark = pytest.mark.process


def explode(_: object) -> None:
    raise NotFound(404, "unknown", "with facts of its own", {"a": "b"})


async def test_error_of_the_process_is_raised_with_its_details() -> None:
    with pytest.raises(NotFound, match="with facts of its own") as raised:
        await run_in_process(explode)
    assert (raised.value.status, raised.value.code, raised.value.details) == (404, "unknown", {"a": "b"})


def reverse(chunks: list[bytes], _: object) -> list[bytes]:
    return without_copy(reversed(chunks))


async def test_chunks_without_copy_arrive_as_bytes_of_any_size() -> None:
    large, empty = bytes(range(256)) * 10_000, b""
    assert await run_in_process(partial(reverse, without_copy([large, empty]))) == [empty, large]


def vanish(_: object) -> None:
    os._exit(1)


async def test_death_of_the_process_raises_eof_error() -> None:
    with pytest.raises(EOFError):
        await run_in_process(vanish)


async def test_death_before_the_work_is_sent_raises_eof_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_worker, "_run_child", vanish)
    with pytest.raises(EOFError):
        await run_in_process(partial(stay, bytes(4_000_000)))


def stay(file: Any, _: object) -> None:
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    while True:
        time.sleep(GUARD)


async def test_cancellation_kills_the_process(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    waiting = asyncio.create_task(run_in_process(partial(stay, file)))
    async with asyncio.timeout(GUARD):
        while not file.exists():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.01)
        pid = int(file.read_text())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.get_running_loop().shutdown_default_executor()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_cancellation_before_the_start_kills_the_process(tmp_path: Path) -> None:
    """A cancellation before the process exists must not leave it behind."""
    file = tmp_path / "pid"
    waiting = asyncio.create_task(run_in_process(partial(stay, file)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not file.exists()
