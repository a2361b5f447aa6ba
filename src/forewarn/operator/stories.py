"""An event from its beginning: as it stands while it is open, and as the journal tells it, also when it is over."""

from collections.abc import Sequence

from forewarn.api import v1
from forewarn.core.change import OUTCOMES
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.fleet.service import Fleet
from forewarn.operator.errors import NeverKnown
from forewarn.operator.showing_events import show_event
from forewarn.operator.showing_journal import show_row
from forewarn.store.port import JournalQuery, JournalRow, RecordKey, RecordKind

TIMELINE = 1_000
"""How many lines of the journal a story has at most: an event over a thousand VMs has several for each."""

BEGINNINGS = (EntryKind.SCHEDULED, EntryKind.STARTED)
"""The first line of an event is one of these, and tells its type."""


async def tell(fleet: Fleet, id_: str) -> v1.EventStory:
    """Tell the story of an event."""
    found = fleet.replica.find_event(id_)
    rows = await _timeline(fleet, id_.upper(), None if found is None else found[0].id)
    if found is not None:
        view, event = found
        scope = fleet.replica.scope(view.id)
        shown = show_event(fleet, scope, event, now=fleet.clock.now())
        return v1.EventStory(
            id=event.id,
            scope=view.id,
            type=event.type,
            vms=event.vms,
            event=shown,
            outcome=None,
            ended_at=None,
            timeline=tuple(map(show_row, rows)),
        )
    if not rows:
        raise NeverKnown(id_)
    return await _told(fleet, id_.upper(), rows)


async def _told(fleet: Fleet, id_: str, rows: Sequence[JournalRow]) -> v1.EventStory:
    """Tell of an ended event what the journal knows."""
    first = await _beginning(fleet, id_, rows)
    ending = next((row.entry for row in reversed(rows) if row.entry.kind in OUTCOMES), None)
    type_ = first.entry.facts.get("type")
    return v1.EventStory(
        id=id_,
        scope=first.key.id,
        type=None if type_ is None else EventType(type_),
        vms=first.entry.vms,
        event=None,
        outcome=None if ending is None else OUTCOMES[ending.kind],
        ended_at=None if ending is None else ending.at,
        timeline=tuple(map(show_row, rows)),
    )


async def _timeline(fleet: Fleet, id_: str, scope: str | None) -> list[JournalRow]:
    key = None if scope is None else RecordKey(RecordKind.SCOPE, scope)
    rows = await fleet.read_journal(JournalQuery(key=key, event=id_, newest_first=True, limit=TIMELINE))
    return rows[::-1]


async def _beginning(fleet: Fleet, id_: str, rows: Sequence[JournalRow]) -> JournalRow:
    """Return the event's first line, or the oldest one that is left of it."""
    if len(rows) < TIMELINE:
        return rows[0]
    return next(iter(await fleet.read_journal(JournalQuery(event=id_, kinds=BEGINNINGS, limit=1))), rows[0])
