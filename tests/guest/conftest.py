"""The endpoint is tested on uvloop, on which it is served, and on asyncio's own loop, on which users may embed it."""

import asyncio
import resource
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

FILES = 4096
"""Open files that the tests need: each connection has two ends here."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test on both."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def open_files() -> Iterator[int]:
    """Let this process open as many files as the tests need, or as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, soft), hard))
    yield max(files, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
