"""Event views: tables of events and journal entries, and texts about blockers and holds."""

from collections.abc import Iterable, Sequence

import msgspec

from forewarn.api import v1
from forewarn.api.cells import cell_of
from forewarn.cli.colours import Colour
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.output import moment_text, uniform_times, write_message
from forewarn.cli.views.tables import SHORT_ID, Column, Row, single_line, with_cells, write_table
from forewarn.core.explain import CAMPAIGN_PREFIX, BlockerCode
from forewarn.core.idempotency import REQUEST_FACTS
from forewarn.core.impact import ImpactState
from forewarn.core.scope import EventOutcome

MAX_VMS = 2
"""How many VMs a journal line names; of more it shows the number. `-o json` has all names."""

HIDDEN_FACTS = REQUEST_FACTS | {"epoch"}
"""Internal facts, which identify repeated requests and the epoch of a scope; not shown."""

LOCATION_FACTS = ("scope", "wave")
"""The facts with the location in a campaign's entries."""

ON_TIME = "0."
"""How a lateness of less than a second starts; it is not shown."""

STATUS = Column(
    "STATUS",
    colours={
        "Started": Colour.WARNING,
        EventOutcome.COMPLETED.value: Colour.GOOD,
        EventOutcome.CANCELED.value: Colour.DIM,
        EventOutcome.FAILED.value: Colour.BAD,
    },
)

EVENT_COLUMNS = (
    Column("EVENT", has_ids=True),
    STATUS,
    Column("TYPE"),
    Column("SCOPE", drop_order=2),
    Column("VMS", max_width=32),
    Column("NOT BEFORE", drop_order=1),
    Column("WAITS FOR", can_fold=True),
)

JOURNAL_COLUMNS = (
    Column("AT"),
    Column(
        "ACTION",
        colours={
            "started": Colour.WARNING,
            "held": Colour.WARNING,
            "completed": Colour.GOOD,
            "failed": Colour.BAD,
            "impact-failed": Colour.BAD,
            "impact-unknown": Colour.BAD,
            "campaign-halted": Colour.BAD,
            "wave-failed": Colour.BAD,
            "gate-shut": Colour.WARNING,
        },
    ),
    Column("WHERE", drop_order=2),
    Column("VMS", max_width=16, drop_order=1),
    Column("EVENT", drop_order=3),
    Column("ACTOR", max_width=24),
    Column("REASON", can_fold=True),
)


def write_events(events: Iterable[v1.Event]) -> None:
    """Write open events and what each waits for."""
    shown = list(events)
    write_table(*with_cells(shown, EVENT_COLUMNS, map(event_row, shown)))


def event_row(event: v1.Event) -> Row:
    """Return the row of an event."""
    return (
        event.id,
        event.status,
        event.type.value,
        event.scope,
        ", ".join(event.vms),
        moment_text(event.not_before),
        blockers_text(event),
    )


def event_json(detail: v1.EventDetail) -> dict[str, object]:
    """Return an event in detail with the fields that an event has in every list; most are null after its end."""
    if detail.event is not None:
        return msgspec.structs.asdict(detail.event) | msgspec.structs.asdict(detail)
    unknown = dict.fromkeys(field.name for field in msgspec.structs.fields(v1.Event))
    return unknown | {"status": detail.outcome} | msgspec.structs.asdict(detail)


def blockers_text(event: v1.Event) -> str:
    """Return what the event waits for, or the state of the work on each VM, and whether it is unannounced."""
    text = "; and ".join(event.explanation) or _progress_text(event)
    if event.stuck_vms:
        text = f"{text} (`forewarn event retry {event.id[:SHORT_ID]}`, or `resolve`)"
    if any(blocker.code is BlockerCode.CAMPAIGN for blocker in event.blockers):
        text = f"{text} (`forewarn campaign show {event.created_by.removeprefix(CAMPAIGN_PREFIX)}` shows why)"
    return text if event.announced else f"{text}; unannounced"


def _progress_text(event: v1.Event) -> str:
    vms: dict[str, list[str]] = {}
    for impact in event.impacts:
        vms.setdefault(_impact_text(impact), []).append(impact.vm)
    return "; ".join(f"the work on {', '.join(names)}, {stand}" for stand, names in vms.items())


def _impact_text(impact: v1.Impact) -> str:
    """Return the state of the work; if it is postponed, until when and why."""
    if impact.state is not ImpactState.RETRY or impact.retry_at is None:
        return impact.state.value
    return f"postponed until {moment_text(impact.retry_at)}" + (f": {impact.reason}" if impact.reason else "")


def write_journal(entries: Iterable[v1.JournalEntry]) -> None:
    """Write journal entries as a table."""
    shown = list(entries)
    write_table(*with_cells(shown, JOURNAL_COLUMNS, map(journal_row, shown)))


def write_timeline(entries: Sequence[v1.JournalEntry]) -> None:
    """Write the journal entries of one event, without the columns for scope and event."""
    shown = [n for n, column in enumerate(JOURNAL_COLUMNS) if column.title not in {"WHERE", "EVENT"}]
    rows = map(journal_row, entries)
    write_table([JOURNAL_COLUMNS[n] for n in shown], ([row[n] for n in shown] for row in rows))


def journal_row(entry: v1.JournalEntry) -> Row:
    """Return the row of a journal entry."""
    return (
        moment_text(entry.at),
        entry.action.value,
        entry_location(entry),
        _short_list(entry.vms),
        (entry.event or "")[:SHORT_ID],
        entry.actor,
        entry_reason(entry),
    )


def _short_list(vms: Sequence[str]) -> str:
    """Return the names of VMs; if there are too many, the first ones and the number of the others."""
    return ", ".join(vms) if len(vms) <= MAX_VMS else f"{', '.join(vms[:MAX_VMS])} and {len(vms) - MAX_VMS} more"


def entry_reason(entry: v1.JournalEntry) -> str:
    """Return the reason of an entry and its relevant facts."""
    facts = (
        f"{name.replace('_', ' ')}: {fact}" for name, fact in entry.facts.items() if _is_relevant(entry, name, fact)
    )
    return uniform_times(single_line("; ".join((*((entry.reason,) if entry.reason else ()), *facts))))


def _is_relevant(entry: v1.JournalEntry, name: str, fact: str) -> bool:
    """Return whether a fact is worth showing; `-o json` has all."""
    if name == "late":
        return not fact.startswith(ON_TIME)
    if name in LOCATION_FACTS and entry.record_kind == "campaign" and entry_location(entry) != entry.record_kind:
        return False
    # The reason is often the only line of the program's output.
    return name not in HIDDEN_FACTS and not (name == "output" and fact in entry.reason)


def entry_location(entry: v1.JournalEntry) -> str:
    """Return where it happened: the scope, and for a campaign's entry the wave."""
    if entry.record_kind == "scope":
        return entry.record_id
    scope, wave = (entry.facts.get(fact) for fact in LOCATION_FACTS)
    return f"{scope}, wave {wave}" if entry.record_kind == "campaign" and scope and wave else entry.record_kind


def hold_text(hold: v1.Hold) -> str:
    """Return a sentence about a hold: what is held, by whom, since when and why."""
    what = "All planned maintenance" if hold.scope is None else f"Scope {hold.scope}"
    if (cell := cell_of(hold)) is not None:
        what = f"{what} of cell {cell}"
    return f"{what} is held by {hold.created_by} since {moment_text(hold.created_at)}: {hold.reason}"


def hold_column(holds: Iterable[v1.Hold | None]) -> tuple[Column, ...]:
    """Return the column for holds, if there are any."""
    return (Column("HELD", can_fold=True),) if any(holds) else ()


def hold_cell(hold: v1.Hold | None, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the cell of that column."""
    return tuple("" if hold is None else f"held by {hold.created_by}: {hold.reason}" for _ in columns)


def write_fleet_hold(connection: ServiceConnection) -> None:
    """Write a message if the whole fleet is held, because it explains why nothing starts."""
    for held in connection.api.holds().holds:
        if held.scope is None:
            write_message(hold_text(held))
