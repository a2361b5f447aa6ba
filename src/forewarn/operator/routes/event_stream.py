"""Event stream route (`/v1/watch`): follow the journal as server-sent events from a position."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.core.access import Role
from forewarn.fleet.errors import FleetError
from forewarn.operator.auth import IS_STILL_VALID, CallerDep, requires
from forewarn.operator.lookup import find_campaign
from forewarn.operator.parameters import OnlyCampaign, OnlyScope, error_specs
from forewarn.operator.state import AppState, StreamSlots
from forewarn.operator.views.journal import read_predicate, show_row
from forewarn.store.port import JournalRow, RecordKey, RecordKind, StoreError

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
"""After how many seconds without a line the reader is told that the service is there."""

SEND_TIMEOUT = 60.0
"""For how many seconds a reader may take nothing. It costs a buffer, and a place that others could have."""

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))
MAX_POSITION = (1 << 63) - 1

PREAMBLE = b"retry: 1000\n: Forewarn\n\n"
"""Said at once; a browser that has lost the connection comes back after this many milliseconds."""

Position = Annotated[
    int | None,
    QueryParameter(name="after", ge=0, le=MAX_POSITION, description="Lines after this position; else new ones only."),
]
LastEventId = Annotated[
    int | None,
    HeaderParameter(
        name="Last-Event-ID", ge=0, le=MAX_POSITION, description="The same, as browsers say it when they come back."
    ),
]

_encode = msgspec.json.Encoder().encode


class EventStream:
    """An answer that goes on until its reader leaves or the service ends. A slow reader waits in the journal.

    It is an ASGI application, which Litestar takes as an answer.
    """

    def __init__(
        self,
        rows: AsyncGenerator[JournalRow, None],
        *,
        matches: Callable[[JournalRow], bool],
        is_token_valid: Callable[[], bool],
        slots: StreamSlots,
    ) -> None:
        self._rows = rows
        self._matches = matches
        self._is_token_valid = is_token_valid
        self._slots = slots
        self._position: int | None = None

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer, and give the place back."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await self._send_body(send, receive)
        finally:
            self._slots.release()

    async def _send_body(self, send: Send, receive: Receive) -> None:
        """Send lines as they come, until the reader has gone, the service ends or the journal cannot go on."""
        disconnected = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            async with aclosing(self._chunks(disconnected)) as chunks:
                async for chunk in chunks:
                    async with asyncio.timeout(SEND_TIMEOUT):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("somebody who follows the journal has read nothing for %d s and is left behind", SEND_TIMEOUT)
        finally:
            disconnected.cancel()

    async def _chunks(self, disconnected: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        """Give what is to be sent: at once that the service is there, then lines, and a sign where there are none."""
        yield PREAMBLE
        async with aclosing(self._matching_rows()) as rows:
            next_row = _next(rows)
            try:
                while True:
                    either: set[asyncio.Future[Any]] = {next_row, disconnected}
                    await asyncio.wait(either, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                    if disconnected.done() or not self._is_token_valid():
                        return
                    if not next_row.done():
                        yield self._heartbeat()
                    elif (row := next_row.result()) is None:
                        return
                    else:
                        yield b"id: %d\ndata: %b\n\n" % (row.position, _encode(show_row(row)))
                        next_row = _next(rows)
            finally:
                next_row.cancel()
                await asyncio.wait([next_row])

    async def _matching_rows(self) -> AsyncGenerator[JournalRow, None]:
        """Give the lines that are wanted. Where the journal cannot go on, this ends: who comes back is told why."""
        async with aclosing(self._rows) as rows:
            with suppress(FleetError, StoreError):
                async for row in rows:
                    self._position = row.position
                    if self._matches(row):
                        yield row

    def _heartbeat(self) -> bytes:
        """Tell that the service is there, and how far it has looked: from there a reader can go on."""
        seen = b"" if self._position is None else b"id: %d\n" % self._position
        return seen + b": nothing new\n\n"


def _next(rows: AsyncGenerator[JournalRow, None]) -> asyncio.Future[JournalRow | None]:
    return asyncio.ensure_future(anext(rows, None))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@get(
    "/v1/watch",
    operation_id="watchJournal",
    summary="Follow the journal",
    tags=("journal",),
    opt=requires(Role.VIEWER),
    responses={
        200: ResponseSpec(
            data_container=str,
            media_type=EVENT_STREAM,
            description="Server-sent events: `id` is the position, `data` a JournalEntry. It goes on until you leave.",
            generate_examples=False,
        ),
        **error_specs(
            _404="The journal does not reach to this position: it is of other data. Or there is no such campaign.",
            _410="The journal no longer has what comes after this position.",
            _503="Too many follow it already, or it cannot be read now.",
        ),
    },
)
async def watch(
    request: Request[Any, Any, Any],
    state: AppState,
    caller: CallerDep,
    only_scope: OnlyScope = None,
    only_campaign: OnlyCampaign = None,
    after: Position = None,
    last_event_id: LastEventId = None,
) -> ASGIApp:
    """Follow the journal: every line as it is written, as server-sent events, none left out and none twice.

    Whoever comes back with the last `id` goes on where it was. A comment comes at once and every 15 seconds in which
    there is nothing else. `Last-Event-ID` comes before `after`.
    """
    if only_scope is not None:
        caller.check_scope(only_scope)
    wanted = set() if only_scope is None else {RecordKey(RecordKind.SCOPE, only_scope)}
    if only_campaign is not None:
        wanted.add(RecordKey(RecordKind.CAMPAIGN, find_campaign(state.fleet, caller, only_campaign).id))
    position = await state.fleet.journal.resolve_position(after if last_event_id is None else last_event_id)
    state.stream_slots.acquire()
    return EventStream(
        state.fleet.journal.follow(position),
        matches=_row_filter(read_predicate(state.fleet, caller), wanted),
        is_token_valid=request.scope[IS_STILL_VALID],  # type: ignore[literal-required]  # the gate put it there
        slots=state.stream_slots,
    )


def _row_filter(can_read: Callable[[JournalRow], bool], wanted: set[RecordKey]) -> Callable[[JournalRow], bool]:
    """Return what tells whether a line is of one of these records, if any are named, and the caller's to read."""
    return lambda row: (not wanted or row.key in wanted) and can_read(row)
