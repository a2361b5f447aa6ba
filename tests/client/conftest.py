"""Fixtures of the client tests."""

from collections.abc import Iterator

import pytest

from forewarn.client import transport
from tests.client.callers import threads_of_the_client
from tests.client.faulty_server import GUARD, FakeTime
from tests.client.users import AsyncUser, SyncUser, User


@pytest.fixture(params=[SyncUser, AsyncUser], ids=["blocking", "async"])
def user(request: pytest.FixtureRequest) -> User:
    """A program that uses the sync or the asyncio client."""
    made: User = request.param()
    return made


@pytest.fixture
def passing_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """A fake clock for response times. The client polls it, because the system cannot wait on a fake clock."""
    passing_time = FakeTime()
    monkeypatch.setattr(transport, "time", passing_time)
    monkeypatch.setattr(transport, "LONGEST_BLOCK", 0.01)
    return passing_time


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that the developer may have set."""
    monkeypatch.delenv("FOREWARN_ENDPOINT", raising=False)


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """Wait for the threads that the test started; ignore those of other tests."""
    before = set(threads_of_the_client())
    yield
    new = set(threads_of_the_client()) - before
    for thread in new:
        thread.join(GUARD)
    assert {thread for thread in new if thread.is_alive()} == set()
