"""Access page: sessions and calendar of the caller's token, and for admins all sessions and tokens."""

from secrets import token_hex
from typing import Annotated

from litestar import Response, get, post
from litestar.exceptions import NotFoundException
from litestar.params import PathParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, ReasonForm, changed, convert_form, read_form, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.parameters import IdempotencyKeyDep, TokenId
from forewarn.operator.routes.calendar import feed_path
from forewarn.operator.routes.tokens import show_token
from forewarn.operator.sessions import Session
from forewarn.operator.state import AppState
from forewarn.operator.strict_request import to_utc

PATH = f"{ROOT}/access"

SessionId = Annotated[str, PathParameter(max_length=64)]


@get(PATH, opt=requires(Role.VIEWER))
async def show_access(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Show sessions and tokens."""
    is_admin = can_manage(caller)
    tokens = {token.id: token for token in state.fleet.tokens.all()}
    now = state.fleet.tokens.wall_clock.now()
    return render_page(
        request,
        "access.html",
        title="Access",
        live="all",
        renews=True,
        position=await state.fleet.journal.end(),
        is_admin=is_admin,
        sessions=_visible_sessions(state, caller),
        names={id_: token.name for id_, token in tokens.items()},
        tokens=[(show_token(token), token.is_valid(now=now)) for token in tokens.values()] if is_admin else [],
        own_token=caller.token,
        has_calendar=bool(tokens[caller.token].calendar) if caller.token in tokens else False,
        roles=[role.value for role in Role],
        request_key=token_hex(16),
    )


def can_manage(caller: Caller) -> bool:
    """Return whether the caller may manage tokens and end the sessions of others."""
    return caller.role.includes(Role.ADMIN) and not caller.scopes


def _visible_sessions(state: AppState, caller: Caller) -> list[Session]:
    return [each for each in state.sessions.all() if each.token == caller.token or can_manage(caller)]


@post(f"{PATH}/sessions/{{session_id:str}}/end", opt=requires(Role.VIEWER))
async def end_session(state: AppState, caller: CallerDep, session_id: SessionId) -> Response[str]:
    """End a session of the caller's token; admins can end every session."""
    if session_id not in [session.id for session in _visible_sessions(state, caller)]:
        raise NotFoundException
    state.sessions.end(session_id)
    return changed()


@post(f"{PATH}/calendar", opt=requires(Role.VIEWER))
async def create_calendar(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Create the secret address of the caller's calendar, and show it once."""
    secret = await state.fleet.tokens.create_calendar(caller.token, by=caller.name, idempotency_key=idempotency_key)
    url = f"{request.scope['scheme']}://{request.headers.get('host', '')}{feed_path(secret)}"
    return render_page(request, "new-calendar.html", url=url)


@post(f"{PATH}/calendar/revoke", opt=requires(Role.VIEWER))
async def revoke_calendar(state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep) -> Response[str]:
    """Revoke the address of the caller's calendar."""
    await state.fleet.tokens.revoke_calendar(caller.token, by=caller.name, idempotency_key=idempotency_key)
    return changed()


@post(f"{PATH}/tokens", opt=requires(Role.ADMIN, all_scopes=True))
async def create_token(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Create a token, and show its secret once."""
    form = await read_form(request)
    scopes = form.pop("scopes", "").replace(",", " ").split()
    data = convert_form(form | {"scopes": scopes}, v1.CreateToken)
    token, secret = await state.fleet.tokens.create(
        data.name,
        data.role,
        tuple(data.scopes),
        by=caller.name,
        expires_at=None if data.expires_at is None else to_utc(data.expires_at, "expires_at"),
        idempotency_key=idempotency_key,
    )
    return render_page(request, "new-token.html", name=token.name, secret=secret)


@post(f"{PATH}/tokens/{{token_id:str}}/revoke", opt=requires(Role.ADMIN, all_scopes=True))
async def revoke_token(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, token_id: TokenId
) -> Response[str]:
    """Revoke a token. The last one that can manage tokens is revoked only on the command line."""
    form = convert_form(await read_form(request), ReasonForm)
    await state.fleet.tokens.revoke(token_id, by=caller.name, why=form.reason, idempotency_key=idempotency_key)
    return changed()
