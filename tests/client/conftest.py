"""What the tests of the client share."""

import pytest

from tests.client.users import AsyncUser, BlockingUser, User


@pytest.fixture(params=[BlockingUser, AsyncUser], ids=["blocking", "async"])
def user(request: pytest.FixtureRequest) -> User:
    """A program with a client of either kind."""
    made: User = request.param()
    return made


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have an endpoint of their own."""
    monkeypatch.delenv("FOREWARN_ENDPOINT", raising=False)
