"""Hold routes: list, hold and release planned maintenance of a scope or of the fleet."""

from litestar import Controller, get, post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.parameters import IdempotencyKeyDep, change_error_specs, error_specs
from forewarn.operator.state import AppState
from forewarn.operator.views.inventory import show_hold

CHANGE_ERRORS = change_error_specs(ScopeNotFound, KeyConflict)


class HoldController(Controller):
    """Holds on planned maintenance. Failures, evictions and requests of users still happen."""

    path = "/v1/holds"
    tags = ("holds",)

    @get(operation_id="listHolds", summary="List holds", opt=requires(Role.VIEWER), responses=error_specs())
    async def list_holds(self, state: AppState, caller: CallerDep) -> v1.Holds:
        """List the hold of the fleet and the holds of scopes."""
        return list_visible_holds(state.fleet, caller)

    @post(
        operation_id="createHold",
        summary="Hold maintenance",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def hold(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.CreateHold]
    ) -> v1.Holds:
        """Hold planned maintenance of one scope or of the whole fleet. An existing hold gets the new reason."""
        check_hold_scope(caller, data.scope)
        await state.fleet.holds.set(
            by=caller.name, reason=data.reason, scope=data.scope, idempotency_key=idempotency_key
        )
        return list_visible_holds(state.fleet, caller)

    @post(
        "/release",
        operation_id="releaseHold",
        summary="Release a hold",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def release(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.ReleaseHold]
    ) -> v1.Holds:
        """End the hold of one scope, or of the whole fleet. Events that became due in the meantime start.

        A scope with its own hold stays held when the fleet is released. If there is no hold, nothing happens.
        """
        check_hold_scope(caller, data.scope)
        await state.fleet.holds.release(
            by=caller.name, why=data.reason, scope=data.scope, idempotency_key=idempotency_key
        )
        return list_visible_holds(state.fleet, caller)


def check_hold_scope(caller: Caller, scope: str | None) -> None:
    """Refuse a hold of the whole fleet to a limited token, and a hold of a scope that it is not for."""
    if scope is None:
        caller.check_unlimited()
    else:
        caller.check_scope(scope)


def list_visible_holds(fleet: Fleet, caller: Caller) -> v1.Holds:
    """Return the holds that the caller may see."""
    visible = (pair for pair in fleet.holds.all() if pair[0] is None or caller.can_see(pair[0]))
    return v1.Holds(holds=[show_hold(hold, scope) for scope, hold in visible])
