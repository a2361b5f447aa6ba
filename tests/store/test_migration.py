"""Checksums of a store's content: they notice each difference, and do not depend on the order of records."""

import pytest

from forewarn.store.migration import ContentSummary, KindSummary, MigrationCursor, MigrationPage, is_migrated
from forewarn.store.port import JournalRow, Record, RecordKey
from tests.store.contract import BATCH, HOLD, LEASE, WEB, entry

ROWS = (JournalRow(3, WEB, entry(1)), JournalRow(4, BATCH, entry(1)), JournalRow(9, WEB, entry(2)))
RECORDS = (Record(WEB, b"web", 5), Record(BATCH, b"batch", 6), Record(HOLD, b"hold", 7))


def summarize(*pages: tuple[tuple[JournalRow, ...], tuple[Record, ...]]) -> tuple[KindSummary, ...]:
    summary = ContentSummary()
    for rows, records in pages:
        summary.add(MigrationPage(rows, records, MigrationCursor()))
    return summary.kinds()


def test_same_content_has_the_same_summary_in_any_pages_and_with_any_numbers() -> None:
    moved = tuple(JournalRow(row.position + 1_000, row.key, row.entry) for row in ROWS)
    saved_again = tuple(Record(record.key, record.value, record.revision + 9) for record in reversed(RECORDS))
    whole = summarize((ROWS, RECORDS))
    assert whole == summarize((moved[:1], saved_again[:2]), (moved[1:], saved_again[2:]))
    assert [(each.kind, each.count) for each in whole] == [("fleet", 1), ("journal", 3), ("scope", 2)]
    assert len({each.checksum for each in whole}) == 3


@pytest.mark.parametrize(
    ("rows", "records"),
    [
        (ROWS[:2], RECORDS),
        ((ROWS[1], ROWS[0], ROWS[2]), RECORDS),
        ((JournalRow(3, WEB, entry(1, by="other")), *ROWS[1:]), RECORDS),
        ((JournalRow(3, HOLD, entry(1)), *ROWS[1:]), RECORDS),
        (ROWS, RECORDS[:2]),
        (ROWS, (Record(WEB, b"Web", 5), *RECORDS[1:])),
        (ROWS, (Record(WEB, b"batch", 5), Record(BATCH, b"web", 6), RECORDS[2])),
    ],
)
def test_every_difference_changes_the_summary(rows: tuple[JournalRow, ...], records: tuple[Record, ...]) -> None:
    assert summarize((rows, records)) != summarize((ROWS, RECORDS))


def test_leases_and_progress_stay_where_they_are() -> None:
    keys = (WEB, HOLD, LEASE, RecordKey(HOLD.kind, "migration"))
    assert [is_migrated(key) for key in keys] == [True, True, False, False]
