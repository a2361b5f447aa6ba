"""API views of journal entries, and which entries a caller may read."""

from collections.abc import Callable

import msgspec

from forewarn.api import v1
from forewarn.fleet.errors import CampaignNotFound
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller
from forewarn.operator.lookup import find_campaign
from forewarn.store.port import JournalRow, RecordKind

MAX_ENCODED_ROWS = 1_000
"""How many encoded rows are kept: about as many as the journal keeps for its streams."""


def show_row(row: JournalRow) -> v1.JournalEntry:
    """Return a journal entry as a response type."""
    entry = row.entry
    return v1.JournalEntry(
        position=row.position,
        record_kind=row.key.kind.value,
        record_id=row.key.id,
        at=entry.at,
        action=entry.kind,
        actor=entry.by,
        reason=entry.why,
        event=entry.event,
        vms=entry.vms,
        incarnation=entry.incarnation,
        facts=entry.facts,
    )


class RowEncoder:
    """Encodes journal rows as server-sent events, the newest ones only once for all streams."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._known: dict[int, bytes] = {}

    def encode(self, row: JournalRow) -> bytes:
        """Return the event of a row: its position, and the journal entry."""
        known = self._known.get(row.position)
        if known is None:
            known = b"id: %d\ndata: %b\n\n" % (row.position, self._encode(show_row(row)))
            if len(self._known) >= MAX_ENCODED_ROWS:
                del self._known[next(iter(self._known))]
            self._known[row.position] = known
        return known


def read_predicate(fleet: Fleet, caller: Caller) -> Callable[[JournalRow], bool]:
    """Return a function that checks whether the caller may read an entry. A limited token reads only its scopes."""
    campaigns: dict[str, bool] = {}

    def can_read(row: JournalRow) -> bool:
        match row.key.kind:
            case _ if not caller.scopes:
                return True
            case RecordKind.SCOPE:
                return caller.can_see(row.key.id)
            case RecordKind.CAMPAIGN:
                if row.key.id not in campaigns:
                    campaigns[row.key.id] = _is_visible(fleet, caller, row.key.id)
                return campaigns[row.key.id]
            case _:
                return False

    return can_read


def _is_visible(fleet: Fleet, caller: Caller, campaign: str) -> bool:
    try:
        find_campaign(fleet, caller, campaign)
    except CampaignNotFound:
        return False
    return True
