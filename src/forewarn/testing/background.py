"""Run an async context manager in a background thread with its own event loop, for synchronous programs."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Generic, TypeVar

import uvloop

from forewarn.core.base_error import BaseError

T = TypeVar("T")

STOP_TIMEOUT = 30.0
"""How many seconds to wait for the thread to end before raising BackgroundTimeout."""


class BackgroundTimeout(BaseError):
    """The thread did not end after it was asked to stop."""

    template = "{name} has not ended within {seconds:g} s"
    name: str
    seconds: float


class BackgroundContext(Generic[T]):
    """Enters the context manager that `factory` creates in a background thread, and exits it there on `stop`."""

    def __init__(self, factory: Callable[[], AbstractAsyncContextManager[T]], *, name: str) -> None:
        self._factory, self._name = factory, name
        self._loop = uvloop.new_event_loop()
        self._started = threading.Event()
        self._stop_requested = asyncio.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> T:
        """Enter the context and return its value; an error in the thread is raised here.

        If the caller is interrupted while it waits, the context is exited before the interrupt is raised again.
        """
        try:
            self._thread.start()
            self._started.wait()
        except BaseException:
            self._request_stop()
            if self._thread.is_alive():
                self._thread.join(STOP_TIMEOUT)
            raise
        if self._value is None:
            self._join()
            raise AssertionError(f"{self._name} has neither started nor failed")
        return self._value

    def stop(self) -> None:
        """Exit the context; an error in the thread is raised here. A second call does nothing."""
        self._request_stop()
        self._join()

    def _request_stop(self) -> None:
        with suppress(RuntimeError):  # the loop is already closed: the thread ended by itself
            self._loop.call_soon_threadsafe(self._stop_requested.set)

    def _join(self) -> None:
        self._thread.join(STOP_TIMEOUT)
        if self._thread.is_alive():
            raise BackgroundTimeout(self._name, STOP_TIMEOUT)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._hold_open())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread, by _join
            self._error = error
        finally:
            self._started.set()

    async def _hold_open(self) -> None:
        async with self._factory() as value:
            self._value = value
            self._started.set()
            await self._stop_requested.wait()
