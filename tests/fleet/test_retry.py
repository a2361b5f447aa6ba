"""Repeated saves: until the store can save; other errors are the caller's."""

import logging

import pytest

from forewarn.fleet import retry
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed, ScopeNotFound
from forewarn.fleet.retry import repeat_until_saved
from forewarn.store.port import StoreError


class Saves:
    """Raises these errors, one per call, and then returns 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def save(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 7


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 0.002)


async def test_save_is_repeated_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    errors = (SaveFailed("disk full"), OutcomeUnknown("I/O error"), SaveFailed("disk full"))
    with caplog.at_level(logging.WARNING, logger=retry.__name__):
        assert await repeat_until_saved("save scope web", Saves(*errors).save) == 7
    assert caplog.messages == [f"could not save scope web: {error}; retrying in 0.0 s" for error in errors]


async def test_other_errors_pass_through_unless_listed() -> None:
    with pytest.raises(ScopeNotFound):
        await repeat_until_saved("save scope web", Saves(SaveFailed("disk full"), ScopeNotFound("web")).save)
    assert await repeat_until_saved("read", Saves(StoreError()).save, (StoreError,)) == 7
