"""The reading side finds rows by an index, and cuts the snapshot into pages of a bounded size."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.journal import EntryKind
from forewarn.store.port import JournalQuery, Record, RecordKey, RecordKind, StoreFull
from forewarn.store.sqlite.database import DATABASE_FILE, open_unused, prepare_database
from forewarn.store.sqlite.reader import PAGE_BYTES, Reader, _journal_statement
from forewarn.store.sqlite.writer import Save, Writer, encode_entries
from tests.store.contract import NOON, WEB, entries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    prepare_database(tmp_path / "forewarn.db")
    return tmp_path / "forewarn.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    writer = Writer(path)
    yield writer
    writer.close()


@pytest.fixture
def reader(path: Path, writer: Writer) -> Iterator[Reader]:
    reader = Reader(path)
    yield reader
    reader.close()


def save(writer: Writer, name: str, value: bytes) -> Record:
    [outcome] = writer.commit([Save(RecordKey(RecordKind.SCOPE, name), value, encode_entries(entries(1)), None)])
    assert isinstance(outcome, Record)
    return outcome


def test_pages_have_a_bounded_size_and_no_gap(writer: Writer, reader: Reader) -> None:
    saved = [save(writer, f"scope-{n}", bytes(PAGE_BYTES // 3)) for n in range(10)]
    pages = [reader.page(0)]
    while (number := pages[-1].next) is not None:
        pages.append(reader.page(number))
    assert [len(page.records) for page in pages] == [4, 4, 2]
    assert [record for page in pages for record in page.records] == saved


def test_page_has_the_revision_of_its_snapshot(writer: Writer, reader: Reader) -> None:
    assert reader.page(0).as_of == 0
    saved = [save(writer, f"scope-{n}", bytes(PAGE_BYTES // 3)) for n in range(10)]
    first = reader.page(0)
    assert first.as_of == saved[-1].revision
    later = save(writer, "later", b"value")
    assert first.next is not None
    assert reader.page(first.next).as_of == later.revision


def test_page_does_not_keep_a_read_transaction(writer: Writer, reader: Reader) -> None:
    """A reader that stayed in its transaction would see an old state, and keep the log from being written back."""
    for n in range(10):
        save(writer, f"scope-{n}", bytes(PAGE_BYTES // 3))
    assert reader.page(0).next is not None
    later = save(writer, "later", b"value")
    assert reader.load(later.key) == later


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize(
    ("query", "plan"),
    [
        pytest.param(JournalQuery(after=7), "SEARCH journal USING INTEGER PRIMARY KEY", id="all"),
        pytest.param(JournalQuery(since=NOON), "COVERING INDEX journal_by_time", id="since"),
        pytest.param(JournalQuery(until=NOON), "COVERING INDEX journal_by_time", id="until"),
        pytest.param(JournalQuery(key=WEB), "INDEX journal_by_record", id="key"),
        pytest.param(
            JournalQuery(key=WEB, since=NOON, until=NOON + timedelta(days=1), after=7),
            "COVERING INDEX journal_by_record",
            id="key and time",
        ),
        pytest.param(JournalQuery(event="E1"), "INDEX journal_by_event", id="event"),
        pytest.param(JournalQuery(event="E1", key=WEB, vm="web-0"), "INDEX journal_by_event", id="event and vm"),
        pytest.param(JournalQuery(key=WEB, vm="web-0"), "INDEX journal_by_record", id="vm"),
        pytest.param(JournalQuery(key=WEB, vm="web-0", since=NOON), "INDEX journal_by_record", id="vm and time"),
        pytest.param(JournalQuery(kinds=(EntryKind.STARTED,)), "COVERING INDEX journal_by_did", id="kind"),
        pytest.param(
            JournalQuery(kinds=(EntryKind.STARTED, EntryKind.HELD), since=NOON, until=NOON + timedelta(days=1)),
            "COVERING INDEX journal_by_did (did=? AND at>? AND at<?)",
            id="kinds and time",
        ),
        pytest.param(JournalQuery(request="k1"), "INDEX journal_by_request (request=?", id="request"),
        pytest.param(
            JournalQuery(request="k1", key=WEB, kinds=(EntryKind.SCOPE_CREATED,), since=NOON),
            "INDEX journal_by_request (request=?",
            id="request and all the rest",
        ),
        pytest.param(JournalQuery(by="ada"), "COVERING INDEX journal_by_author (author=? AND position>?)", id="author"),
        pytest.param(JournalQuery(by="ada", since=NOON), "COVERING INDEX journal_by_author", id="author and time"),
    ],
)
def test_journal_is_searched_and_never_scanned(path: Path, query: JournalQuery, plan: str, newest_first: bool) -> None:
    statement, parameters = _journal_statement(msgspec.structs.replace(query, newest_first=newest_first))
    with closing(sqlite3.connect(path)) as connection:
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert any(plan in step for step in steps), steps
    scanned = [step for step in steps if step.startswith("SCAN") and not step.startswith("SCAN json_each")]
    assert not scanned, steps


def test_unchanging_file_is_opened_again_beside_its_writer(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    prepare_database(path)
    with closing(Reader(path, open_unused)) as reader:
        assert reader.load(WEB) is None
        with pytest.raises(StoreFull):
            reader.open_beside(full)
        assert reader.load(WEB) is None
        with closing(reader.open_beside(lambda: Writer(path))) as writer:
            writer.commit([Save(WEB, b"value", (), None)])
            assert reader.load(WEB) == Record(WEB, b"value", 1)


def full() -> Writer:
    raise StoreFull(Path("/test"))
