"""Every test of the endpoint runs on uvloop, which the service uses, and on asyncio's loop, which users may use."""

import asyncio
import resource
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

FILES = 4096
"""Open files that the tests need: both ends of each connection are in this process."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test on both loops."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def open_files() -> Iterator[int]:
    """Raise the limit of open files to what the tests need, or as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, soft), hard))
    yield max(files, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
