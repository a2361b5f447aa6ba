"""Follow events until they end or need an operator."""

from collections.abc import Sequence

import click
import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound, ServiceUnreachable
from forewarn.cli.errors import EXIT_INTERRUPTED, ExitCode
from forewarn.cli.live.event_view import EventView, view_for
from forewarn.cli.live.journal_stream import (
    REFRESH_INTERVAL,
    Heartbeat,
    JournalStream,
    StreamItem,
    StreamResumed,
    connection_error,
)
from forewarn.cli.live.service_clock import ServiceClock
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.output import write_message
from forewarn.cli.views.event import SHORT_ID
from forewarn.core.explain import BlockerCode
from forewarn.core.impact import STUCK
from forewarn.core.scope import EventOutcome


def follow(connection: ServiceConnection, created: Sequence[v1.CreatedEvent]) -> None:
    """Follow events to their end, and end as they did. Ctrl-C ends the watching, not the events.

    Where nothing goes on unless a person decides, it ends with the next step instead of waiting for that person.
    """
    try:
        stream = JournalStream(connection.api)
        stream.open()
        followed = EventFollower(connection.api, created)
        with view_for(connection.output) as view:
            _follow(stream, followed, view)
    except KeyboardInterrupt:
        event_ids = " ".join(each.id for each in created)
        write_message(f"Stopped watching; nothing else has stopped. To watch again: forewarn event watch {event_ids}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    for event in followed.stuck:
        write_message(_next_step(event))
    if not followed.is_successful:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _next_step(event: v1.Event) -> str:
    vms = ", ".join(impact.vm for impact in event.impacts if impact.state in STUCK)
    id_ = event.id[:SHORT_ID]
    return (
        f"The work on {vms} waits for a person: `forewarn event retry {id_}` has it done once more, "
        f"`forewarn event resolve {id_}` ends it."
    )


def _follow(stream: JournalStream, followed: "EventFollower", view: EventView) -> None:
    view.show(followed.refresh(), followed.clock, "")
    error_text = ""
    while not followed.is_over and not followed.needs_operator:
        items = list(stream.wait(REFRESH_INTERVAL))
        error_text = connection_error(items, error_text)
        changed: list[v1.EventDetail] = []
        if any(map(followed.is_affected_by, items)):
            try:
                changed, error_text = followed.refresh(), ""
            except ServiceUnreachable as error:
                error_text = str(error)
        view.show(changed, followed.clock, error_text)


class EventFollower:
    """The events that are followed, as they were when the service was asked last."""

    def __init__(self, api: ApiClient, created: Sequence[v1.CreatedEvent]) -> None:
        self._api = api
        self._scopes = {each.id: each.scope for each in created}
        self.details: dict[str, v1.EventDetail] = {}
        self._scope_events: dict[str, list[v1.Event]] = {}
        """What else is open in their scopes: an event may wait for another that nobody follows."""
        self.clock = ServiceClock(api.clock())

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return len(self.details) == len(self._scopes) and all(detail.event is None for detail in self.details.values())

    @property
    def stuck(self) -> list[v1.Event]:
        """The events on which nothing more is done unless a person decides, whether they are followed or in the way."""
        around = {event.id: event for events in self._scope_events.values() for event in events}
        return [event for event in around.values() if _has_failed(event) and self._is_relevant(event)]

    @property
    def needs_operator(self) -> bool:
        """Whether each that has not ended is stuck itself, or waits for one that is."""
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
    def is_successful(self) -> bool:
        """Whether all were completed."""
        return all(detail.outcome is EventOutcome.COMPLETED for detail in self.details.values())

    def is_affected_by(self, item: StreamItem) -> bool:
        """Tell whether the events may have changed."""
        match item:
            case v1.JournalEntry():
                return item.record_kind != "scope" or item.record_id in self._scopes.values()
            case _:
                return isinstance(item, Heartbeat | StreamResumed)

    def refresh(self) -> list[v1.EventDetail]:
        """Ask the service, and return what has changed."""
        self.clock = ServiceClock(self._api.clock())
        waiting = {id_: scope for id_, scope in self._scopes.items() if not self._has_ended(id_)}
        self._scope_events = {scope: self._fetch_events(scope) for scope in set(waiting.values())}
        still_open = {event.id: event for events in self._scope_events.values() for event in events}
        changed = []
        for id_ in waiting:
            detail = self._fetch_detail(id_, still_open.get(id_))
            if detail != self.details.get(id_):
                self.details[id_] = detail
                changed.append(detail)
        return changed

    def _has_ended(self, id_: str) -> bool:
        return id_ in self.details and self.details[id_].event is None

    def _fetch_events(self, scope: str) -> list[v1.Event]:
        try:
            return list(self._api.events(scope=scope))
        except NotFound:
            # A scope that had but one VM may go with it.
            return []

    def _fetch_detail(self, id_: str, event: v1.Event | None) -> v1.EventDetail:
        before = self.details.get(id_)
        if event is None or before is None:
            return msgspec.structs.replace(self._api.event(id_), journal=())
        return msgspec.structs.replace(before, event=event)


def _has_failed(event: v1.Event) -> bool:
    """Tell whether a person decides how its work goes on."""
    return event.is_stuck and any(blocker.code is BlockerCode.IMPACT_STUCK for blocker in event.blockers)


def _waits_for(event: v1.Event, other: v1.Event) -> bool:
    """Tell whether it cannot start before the other one ends."""
    return any(blocker.event == other.id for blocker in event.blockers)
