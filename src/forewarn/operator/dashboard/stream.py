"""Event stream of the dashboard: the journal, with a beat by which pages notice that the connection is lost."""

from typing import Annotated

from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.types import ASGIApp

from forewarn.core.access import Role
from forewarn.operator.auth import IS_STILL_VALID, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest
from forewarn.operator.dashboard.session_middleware import STREAM
from forewarn.operator.routes.event_stream import MAX_POSITION, EventStream
from forewarn.operator.state import AppState
from forewarn.operator.views.journal import read_predicate

BEAT = b"event: beat\ndata: 1\n\n"
"""Sent at once and after every 15 seconds without an entry; unlike a comment, a browser reports it to the page."""

Position = Annotated[int | None, QueryParameter(name="after", ge=0, le=MAX_POSITION)]
LastEventId = Annotated[int | None, HeaderParameter(name="Last-Event-ID", ge=0, le=MAX_POSITION)]


@get(STREAM, opt=requires(Role.VIEWER))
async def stream(
    request: AnyRequest, state: AppState, caller: CallerDep, after: Position = None, last_event_id: LastEventId = None
) -> ASGIApp:
    """Follow the journal entries that the caller may read."""
    position = await state.fleet.journal.resolve_position(after if last_event_id is None else last_event_id)
    state.stream_slots.acquire()
    return EventStream(
        state.fleet.journal.follow(position),
        encode=state.encode_row,
        matches=read_predicate(state.fleet, caller),
        is_token_valid=request.scope[IS_STILL_VALID],  # type: ignore[literal-required]  # set by SessionMiddleware
        slots=state.stream_slots,
        position=position,
        beat=BEAT,
    )
