"""What the tests of the client share."""

import pytest

from forewarn.client import transport
from tests.client.faulty_server import FakeTime
from tests.client.users import AsyncUser, SyncUser, User


@pytest.fixture(params=[SyncUser, AsyncUser], ids=["blocking", "async"])
def user(request: pytest.FixtureRequest) -> User:
    """A program with a client of either kind."""
    made: User = request.param()
    return made


@pytest.fixture
def passing_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The time that answers take. The client looks at it again and again, since the system cannot wait by it."""
    passing_time = FakeTime()
    monkeypatch.setattr(transport, "time", passing_time)
    monkeypatch.setattr(transport, "LONGEST_BLOCK", 0.01)
    return passing_time


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have an endpoint of their own."""
    monkeypatch.delenv("FOREWARN_ENDPOINT", raising=False)
