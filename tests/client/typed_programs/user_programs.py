"""Typical user code with the sync and the asyncio client. It is never run, only type-checked in strict mode."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_never, assert_type

from forewarn.client import (
    Appeared,
    AsyncInterruption,
    AsyncScheduledEvents,
    Change,
    Changed,
    ClientError,
    Document,
    Ending,
    Event,
    EventType,
    Gone,
    Interruption,
    NotAllowed,
    NotDiscovered,
    ScheduledEvents,
    Source,
    Started,
    Status,
    Unavailable,
    deputy,
    discover_endpoint,
    is_deputy,
    is_leader,
    leader,
)


def tell(change: Change) -> str:
    """Match every kind of change exhaustively."""
    match change:
        case Appeared(event):
            return f"{assert_type(event, Event).id} appeared"
        case Changed(event, before) | Started(event, before):
            return f"{event.id} was {assert_type(before, Event).status}"
        case Gone(event, how):
            return f"{event.id} is {assert_type(how, Ending)}"
        case _:
            assert_never(change)


def drain(event: Event) -> None:
    """Use the fields of an event."""
    assert_type(event.status, Status | str)
    assert_type(event.type, EventType | str)
    assert_type(event.source, Source | str | None)
    assert_type(event.deadline, datetime | None)
    assert_type(event.duration, timedelta | None)
    assert_type(event.resources, tuple[str, ...])
    left = assert_type(event.time_left(datetime.now(UTC)), timedelta | None)
    if event.type in (EventType.REBOOT, "Redeploy") and left is not None and left > timedelta(minutes=1):
        assert_type(event.affects("web-0"), bool)


def handle() -> None:
    """Use the sync client."""
    with ScheduledEvents("127.0.0.1:8180", name="web-0", timeout=5, on_trouble=warn) as se:
        document = assert_type(se.get(retry_for=0), Document)
        assert_type(document.affecting(se.name).events, tuple[Event, ...])
        changes = assert_type(se.watch(mine=True, since=document), Iterator[Change])
        for change in changes:
            if isinstance(change, Appeared) and is_leader(change.event, se.name):
                se.approve(change.event)
            elif isinstance(change, Started) and is_deputy(change.event, se.name):
                se.approve(change.event.id, *document.events)
            assert_type(leader(change.event) or deputy(change.event), str | None)


def work() -> None:
    """Use `interruptible` for some event types."""
    with ScheduledEvents() as se, se.interruptible(EventType.PREEMPT, "Terminate") as stop:
        assert_type(stop, Interruption)
        while not stop.wait(1.0):
            pass
        assert_type(stop.time_left(), timedelta | None)
        if stop.event is not None:
            se.approve(stop.event)


async def handle_async() -> None:
    """Use the asyncio client, with a timeout around a call."""
    async with AsyncScheduledEvents(retry_for=0) as se:
        async with asyncio.timeout(5):
            document = assert_type(await se.get(), Document)
        assert_type(await se.name(), str)
        changes = assert_type(se.watch(since=document), AsyncIterator[Change])
        async for change in changes:
            await se.approve(change.event)
        async with se.interruptible() as stop:
            assert_type(stop, AsyncInterruption)
            assert_type(await stop.wait(), bool)


def warn(error: ClientError, pause: float) -> None:
    """Use the fields of an error."""
    assert_type(error.advice, str)
    if isinstance(error, Unavailable):
        assert_type(error.retry_after, float | None)
        assert_type(pause, float)


def find() -> ScheduledEvents:
    """Discover the endpoint of a VM that may be outside a virtual network."""
    try:
        return ScheduledEvents(discover_endpoint("eth0"))
    except NotDiscovered as error:
        raise SystemExit(str(error)) from error
    except NotAllowed as error:
        raise SystemExit(error.message) from error
