"""Holds page: what is held, by whom and why; and to hold and release."""

from secrets import token_hex

from litestar import Response, get, post

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, changed, convert_form, read_form, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.parameters import IdempotencyKeyDep
from forewarn.operator.routes.holds import check_hold_scope, list_visible_holds
from forewarn.operator.state import AppState

PATH = f"{ROOT}/holds"

MAX_HOLDS = 200
"""How many holds the page lists."""


@get(PATH, opt=requires(Role.VIEWER))
async def show_holds(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Show the hold of the fleet and the holds of scopes."""
    holds = list_visible_holds(state.fleet, caller).holds
    return render_page(
        request,
        "holds.html",
        title="Holds",
        live="all",
        position=await state.fleet.journal.end(),
        holds=holds[:MAX_HOLDS],
        hold_count=len(holds),
        can_hold_fleet=not caller.scopes,
        request_key=token_hex(16),
    )


@post(PATH, opt=requires(Role.OPERATOR))
async def create_hold(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Hold planned maintenance of one scope, or of the whole fleet."""
    form = convert_form(await read_form(request), v1.CreateHold)
    check_hold_scope(caller, form.scope)
    await state.fleet.holds.set(by=caller.name, reason=form.reason, scope=form.scope, idempotency_key=idempotency_key)
    return changed()


@post(f"{PATH}/release", opt=requires(Role.OPERATOR))
async def release_hold(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Response[str]:
    """Release a hold."""
    form = convert_form(await read_form(request), v1.ReleaseHold)
    check_hold_scope(caller, form.scope)
    await state.fleet.holds.release(by=caller.name, why=form.reason, scope=form.scope, idempotency_key=idempotency_key)
    return changed()
