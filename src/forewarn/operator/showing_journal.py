"""The journal, as the types of the API. Nothing is decided here."""

from forewarn.api import v1
from forewarn.operator.access import Caller
from forewarn.store.port import JournalRow, Kind


def show_row(row: JournalRow) -> v1.JournalEntry:
    """Show a line of the journal."""
    entry = row.entry
    return v1.JournalEntry(
        position=row.position,
        kind=row.key.kind.value,
        record=row.key.id,
        at=entry.at,
        did=entry.did,
        by=entry.by,
        why=entry.why,
        event=entry.event,
        vms=entry.vms,
        incarnation=entry.incarnation,
        facts=entry.facts,
    )


def may_see(caller: Caller, row: JournalRow) -> bool:
    """Tell whether a line is the caller's to read: one who is limited to scopes reads of those alone."""
    return not caller.scopes or (row.key.kind is Kind.SCOPE and caller.sees(row.key.id))
