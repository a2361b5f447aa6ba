"""Event views: tables of events and journal entries, and texts about blockers and holds."""

from collections.abc import Iterable, Sequence

from forewarn.api import v1
from forewarn.cli.colours import Colour
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.output import moment_text, write_message
from forewarn.cli.views.tables import Column, Row, single_line, write_table
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.scope import EventOutcome

SHORT_ID = 8
"""As much of an event's id as tells it from others; commands take it for the whole."""

MAX_VMS = 2
"""Of more VMs than this a line of the journal says how many there are; `-o json` names all."""

HIDDEN_FACTS = frozenset({"key", "digest", "epoch"})
"""What the journal keeps to recognise a repeated request, or another life of a scope; it tells people nothing."""

LOCATION_FACTS = ("scope", "wave")
"""What the lines of campaigns say of where something happens."""

ON_TIME = "0."
"""How a lateness of less than a second begins: nobody calls that late."""

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
    Column("EVENT"),
    STATUS,
    Column("TYPE"),
    Column("SCOPE", drop_order=1),
    Column("VMS", max_width=32),
    Column("NOT BEFORE", drop_order=2),
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
    """Write open events, and what each waits for."""
    write_table(EVENT_COLUMNS, map(event_row, events))


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


def blockers_text(event: v1.Event) -> str:
    """Say what the event waits for, or how far the work on each VM is, and whether the VMs know nothing of it."""
    text = "; and ".join(event.explanation) or _progress_text(event)
    if any(impact.state in STUCK for impact in event.impacts):
        text = f"{text} (`forewarn event retry {event.id[:SHORT_ID]}`, or `resolve`)"
    if event.campaign is not None and event.status == "Scheduled":
        text = f"{text} (`forewarn campaign show {event.created_by.removeprefix(CAMPAIGN_PREFIX)}` says why)"
    return text if event.announced else f"{text}; unannounced"


def _progress_text(event: v1.Event) -> str:
    vms: dict[str, list[str]] = {}
    for impact in event.impacts:
        vms.setdefault(_impact_text(impact), []).append(impact.vm)
    return "; ".join(f"the work on {', '.join(names)}, {stand}" for stand, names in vms.items())


def _impact_text(impact: v1.Impact) -> str:
    """Say how far the work is, and of what is put off until when and why."""
    if impact.state is not ImpactState.RETRY or impact.retry_at is None:
        return impact.state.value
    return f"put off until {moment_text(impact.retry_at)}" + (f": {impact.reason}" if impact.reason else "")


def write_journal(entries: Iterable[v1.JournalEntry]) -> None:
    """Write lines of the journal."""
    write_table(JOURNAL_COLUMNS, map(journal_row, entries))


def write_timeline(entries: Sequence[v1.JournalEntry]) -> None:
    """Write the lines of one event: whose they are is known."""
    shown = [n for n, column in enumerate(JOURNAL_COLUMNS) if column.title not in {"WHERE", "EVENT"}]
    rows = map(journal_row, entries)
    write_table([JOURNAL_COLUMNS[n] for n in shown], ([row[n] for n in shown] for row in rows))


def journal_row(entry: v1.JournalEntry) -> Row:
    """Return the row of a line of the journal."""
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
    """Name the VMs of a line, unless they are too many to be read."""
    return ", ".join(vms) if len(vms) <= MAX_VMS else f"{', '.join(vms[:MAX_VMS])} and {len(vms) - MAX_VMS} more"


def entry_reason(entry: v1.JournalEntry) -> str:
    """Say why it happened, and the facts."""
    facts = (
        f"{name.replace('_', ' ')}: {fact}" for name, fact in entry.facts.items() if _is_relevant(entry, name, fact)
    )
    return single_line("; ".join((*((entry.reason,) if entry.reason else ()), *facts)))


def _is_relevant(entry: v1.JournalEntry, name: str, fact: str) -> bool:
    """Tell whether a fact is worth a person's time; `-o json` has all."""
    if name == "late":
        return not fact.startswith(ON_TIME)
    if name in LOCATION_FACTS and entry.record_kind == "campaign" and entry_location(entry) != entry.record_kind:
        return False
    # The reason often is the only line that the program has printed.
    return name not in HIDDEN_FACTS and not (name == "output" and fact in entry.reason)


def entry_location(entry: v1.JournalEntry) -> str:
    """Say where it happened: in which scope, and in which of its waves where it is a campaign that tells."""
    if entry.record_kind == "scope":
        return entry.record_id
    scope, wave = (entry.facts.get(fact) for fact in LOCATION_FACTS)
    return f"{scope}, wave {wave}" if entry.record_kind == "campaign" and scope and wave else entry.record_kind


def hold_text(hold: v1.Hold) -> str:
    """Say what is held, by whom, since when and why."""
    what = "All planned maintenance" if hold.scope is None else f"Scope {hold.scope}"
    return f"{what} is held by {hold.created_by} since {moment_text(hold.created_at)}: {hold.reason}"


def hold_column(holds: Iterable[v1.Hold | None]) -> tuple[Column, ...]:
    """Return the column for what holds the scopes, where something does."""
    return (Column("HELD", can_fold=True),) if any(holds) else ()


def hold_cell(hold: v1.Hold | None, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the cell of that column."""
    return tuple("" if hold is None else f"held by {hold.created_by}: {hold.reason}" for _ in columns)


def write_fleet_hold(connection: ServiceConnection) -> None:
    """Say below a listing that everything is held, so that nobody wonders why nothing happens."""
    if (held := connection.api.holds().fleet) is not None:
        write_message(hold_text(held))
