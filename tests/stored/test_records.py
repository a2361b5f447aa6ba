"""Every value that commit 450409b has stored is decoded to what it meant there, and encoded to the same bytes.

Most fields have defaults, and unknown ones are ignored: without this, a renamed field would silently be empty.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from forewarn.core.campaign.record import Campaign
from tests.stored.records import EXPECTED, STORED, copy, read_all, read_journal, written_journal
from tests.stored.rendering import missing


def test_every_record_is_decoded_to_the_same_value() -> None:
    """450409b kept the hold on the fleet in the fleet state; now it is a record of its own."""
    expected = json.loads((EXPECTED / "records.json").read_text())
    expected["fleet/hold"] = {name: expected["fleet/ledger"].pop(name) for name in ("held", "answered")}
    assert expected["fleet/hold"]["held"]["reason"] == "change freeze"
    assert missing(expected, {stored.name: stored.rendered() for stored in read_all(STORED)}) == []


def test_every_record_is_encoded_to_the_same_bytes() -> None:
    different = {stored.name: stored.encoded for stored in read_all(STORED) if stored.encoded != stored.content}
    assert different == {}


def test_waves_and_progress_of_scopes_have_their_fields_in_the_same_positions() -> None:
    """Read them by attribute: a position says nothing of what is meant by it."""
    for stored in read_all(STORED):
        if isinstance(stored.value, Campaign):
            read = [
                [
                    progress.scope,
                    progress.base,
                    [[wave.update_domain, wave.planned, wave.state, wave.at, wave.vms] for wave in progress.waves],
                    progress.seen,
                    progress.closed,
                ]
                for progress in stored.value.scopes
            ]
            assert read == json.loads(stored.content)["scopes"]


async def test_every_journal_entry_is_decoded_to_the_same_value(tmp_path: Path) -> None:
    expected = json.loads((EXPECTED / "journal.json").read_text())
    assert missing(expected, await read_journal(copy(tmp_path))) == []


async def test_every_journal_entry_is_written_to_the_same_columns(tmp_path: Path) -> None:
    data = copy(tmp_path)
    with closing(sqlite3.connect(data / "forewarn.db")) as database:
        columns = "at, entry, event, did, author, request"
        rows = database.execute(f"SELECT {columns} FROM journal ORDER BY position").fetchall()
    assert await written_journal(data) == rows
