"""Calendar routes: create and revoke the secret address of the caller's calendar, and the feed at this address."""

from typing import Annotated, Any

from litestar import Controller, Request, Response, delete, get, post
from litestar.exceptions import NotFoundException
from litestar.params import PathParameter, QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict
from forewarn.fleet.errors import SecretUnavailable, TokenNotFound
from forewarn.operator.auth import CallerDep, caller_of, requires
from forewarn.operator.error_responses import status_of
from forewarn.operator.icalendar import MEDIA_TYPE, encode_calendar
from forewarn.operator.parameters import IdempotencyKeyDep, change_error_specs
from forewarn.operator.state import AppState
from forewarn.operator.views.calendar import list_entries

FEEDS = "/ui/calendar"
"""The path of all feeds, below that of the dashboard. A feed needs no token: calendar programs cannot send one."""

ENDING = ".ics"

FileName = Annotated[str, PathParameter(max_length=128)]
OnlyScope = Annotated[str | None, QueryParameter(name="scope", min_length=1, max_length=128)]


class CalendarController(Controller):
    """The calendar of the caller's token. Its secret is shown only once, and not stored."""

    path = "/v1/calendar"
    tags = ("tokens",)
    opt = requires(Role.VIEWER)

    @post(
        operation_id="createCalendar",
        summary="Create the address of a calendar",
        responses=change_error_specs(TokenNotFound, SecretUnavailable, KeyConflict),
    )
    async def create_calendar(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
    ) -> v1.NewCalendar:
        """Create the secret address of the token's iCalendar feed; a former address stops working.

        The feed has the open events and planned waves that the token may see, and ends with the token.
        """
        secret = await state.fleet.tokens.create_calendar(caller.token, by=caller.name, idempotency_key=idempotency_key)
        return v1.NewCalendar(path=feed_path(secret))

    @delete(
        operation_id="revokeCalendar",
        summary="Revoke the address of a calendar",
        responses=change_error_specs(TokenNotFound, KeyConflict),
    )
    async def revoke_calendar(self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep) -> None:
        """Revoke the address of the token's calendar, if it has one."""
        await state.fleet.tokens.revoke_calendar(caller.token, by=caller.name, idempotency_key=idempotency_key)


def feed_path(secret: str) -> str:
    """Return the path of a feed."""
    return f"{FEEDS}/{secret}{ENDING}"


@get(f"{FEEDS}/{{file_name:str}}", opt=requires(None), include_in_schema=False)
async def show_feed(
    request: Request[Any, Any, Any], state: AppState, file_name: FileName, only_scope: OnlyScope = None
) -> Response[bytes]:
    """Return the iCalendar feed of a token, of all its scopes or of one."""
    token = state.fleet.tokens.find_by_calendar(file_name.removesuffix(ENDING)) if file_name.endswith(ENDING) else None
    if token is None:
        if wait := state.token_check.count_wrong(request.scope):
            status = status_of("too-many-wrong-tokens")
            return Response(b"", status_code=status, media_type="text/plain", headers={"Retry-After": str(wait)})
        raise NotFoundException
    host = request.headers.get("host", "")
    url = f"{request.scope['scheme']}://{host}/ui"
    entries = await list_entries(state.fleet, caller_of(token), scope=only_scope, dashboard_url=url)
    name = "Maintenance" if only_scope is None else f"Maintenance of {only_scope}"
    return Response(encode_calendar(name, entries), media_type=MEDIA_TYPE)
