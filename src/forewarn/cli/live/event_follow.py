"""Follow events until they end or need an operator."""

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound
from forewarn.api.journal_follower import Heartbeat, StreamResumed
from forewarn.cli.live import live_view
from forewarn.cli.live.journal_stream import JournalStream, StreamItem
from forewarn.cli.live.live_view import LiveContent
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock, countdown_text
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.output import moment_text, sanitize
from forewarn.cli.views.event import blockers_text, event_json
from forewarn.cli.views.tables import SHORT_ID
from forewarn.core.scope import EventOutcome

STYLES = {
    "Started": "yellow",
    EventOutcome.COMPLETED.value: "green",
    EventOutcome.CANCELED.value: "dim",
    EventOutcome.FAILED.value: "red",
}


def follow(connection: ServiceConnection, created: Sequence[v1.CreatedEvent]) -> None:
    """Follow events until they end, and exit with the code of their outcome.

    If an operator must retry or resolve work before anything continues, stop with the next steps instead of waiting.
    """
    live_view.follow(
        EventFollower(connection.api, created),
        JournalStream(connection.api),
        connection.output,
        resume_command=f"forewarn event watch {' '.join(each.id for each in created)}",
    )


class EventFollower(LiveContent[v1.JournalEntry]):
    """The followed events, in their last fetched state."""

    def __init__(self, api: ApiClient, created: Sequence[v1.CreatedEvent]) -> None:
        self._api = api
        self._changed: dict[str, v1.EventDetail] = {}
        """The details that changed since they were last written."""
        self._scopes = {each.id: each.scope for each in created}
        self.details: dict[str, v1.EventDetail] = {}
        self._scope_events: dict[str, list[v1.Event]] = {}
        """All open events of the scopes: a followed event may wait for one that is not followed."""

    @property
    def is_finished(self) -> bool:
        """Whether all events have ended, or an operator must retry or resolve work first."""
        return self.is_over or self.needs_operator

    @property
    def is_over(self) -> bool:
        """Whether all events have ended."""
        return len(self.details) == len(self._scopes) and all(detail.event is None for detail in self.details.values())

    @property
    def stuck(self) -> list[v1.Event]:
        """The stuck events that are followed, or that block a followed event."""
        around = {event.id: event for events in self._scope_events.values() for event in events}
        return [event for event in around.values() if _has_failed(event) and self._is_relevant(event)]

    @property
    def needs_operator(self) -> bool:
        """Whether every open event has stuck work or waits for an event that has.

        A hold or a stopped campaign does not end the following, although these events have `is_stuck`, too: operators
        stop maintenance on purpose and let it continue later, and the reason is shown meanwhile.
        """
        if len(self.details) < len(self._scopes):
            return False
        still_open = [detail.event for detail in self.details.values() if detail.event is not None]
        return bool(still_open) and all(
            _has_failed(event) or any(_waits_for(event, other) for other in self.stuck) for event in still_open
        )

    def _is_relevant(self, event: v1.Event) -> bool:
        still_open = (detail.event for detail in self.details.values() if detail.event is not None)
        return any(each.id == event.id or _waits_for(each, event) for each in still_open)

    @property
    def is_successful(self) -> bool:  # type: ignore[override]  # it is known at the end
        """Whether all events were completed."""
        return all(detail.outcome is EventOutcome.COMPLETED for detail in self.details.values())

    def is_affected_by(self, item: StreamItem[v1.JournalEntry]) -> bool:
        """Return whether the item can mean a change of the events."""
        match item:
            case v1.JournalEntry():
                return item.record_kind != "scope" or item.record_id in self._scopes.values()
            case _:
                return isinstance(item, Heartbeat | StreamResumed)

    def text_lines(self, _: Sequence[v1.JournalEntry]) -> Iterator[str]:
        """Yield a line for each event that has changed."""
        for detail in self._take_changed():
            more = f": {text}" if (text := _blockers(detail)) else ""
            now = moment_text(self.clock.now)
            yield f"{now}  {_short_id(detail)}  {_subject(detail)}  {_status_text(detail)}{more}"

    def json_objects(self, _: Sequence[v1.JournalEntry]) -> Sequence[object]:
        """Return the events that have changed."""
        return [event_json(detail) for detail in self._take_changed()]

    def _take_changed(self) -> Sequence[v1.EventDetail]:
        changed, self._changed = tuple(self._changed.values()), {}
        return changed

    def render(self, warning: Sequence[Text], _: Console) -> RenderableType:
        """Draw a table of all events."""
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("EVENT", "TYPE", "VMS", "STATUS", "TIME"):
            table.add_column(title, no_wrap=title != "VMS")
        table.add_column("", ratio=1)
        for detail in self.details.values():
            status = _status_text(detail)
            table.add_row(
                _short_id(detail),
                "" if detail.type is None else detail.type.value,
                ", ".join(detail.vms),
                Text(status, STYLES.get(status, "")),
                "" if detail.event is None else countdown_text(detail.event, self.clock.now),
                Text(sanitize(_blockers(detail))),
            )
        hint = [Text(MANUAL_CLOCK_HINT, "dim")] if self.clock.is_manual and not self.is_over else []
        return Group(table, *warning, *hint)

    def next_steps(self) -> Iterator[str]:
        """Yield what the operator can do about each stuck event."""
        for event in self.stuck:
            id_ = event.id[:SHORT_ID]
            yield (
                f"The work on {', '.join(event.stuck_vms)} needs an operator: `forewarn event retry {id_}` retries it, "
                f"`forewarn event resolve {id_}` records its outcome."
            )

    def refresh(self) -> None:
        """Fetch the events and the service's time."""
        self.clock = ServiceClock(self._api.clock())
        waiting = {id_: scope for id_, scope in self._scopes.items() if not self._has_ended(id_)}
        self._scope_events = {scope: self._fetch_events(scope) for scope in set(waiting.values())}
        still_open = {event.id: event for events in self._scope_events.values() for event in events}
        for id_ in waiting:
            detail = self._fetch_detail(id_, still_open.get(id_))
            if detail != self.details.get(id_):
                self.details[id_] = self._changed[id_] = detail

    def _has_ended(self, id_: str) -> bool:
        return id_ in self.details and self.details[id_].event is None

    def _fetch_events(self, scope: str) -> list[v1.Event]:
        try:
            return list(self._api.events(scope=scope))
        except NotFound:
            # A standalone scope is removed with its VM.
            return []

    def _fetch_detail(self, id_: str, event: v1.Event | None) -> v1.EventDetail:
        before = self.details.get(id_)
        if event is None or before is None:
            return msgspec.structs.replace(self._api.event(id_), journal=())
        return msgspec.structs.replace(before, event=event)


def _has_failed(event: v1.Event) -> bool:
    """Return whether the event is stuck: an operator must retry or resolve its work."""
    return event.is_stuck and bool(event.stuck_vms)


def _waits_for(event: v1.Event, other: v1.Event) -> bool:
    """Return whether an event cannot start before the other one ends."""
    return any(blocker.event == other.id for blocker in event.blockers)


def _short_id(detail: v1.EventDetail) -> str:
    return detail.id[:SHORT_ID]


def _subject(detail: v1.EventDetail) -> str:
    type_ = "event" if detail.type is None else detail.type.value
    return f"{type_} of {', '.join(detail.vms)}"


def _status_text(detail: v1.EventDetail) -> str:
    if detail.event is not None:
        return detail.event.status
    return "over" if detail.outcome is None else detail.outcome.value


def _blockers(detail: v1.EventDetail) -> str:
    return "" if detail.event is None else blockers_text(detail.event)
