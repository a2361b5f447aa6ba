"""The writer on a disk that cannot be written yet: it refuses, and opens the real one later."""

from pathlib import Path

import pytest

from forewarn.store.port import Record, Retention, StoreError, StoreFull
from forewarn.store.sqlite import pending_writer
from forewarn.store.sqlite.database import DATABASE_FILE, prepare_database
from forewarn.store.sqlite.pending_writer import PendingWriter
from forewarn.store.sqlite.writer import Save, Writer
from tests.store.contract import NOON, WEB

SAVE = Save(WEB, b"value", (), None)


class Opener:
    """Opens the real writer, or fails while the disk is full."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_full, self.attempts = path, True, 0
        prepare_database(path)

    def __call__(self) -> Writer:
        self.attempts += 1
        if self.is_full:
            raise StoreFull(self.path)
        return Writer(self.path)


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    return Opener(tmp_path / DATABASE_FILE)


def test_everything_is_refused_until_the_disk_can_be_written(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_writer, "RETRY_SECONDS", 0.0)
    writer = PendingWriter(opener.path, StoreFull(opener.path), opener)
    (refused,) = writer.commit([SAVE])
    assert isinstance(refused, StoreFull)
    for change in (writer.check, lambda: writer.prune(Retention(), NOON)):
        with pytest.raises(StoreFull):
            change()
    assert writer.settle() == []
    opener.is_full = False
    assert writer.commit([SAVE]) == [Record(WEB, b"value", 1)]
    writer.check(1_000)
    assert (writer.prune(Retention(), NOON), writer.settle(), opener.attempts) == (0, [], 4)
    writer.close()


def test_attempts_are_limited(opener: Opener) -> None:
    """A thousand refused saves must not open the file a thousand times."""
    error = StoreFull(opener.path)
    writer = PendingWriter(opener.path, error, opener)
    assert [writer.commit([SAVE]) for _ in range(1_000)] == [[error]] * 1_000
    assert opener.attempts == 0
    writer.close()


def test_newest_error_is_reported(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_writer, "RETRY_SECONDS", 0.0)
    first = StoreFull(Path("/first"))
    (error,) = PendingWriter(opener.path, first, opener).commit([SAVE])
    assert isinstance(error, StoreError)
    assert error is not first
