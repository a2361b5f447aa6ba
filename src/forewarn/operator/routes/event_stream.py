"""Event stream route (`/v1/watch`): follow the journal as server-sent events from a position."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any

from litestar import Request, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.core.access import Role
from forewarn.fleet.errors import FleetError, JournalPruned, PositionNotFound
from forewarn.operator.auth import IS_STILL_VALID, CallerDep, requires
from forewarn.operator.errors import TooManyStreams
from forewarn.operator.lookup import find_campaign
from forewarn.operator.parameters import CAMPAIGN_ERRORS, OnlyCampaign, OnlyScope, error_specs
from forewarn.operator.state import AppState, StreamSlots
from forewarn.operator.views.journal import read_predicate
from forewarn.store.port import JournalRow, RecordKey, RecordKind, StoreError

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
"""After this many seconds without an entry the stream sends a heartbeat."""

SEND_TIMEOUT = 60.0
"""How many seconds a client may read nothing. It occupies a buffer and a slot."""

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))
MAX_POSITION = (1 << 63) - 1

PREAMBLE = b"retry: 1000\n: Forewarn\n\n"
"""Sent at once; `retry` is the reconnection time of browsers in milliseconds."""

Position = Annotated[
    int | None,
    QueryParameter(
        name="after", ge=0, le=MAX_POSITION, description="Entries after this position; default: new entries only."
    ),
]
LastEventId = Annotated[
    int | None,
    HeaderParameter(
        name="Last-Event-ID",
        ge=0,
        le=MAX_POSITION,
        description="Like `after`, as browsers send it when they reconnect.",
    ),
]


class EventStream:
    """A response that lasts until the client disconnects or the service stops. A slow client reads from the journal.

    It is an ASGI application, which Litestar accepts as a response.
    """

    def __init__(
        self,
        pages: AsyncGenerator[Sequence[JournalRow], None],
        *,
        matches: Callable[[JournalRow], bool],
        encode: Callable[[JournalRow], bytes],
        is_token_valid: Callable[[], bool],
        slots: StreamSlots,
        position: int | None = None,
        beat: bytes = b"",
    ) -> None:
        """Prepare the response. With a `beat`, it begins at a known position and sends the beat as its heartbeat."""
        self._pages = pages
        self._matches = matches
        self._encode = encode
        self._is_token_valid = is_token_valid
        self._slots = slots
        self._position = position
        self._beat = beat
        self._sent_at = 0.0
        self._is_sending = False

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the response and release the slot."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await self._send_body(send, receive)
        finally:
            self._slots.release()

    async def _send_body(self, send: Send, receive: Receive) -> None:
        """Send entries until the client disconnects, the service stops or the journal cannot be read."""
        await self._send_chunk(send, PREAMBLE + (self._heartbeat() if self._beat else b""))
        disconnected = asyncio.create_task(_wait_for_disconnect(receive))
        parts = {disconnected, *map(asyncio.create_task, (self._send_rows(send), self._send_heartbeats(send)))}
        try:
            # One wait for the whole stream: a task and a timer for each entry would cost more than to send it.
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        except TimeoutError:
            log.info("a client of the journal stream has read nothing for %d s; closing the connection", SEND_TIMEOUT)
            return
        finally:
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_rows(self, send: Send) -> None:
        """Send the matching entries. If the journal cannot be read, stop; a client that reconnects gets the error."""
        async with aclosing(self._pages) as pages:
            with suppress(FleetError, StoreError):
                async for page in pages:
                    self._position = page[-1].position
                    matching = [row for row in page if self._matches(row)]
                    if not self._is_token_valid():
                        return
                    if matching:
                        await self._send_chunk(send, b"".join(map(self._encode, matching)))

    async def _send_heartbeats(self, send: Send) -> None:
        """Send a heartbeat whenever nothing was sent for a while."""
        loop = asyncio.get_running_loop()
        while self._is_token_valid():
            idle = loop.time() - self._sent_at
            if idle < HEARTBEAT or self._is_sending:
                await asyncio.sleep(max(HEARTBEAT - idle, HEARTBEAT / 2))
            else:
                await self._send_chunk(send, self._heartbeat())

    async def _send_chunk(self, send: Send, chunk: bytes) -> None:
        """Send a chunk, and wait while the client reads more slowly."""
        self._is_sending = True
        async with asyncio.timeout(SEND_TIMEOUT):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._is_sending = False
        self._sent_at = asyncio.get_running_loop().time()

    def _heartbeat(self) -> bytes:
        """Return a heartbeat with the last examined position, from which a client can resume."""
        seen = b"" if self._position is None else b"id: %d\n" % self._position
        return seen + (self._beat or b": nothing new\n\n")


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
            description="Server-sent events: `id` is the position, `data` a JournalEntry. Ends when you disconnect.",
            generate_examples=False,
        ),
        **error_specs(PositionNotFound, *CAMPAIGN_ERRORS, JournalPruned, TooManyStreams, "store-unavailable"),
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
    """Follow the journal: every entry as it is written, exactly once, as server-sent events.

    A client that reconnects with the last `id` resumes where it stopped. The service sends a comment at once and after
    every 15 seconds without an entry. `Last-Event-ID` takes precedence over `after`.
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
        encode=state.encode_row,
        matches=_row_filter(read_predicate(state.fleet, caller), wanted),
        is_token_valid=request.scope[IS_STILL_VALID],  # type: ignore[literal-required]  # set by TokenMiddleware
        slots=state.stream_slots,
    )


def _row_filter(can_read: Callable[[JournalRow], bool], wanted: set[RecordKey]) -> Callable[[JournalRow], bool]:
    """Return a filter for entries of these records, or of all if none are given, that the caller may read."""
    return lambda row: (not wanted or row.key in wanted) and can_read(row)
