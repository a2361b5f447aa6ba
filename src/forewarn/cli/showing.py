"""Events, holds and lines of the journal, as people see them."""

from collections.abc import Iterable, Sequence

from forewarn.api import v1
from forewarn.cli.colours import Colour
from forewarn.cli.output import moment_text, say
from forewarn.cli.reaching import Asked
from forewarn.cli.tables import Column, Row, in_one_line, write_table
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.impact import STUCK, ImpactState
from forewarn.core.scope import EventOutcome

SHORT_ID = 8
"""As much of an event's id as tells it from others; commands take it for the whole."""

NAMED = 2
"""Of more VMs than this a line of the journal says how many there are; `-o json` names all."""

HIDDEN_FACTS = frozenset({"key", "digest", "epoch"})
"""What the journal keeps to recognise a repeated request, or another life of a scope; it tells people nothing."""

PLACE_FACTS = ("scope", "wave")
"""What the lines of campaigns say of where something happens."""

ON_TIME = "0."
"""How a lateness of less than a second begins: nobody calls that late."""

STATUS = Column(
    "STATUS",
    colours={
        "Started": Colour.CAREFUL,
        EventOutcome.COMPLETED.value: Colour.GOOD,
        EventOutcome.CANCELED.value: Colour.FAINT,
        EventOutcome.FAILED.value: Colour.BAD,
    },
)

EVENT_COLUMNS = (
    Column("EVENT"),
    STATUS,
    Column("TYPE"),
    Column("SCOPE", spare=1),
    Column("VMS", most=32),
    Column("NOT BEFORE", spare=2),
    Column("WAITS FOR", goes_below=True),
)

JOURNAL_COLUMNS = (
    Column("AT"),
    Column(
        "WHAT",
        colours={
            "started": Colour.CAREFUL,
            "held": Colour.CAREFUL,
            "completed": Colour.GOOD,
            "failed": Colour.BAD,
            "impact-failed": Colour.BAD,
            "impact-unknown": Colour.BAD,
            "campaign-halted": Colour.BAD,
            "wave-failed": Colour.BAD,
            "gate-shut": Colour.CAREFUL,
        },
    ),
    Column("WHERE", spare=2),
    Column("VMS", most=16, spare=1),
    Column("EVENT", spare=3),
    Column("BY", most=24),
    Column("WHY", goes_below=True),
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
        waits_for(event),
    )


def waits_for(event: v1.Event) -> str:
    """Say what the event waits for, or how far the work on each VM is, and whether the VMs know nothing of it."""
    said = "; and ".join(event.explain) or _under_way(event)
    if any(impact.state in STUCK for impact in event.impacts):
        said = f"{said} (`forewarn event retry {event.id[:SHORT_ID]}`, or `resolve`)"
    if event.campaign is not None and event.status == "Scheduled":
        said = f"{said} (`forewarn campaign show {event.by.removeprefix(CAMPAIGN_PREFIX)}` says why)"
    return said if event.announced else f"{said}; unannounced"


def _under_way(event: v1.Event) -> str:
    vms: dict[str, list[str]] = {}
    for impact in event.impacts:
        vms.setdefault(_stand(impact), []).append(impact.vm)
    return "; ".join(f"the work on {', '.join(names)}, {stand}" for stand, names in vms.items())


def _stand(impact: v1.Impact) -> str:
    """Say how far the work is, and of what is put off until when and why."""
    if impact.state is not ImpactState.RETRY or impact.retry_at is None:
        return impact.state.value
    return f"put off until {moment_text(impact.retry_at)}" + (f": {impact.why}" if impact.why else "")


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
        entry.did.value,
        place(entry),
        _few(entry.vms),
        (entry.event or "")[:SHORT_ID],
        entry.by,
        reason(entry),
    )


def _few(vms: Sequence[str]) -> str:
    """Name the VMs of a line, unless they are too many to be read."""
    return ", ".join(vms) if len(vms) <= NAMED else f"{', '.join(vms[:NAMED])} and {len(vms) - NAMED} more"


def reason(entry: v1.JournalEntry) -> str:
    """Say why it happened, and the facts."""
    facts = (f"{name.replace('_', ' ')}: {fact}" for name, fact in entry.facts.items() if _tells(entry, name, fact))
    return in_one_line("; ".join((*((entry.why,) if entry.why else ()), *facts)))


def _tells(entry: v1.JournalEntry, name: str, fact: str) -> bool:
    """Tell whether a fact is worth a person's time; `-o json` has all."""
    if name == "late":
        return not fact.startswith(ON_TIME)
    if name in PLACE_FACTS and entry.kind == "campaign" and place(entry) != entry.kind:
        return False
    # The reason often is the only line that the program has printed.
    return name not in HIDDEN_FACTS and not (name == "output" and fact in entry.why)


def place(entry: v1.JournalEntry) -> str:
    """Say where it happened: in which scope, and in which of its waves where it is a campaign that tells."""
    if entry.kind == "scope":
        return entry.record
    scope, wave = (entry.facts.get(fact) for fact in PLACE_FACTS)
    return f"{scope}, wave {wave}" if entry.kind == "campaign" and scope and wave else entry.kind


def hold_sentence(hold: v1.Hold) -> str:
    """Say what is held, by whom, since when and why."""
    what = "All planned maintenance" if hold.scope is None else f"Scope {hold.scope}"
    return f"{what} is held by {hold.by} since {moment_text(hold.at)}: {hold.reason}"


def hold_column(holds: Iterable[v1.Hold | None]) -> tuple[Column, ...]:
    """Return the column for what holds the scopes, where something does."""
    return (Column("HELD", goes_below=True),) if any(holds) else ()


def hold_cell(hold: v1.Hold | None, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the cell of that column."""
    return tuple("" if hold is None else f"held by {hold.by}: {hold.reason}" for _ in columns)


def mention_hold(asked: Asked) -> None:
    """Say below a listing that everything is held, so that nobody wonders why nothing happens."""
    if (held := asked.api.holds().fleet) is not None:
        say(hold_sentence(held))
