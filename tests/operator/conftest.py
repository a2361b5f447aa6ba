"""Tests of the HTTP server run on uvloop, which the service uses, and on asyncio's loop; all others on one of them."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = frozenset({"test_http_server", "test_app"})


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops for a test."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if item.path.stem in ON_BOTH_LOOPS else {"asyncio": asyncio.new_event_loop}
