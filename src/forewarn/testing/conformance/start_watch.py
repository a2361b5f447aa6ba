"""Watch Scheduled events: an event that is not approved must not start before its NotBefore."""

from datetime import datetime, timedelta

import msgspec

from forewarn.core.duration import format_duration
from forewarn.testing.conformance.document import (
    CheckSkipped,
    Document,
    EventFields,
    Mismatch,
    event_id,
    is_similar,
    read_document,
)
from forewarn.testing.conformance.probe import EVENTS_QUERY, Probe, is_scheduled, is_started
from forewarn.testing.conformance.raw_http import RequestFailed
from forewarn.wire.http_date import parse_date

POLL_INTERVAL = 1.0

TOLERANCE = timedelta(seconds=1)
"""NotBefore and Date are rounded to whole seconds."""


class WatchedEvent(msgspec.Struct):
    """An event as it was first seen, and the end of its notice."""

    first: EventFields
    not_before: datetime
    left: timedelta
    """The notice that is left, by the newest response."""
    is_past: bool = False
    """Whether its time has come: from now on it may start."""
    is_gone: bool = False
    """Whether it disappeared before its time: canceled, or started and ended between two polls."""


def starts_not_before(probe: Probe) -> None:
    """Watch all Scheduled events that the kit does not approve. The endpoint's own `Date` is the clock."""
    if not probe.watch_seconds:
        raise CheckSkipped("the rule needs time to watch a Scheduled event: --watch DURATION")
    deadline = probe.pace.now() + probe.watch_seconds
    known: set[str] = set()
    watched: dict[str, WatchedEvent] = {}
    while True:
        _look(probe, known, watched)
        if not watched:
            others = " besides those to approve" if probe.approves else ""
            raise CheckSkipped(f"there was no Scheduled event to watch{others} whose NotBefore is ahead")
        if all(each.is_past or each.is_gone for each in watched.values()) or probe.pace.now() >= deadline:
            break
        probe.pace.pause(min(POLL_INTERVAL, deadline - probe.pace.now()))
    _require_end_of_notice(probe, watched)


def _look(probe: Probe, known: set[str], watched: dict[str, WatchedEvent]) -> None:
    """Read the document, and compare the watched events with it; raise Mismatch if one has started too early."""
    try:
        response = probe.send(EVENTS_QUERY)
        document = read_document(response)
    except (RequestFailed, CheckSkipped):
        if not watched:
            raise
        return
    now = parse_date(response.header("date") or "")
    if now is None:
        raise CheckSkipped("the response has no Date to compare NotBefore with")
    _add_scheduled_events(probe, document, now, watched)
    for id_, each in watched.items():
        if each.is_past or each.is_gone:
            continue
        current = document.event(id_) or _renamed(each.first, document, known)
        if is_started(current):
            _require_not_early(id_, each, now)
        each.is_gone = current is None
        each.is_past = now >= each.not_before
        each.left = each.not_before - now
    known |= {event_id(event).upper() for event in document.events}


def _add_scheduled_events(probe: Probe, document: Document, now: datetime, watched: dict[str, WatchedEvent]) -> None:
    """Add the events that can still start too early."""
    for event in document.events:
        id_ = event_id(event).upper()
        not_before = parse_date(str(event.get("NotBefore")))
        if id_ in probe.approves or id_ in watched or not is_scheduled(event) or not_before is None:
            continue
        if not_before - now > TOLERANCE:
            watched[id_] = WatchedEvent(first=event, not_before=not_before, left=not_before - now)


def _renamed(first: EventFields, document: Document, known: set[str]) -> EventFields | None:
    """Return the event under another id that the document did not have before."""
    return next(
        (event for event in document.events if event_id(event).upper() not in known and is_similar(event, first)),
        None,
    )


def _require_not_early(id_: str, event: WatchedEvent, now: datetime) -> None:
    early = event.not_before - now
    if early > TOLERANCE:
        raise Mismatch(
            f"event {id_} started {format_duration(early)} before its NotBefore, and the kit did not approve it "
            "(make sure that no handler did)"
        )


def _require_end_of_notice(probe: Probe, watched: dict[str, WatchedEvent]) -> None:
    """Raise CheckSkipped if no event was watched until its NotBefore."""
    if any(each.is_past for each in watched.values()):
        return
    left = [each.left for each in watched.values() if not each.is_gone]
    if not left:
        raise CheckSkipped("every watched event was gone before its NotBefore: canceled, perhaps")
    seconds = format_duration(timedelta(seconds=probe.watch_seconds))
    raise CheckSkipped(
        f"no event started within {seconds}, but the next NotBefore is {format_duration(min(left))} ahead; watch longer"
    )
