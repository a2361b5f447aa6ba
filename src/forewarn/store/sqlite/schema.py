"""SQLite schema: tables, indexes, and the migrations from older versions."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

APPLICATION_ID = 0x46574E31
"""Marks a file as Forewarn's: `FWN1` in its header."""

Migration = tuple[str, ...]

MIGRATIONS: tuple[Migration, ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        """
        CREATE TABLE records (
            number   INTEGER PRIMARY KEY,  -- the order of the snapshot; a row keeps it while the record lives
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            revision INTEGER NOT NULL,
            value    BLOB    NOT NULL,
            UNIQUE (kind, id)
        )
        """,
        """
        CREATE TABLE journal (
            position INTEGER PRIMARY KEY,
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            at       INTEGER NOT NULL,     -- microseconds since 1970
            entry    TEXT    NOT NULL      -- JSON
        )
        """,
        "CREATE INDEX journal_by_record ON journal (kind, id)",
        "CREATE INDEX journal_by_time ON journal (at)",
        """
        CREATE TABLE counters (
            one          INTEGER PRIMARY KEY CHECK (one = 1),
            revision     INTEGER NOT NULL,  -- the last one given, to whichever record
            position     INTEGER NOT NULL,  -- the last one given
            journal_rows INTEGER NOT NULL   -- how many there are: to count them would take time
        )
        """,
        "INSERT INTO counters VALUES (1, 0, 0, 0)",
    ),
    (
        # Copies of fields of the entry, for the indexes; NULL for an entry that is not valid JSON.
        "ALTER TABLE journal ADD COLUMN event TEXT",
        "ALTER TABLE journal ADD COLUMN did TEXT",
        "ALTER TABLE journal ADD COLUMN author TEXT",
        """
        UPDATE journal SET
            event = json_extract(entry, '$.event'),
            did = json_extract(entry, '$.did'),
            author = json_extract(entry, '$.by')
        WHERE json_valid(entry)
        """,
        "CREATE INDEX journal_by_event ON journal (event) WHERE event IS NOT NULL",
        "CREATE INDEX journal_by_did ON journal (did, at)",
        # In order of position and with the time, so that a page is found without sorting or reading entries.
        "CREATE INDEX journal_by_author ON journal (author, position, at)",
        "DROP INDEX journal_by_record",
        "CREATE INDEX journal_by_record ON journal (kind, id, position, at)",
        "ALTER TABLE counters ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0",  # the highest position ever removed
        "UPDATE counters SET pruned = coalesce((SELECT min(position) - 1 FROM journal), position)",
        "ALTER TABLE counters ADD COLUMN checks INTEGER NOT NULL DEFAULT 0",  # goes up to prove that it can
    ),
    (
        # The idempotency key of the request, for those few entries that have it.
        "ALTER TABLE journal ADD COLUMN request TEXT",
        "UPDATE journal SET request = json_extract(entry, '$.facts.key') WHERE json_valid(entry)",
        "CREATE INDEX journal_by_request ON journal (request) WHERE request IS NOT NULL",
    ),
    (
        # The hold on the whole fleet, and the keys of the requests that changed it, get a separate record, which guards
        # starts of events. Older versions refuse this file, and so never miss a hold.
        """
        INSERT INTO records (kind, id, revision, value)
        SELECT kind, 'hold', (SELECT revision + 1 FROM counters), CAST(json_remove(
            CAST(value AS TEXT), '$.entries', '$.filled', '$.outages', '$.alive_at', '$.clock_at', '$.ports'
        ) AS BLOB)
        FROM records WHERE kind = 'fleet' AND id = 'ledger' AND json_valid(CAST(value AS TEXT))
        """,
        """
        UPDATE records SET
            revision = (SELECT revision + 2 FROM counters),
            value = CAST(json_remove(CAST(value AS TEXT), '$.held', '$.answered') AS BLOB)
        WHERE kind = 'fleet' AND id = 'ledger' AND json_valid(CAST(value AS TEXT))
        """,
        "UPDATE counters SET revision = max(revision, (SELECT coalesce(max(revision), 0) FROM records))",
    ),
)
"""MIGRATIONS[n] leads from version n to version n + 1. Released migrations are never changed, only added to."""

SCHEMA_VERSION = len(MIGRATIONS)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Convert a datetime to the journal table's format."""
    return (moment - _EPOCH) // _MICROSECOND


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of a file; 0 is a file without a schema."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Migrate a file to the newest version. Each step is one transaction."""
    for version in range(read_version(connection), len(migrations)):
        with transaction(connection):
            for statement in migrations[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the statements of the context as one transaction."""
    if connection.in_transaction:  # an earlier rollback failed
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself ends it after some errors
            connection.execute("ROLLBACK")
        raise
