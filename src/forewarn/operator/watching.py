"""Following the journal: every line as a server-sent event, from a position on, for as long as somebody reads."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from forewarn.core.access import Role
from forewarn.fleet.errors import FleetError
from forewarn.operator.access import STILL_KNOWN, AskedBy, needs
from forewarn.operator.backstage import Backstage
from forewarn.operator.finding import find_campaign
from forewarn.operator.parameters import OnlyCampaign, OnlyScope, refusals
from forewarn.operator.seats import Seats
from forewarn.operator.showing_journal import readable, show_row
from forewarn.store.port import JournalRow, RecordKey, RecordKind, StoreError

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
"""After how many seconds without a line the reader is told that the service is there."""

STALLED = 60.0
"""For how many seconds a reader may take nothing. It costs a buffer, and a place that others could have."""

EVENT_STREAM = "text/event-stream"
LAST_POSITION = (1 << 63) - 1

HELLO = b"retry: 1000\n: Forewarn\n\n"
"""Said at once; a browser that has lost the connection comes back after this many milliseconds."""

Position = Annotated[
    int | None,
    QueryParameter(name="after", ge=0, le=LAST_POSITION, description="Lines after this position; else new ones only."),
]
LastEventId = Annotated[
    int | None,
    HeaderParameter(
        name="Last-Event-ID", ge=0, le=LAST_POSITION, description="The same, as browsers say it when they come back."
    ),
]

_encode = msgspec.json.Encoder().encode


class EventStream(ASGIResponse):
    """An answer that goes on until its reader leaves or the service ends. A slow reader waits in the journal."""

    _should_set_content_length = False

    def __init__(
        self,
        rows: AsyncGenerator[JournalRow, None],
        *,
        is_wanted: Callable[[JournalRow], bool],
        is_allowed: Callable[[], bool],
        seats: Seats,
    ) -> None:
        super().__init__(media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})
        self._rows = rows
        self._is_wanted = is_wanted
        self._is_allowed = is_allowed
        self._seats = seats
        self._position: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and give the place back."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seats.leave()

    async def send_body(self, send: Send, receive: Receive) -> None:
        """Send lines as they come, until the reader has gone, the service ends or the journal cannot go on."""
        gone = asyncio.create_task(_until_gone(receive))
        try:
            async with aclosing(self._pieces(gone)) as pieces:
                async for piece in pieces:
                    async with asyncio.timeout(STALLED):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("somebody who follows the journal has read nothing for %d s and is left behind", STALLED)
        finally:
            gone.cancel()

    async def _pieces(self, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        """Give what is to be sent: at once that the service is there, then lines, and a sign where there are none."""
        yield HELLO
        async with aclosing(self._wanted()) as rows:
            coming = _next(rows)
            try:
                while True:
                    either: set[asyncio.Future[Any]] = {coming, gone}
                    await asyncio.wait(either, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                    if gone.done() or not self._is_allowed():
                        return
                    if not coming.done():
                        yield self._sign()
                    elif (row := coming.result()) is None:
                        return
                    else:
                        yield b"id: %d\ndata: %b\n\n" % (row.position, _encode(show_row(row)))
                        coming = _next(rows)
            finally:
                coming.cancel()
                await asyncio.wait([coming])

    async def _wanted(self) -> AsyncGenerator[JournalRow, None]:
        """Give the lines that are wanted. Where the journal cannot go on, this ends: who comes back is told why."""
        async with aclosing(self._rows) as rows:
            with suppress(FleetError, StoreError):
                async for row in rows:
                    self._position = row.position
                    if self._is_wanted(row):
                        yield row

    def _sign(self) -> bytes:
        """Tell that the service is there, and how far it has looked: from there a reader can go on."""
        seen = b"" if self._position is None else b"id: %d\n" % self._position
        return seen + b": nothing new\n\n"


def _next(rows: AsyncGenerator[JournalRow, None]) -> asyncio.Future[JournalRow | None]:
    return asyncio.ensure_future(anext(rows, None))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@get(
    "/v1/watch",
    operation_id="watch",
    summary="Follow the journal",
    tags=("journal",),
    opt=needs(Role.VIEWER),
    responses={
        200: ResponseSpec(
            data_container=str,
            media_type=EVENT_STREAM,
            description="Server-sent events: `id` is the position, `data` a JournalEntry. It goes on until you leave.",
            generate_examples=False,
        ),
        **refusals(
            _404="The journal does not reach to this position: it is of other data. Or there is no such campaign.",
            _410="The journal no longer has what comes after this position.",
            _503="Too many follow it already, or it cannot be read now.",
        ),
    },
)
async def watch(
    request: Request[Any, Any, Any],
    state: Backstage,
    caller: AskedBy,
    only_scope: OnlyScope = None,
    only_campaign: OnlyCampaign = None,
    after: Position = None,
    last_event_id: LastEventId = None,
) -> EventStream:
    """Follow the journal: every line as it is written, as server-sent events, none left out and none twice.

    Whoever comes back with the last `id` goes on where it was. A comment comes at once and every 15 seconds in which
    there is nothing else. `Last-Event-ID` comes before `after`.
    """
    if only_scope is not None:
        caller.check(only_scope)
    wanted = set() if only_scope is None else {RecordKey(RecordKind.SCOPE, only_scope)}
    if only_campaign is not None:
        wanted.add(RecordKey(RecordKind.CAMPAIGN, find_campaign(state.fleet, caller, only_campaign).id))
    position = await state.fleet.feeds.resolve_position(after if last_event_id is None else last_event_id)
    state.seats.take()
    return EventStream(
        state.fleet.feeds.rows(position),
        is_wanted=_wanted_by(readable(state.fleet, caller), wanted),
        is_allowed=request.scope[STILL_KNOWN],  # type: ignore[literal-required]  # the gate put it there
        seats=state.seats,
    )


def _wanted_by(may_read: Callable[[JournalRow], bool], wanted: set[RecordKey]) -> Callable[[JournalRow], bool]:
    """Return what tells whether a line is of one of these records, if any are named, and the caller's to read."""
    return lambda row: (not wanted or row.key in wanted) and may_read(row)
