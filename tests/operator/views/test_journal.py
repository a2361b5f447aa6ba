"""API views of the journal, and which entries a caller may read."""

import msgspec
import pytest

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.journal import Entry, EntryKind
from forewarn.operator.auth import Caller
from forewarn.operator.views import journal
from forewarn.operator.views.journal import RowEncoder, read_predicate, show_row
from forewarn.store.port import JournalRow, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, scope, vm
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, campaign_spec, start_campaign
from tests.fleet.fleets import run_fleet


def a_row(kind: RecordKind, id_: str) -> JournalRow:
    entry = Entry(
        n=3,
        at=TEN,
        kind=EntryKind.STARTED,
        by="clock",
        why="due",
        event="E1",
        vms=("v",),
        incarnation=7,
        facts={"a": "b"},
    )
    return JournalRow(9, RecordKey(kind, id_), entry)


def test_row_is_shown_with_record_action_actor_and_reason() -> None:
    assert show_row(a_row(RecordKind.SCOPE, "web")) == v1.JournalEntry(
        position=9,
        record_kind="scope",
        record_id="web",
        at=TEN,
        action=EntryKind.STARTED,
        actor="clock",
        reason="due",
        event="E1",
        vms=("v",),
        incarnation=7,
        facts={"a": "b"},
    )


ROWS = [
    a_row(RecordKind.SCOPE, "web"),
    a_row(RecordKind.SCOPE, "db"),
    a_row(RecordKind.CAMPAIGN, CAMPAIGN_ID),
    a_row(RecordKind.CAMPAIGN, "gone"),
    a_row(RecordKind.TOKEN, "t"),
    a_row(RecordKind.FLEET, "ledger"),
]


async def readable(*scopes: str) -> list[str]:
    async with run_fleet(scope("web", vm("web-0")), scope("db", vm("db-0"))) as fleet:
        await start_campaign(fleet, campaign_spec())
        can_read = read_predicate(fleet, Caller(token="tk_ci", name="ci", role=Role.VIEWER, scopes=scopes))
        return [row.key.id for row in ROWS if can_read(row)]


async def test_token_without_scopes_reads_everything() -> None:
    assert await readable() == [row.key.id for row in ROWS]


async def test_limited_token_reads_its_scopes_and_campaigns_over_these_alone() -> None:
    assert await readable("web") == ["web"]
    assert await readable("web", "db") == ["web", "db", CAMPAIGN_ID]


def test_encoder_keeps_a_limited_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENCODED_ROWS", 2)
    encoder = RowEncoder()
    row = a_row(RecordKind.SCOPE, "web")
    rows = [msgspec.structs.replace(row, position=n) for n in range(4)]
    encoded = [encoder.encode(row) for row in rows]
    assert encoded[3] == b"id: 3\ndata: " + msgspec.json.encode(show_row(rows[3])) + b"\n\n"
    assert encoder.encode(rows[3]) is encoded[3]
    assert encoder.encode(rows[0]) is not encoded[0]
    assert encoder.encode(rows[0]) == encoded[0]
