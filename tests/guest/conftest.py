"""The endpoint is tested on uvloop, on which it is served, and on asyncio's own loop, on which users may embed it."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test on both."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
