"""Follow the events that a VM sees at its guest endpoint."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from forewarn.api.journal_follower import Heartbeat
from forewarn.cli.live.journal_stream import LiveStream, StreamFailed, StreamItem
from forewarn.cli.live.live_view import LiveContent
from forewarn.cli.output import moment_text, sanitize
from forewarn.cli.views.tables import GAP
from forewarn.client import Appeared, Change, Changed, ClientError, Event, Gone, ScheduledEvents, Started
from forewarn.client.document import event_key
from forewarn.clock import Clock
from forewarn.core.duration import format_duration
from forewarn.core.text import escape_controls

SECOND = timedelta(seconds=1)

CHANGE_STYLES: dict[type[Change], str] = {Appeared: "yellow", Changed: "cyan", Started: "red", Gone: "green"}


class GuestEventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event in JSON output. `mine` is null if the name of this VM is not known."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    mine: bool | None
    not_before: datetime | None
    time_left: str | None
    duration: str | None
    source: str | None
    description: str | None


class GuestChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change in JSON output. `how` is null unless the event is gone."""

    at: datetime
    change: str
    how: str | None
    event: GuestEventRow


def guest_event_row(event: Event, name: str | None, now: datetime) -> GuestEventRow:
    """Return an event for JSON output. `name` is the name of this VM, if known."""
    return GuestEventRow(
        id=event.id,
        status=event.status,
        type=event.type,
        resources=event.resources,
        mine=None if name is None else event.affects(name),
        not_before=event.not_before,
        time_left=time_left_text(event, now),
        duration=None if event.duration is None else format_duration(event.duration),
        source=event.source,
        description=event.description,
    )


def guest_change_row(change: Change, name: str | None, now: datetime) -> GuestChangeRow:
    """Return a change for JSON output."""
    how = change.how.value if isinstance(change, Gone) else None
    return GuestChangeRow(at=now, change=type(change).__name__, how=how, event=guest_event_row(change.event, name, now))


def time_left_text(event: Event, now: datetime) -> str | None:
    """Return the time left to prepare, in whole seconds; None if it is not known."""
    left = event.time_left(now)
    return None if left is None else format_duration(left // SECOND * SECOND)


class GuestStream(LiveStream[Change]):
    """Reads the changes of a VM's events. The client retries by itself."""

    def __init__(self, events: ScheduledEvents, *, mine: bool) -> None:
        super().__init__()
        self._events, self._mine = events, mine

    def _read(self) -> None:
        self.put(Heartbeat())
        try:
            for change in self._events.watch(mine=self._mine):
                self.put(change)
        except ClientError as error:
            self.put(StreamFailed(error))


class GuestFollower(LiveContent[Change]):
    """The events that a VM sees. On a terminal, a countdown to each is redrawn below the changes."""

    is_finished = False
    is_transient = True

    def __init__(self, endpoint: str, name: str | None, clock: Clock) -> None:
        self._endpoint, self._name, self._clock = endpoint, name, clock
        self._events: dict[str, Event] = {}

    def refresh(self) -> None:
        """Do nothing: the stream has all data."""

    def is_affected_by(self, _: StreamItem[Change]) -> bool:
        """Return False: nothing needs to be fetched again."""
        return False

    def text_lines(self, changes: Sequence[Change]) -> Iterator[str]:
        """Yield each change."""
        return (GAP.join(change_line(change, self._clock.now())) for change in changes)

    def json_objects(self, changes: Sequence[Change]) -> Iterator[GuestChangeRow]:
        """Yield each change."""
        return (guest_change_row(change, self._name, self._clock.now()) for change in changes)

    def lines_above(self, changes: Sequence[Change]) -> Iterator[Text]:
        """Yield each change, and update the events of the countdown."""
        for change in changes:
            id_ = event_key(change.event)
            self._events.pop(id_, None)
            if not isinstance(change, Gone):
                self._events[id_] = change.event
            when, what, about = change_line(change, self._clock.now())
            yield Text.assemble(when, GAP, (what, CHANGE_STYLES[type(change)]), GAP, sanitize(about))

    def render(self, warning: Sequence[Text], _: Console) -> RenderableType:
        """Draw the time left of each event."""
        lines = countdown_lines(self._events.values(), self._clock.now())
        idle = f"No events. Watching {self._endpoint} until Ctrl-C."
        return Group(*warning, Text("\n".join(map(sanitize, lines or [idle])), "dim"))


def change_line(change: Change, now: datetime) -> tuple[str, str, str]:
    """Return a change as text: its time, its kind and the event."""
    event = change.event
    about = (event.id, f"{event.type:<9}", ", ".join(event.resources), _change_note(change, now))
    return moment_text(now), f"{type(change).__name__:<8}", escape_controls(GAP.join(about)).rstrip()


def _change_note(change: Change, now: datetime) -> str:
    """Return how an event ended, or the time left to prepare for it."""
    if isinstance(change, Gone):
        return change.how.value
    left = None if change.event.is_started else time_left_text(change.event, now)
    return "" if left is None else f"{left} left"


def countdown_lines(events: Iterable[Event], now: datetime) -> list[str]:
    """Return one line per event with the time until it starts."""
    return [
        escape_controls(f"{event.type} of {', '.join(event.resources)} {_countdown_text(event, now)}")
        for event in events
    ]


def _countdown_text(event: Event, now: datetime) -> str:
    if event.is_started:
        return "is under way"
    left = time_left_text(event, now)
    if left is None:
        return "at any moment"
    return f"in {left}" if left != "0s" else "is due"
