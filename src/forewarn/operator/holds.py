"""The paths of holds: nothing planned starts while it is held."""

from litestar import Controller, get, post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.fleet.service import Fleet
from forewarn.operator.access import AskedBy, Caller, needs
from forewarn.operator.backstage import Backstage
from forewarn.operator.parameters import AskedOnce, change_refusals, refusals
from forewarn.operator.showing_inventory import show_hold

CHANGING = change_refusals(
    _404="There is no such scope.",
    _409="The key was used for another request.",
)


class HoldController(Controller):
    """Holds on planned maintenance. Failures, evictions, and what users ask for, go on."""

    path = "/v1/holds"
    tags = ("holds",)

    @get(operation_id="listHolds", summary="List what is held", opt=needs(Role.VIEWER), responses=refusals())
    async def list_holds(self, state: Backstage, caller: AskedBy) -> v1.Holds:
        """List the hold on the whole fleet and those of scopes."""
        return _show_holds(state.fleet, caller)

    @post(
        operation_id="hold",
        summary="Hold maintenance",
        status_code=200,
        opt=needs(Role.OPERATOR),
        responses=CHANGING,
    )
    async def hold(self, state: Backstage, caller: AskedBy, once: AskedOnce, data: JSONBody[v1.MakeHold]) -> v1.Holds:
        """Let nothing planned start, in one scope or anywhere. A hold that is there already gets the new reason."""
        _check(caller, data.scope)
        await state.fleet.hold(by=caller.name, reason=data.reason, scope=data.scope, idempotency_key=once)
        return _show_holds(state.fleet, caller)

    @post(
        "/release",
        operation_id="release",
        summary="Release maintenance",
        status_code=200,
        opt=needs(Role.OPERATOR),
        responses=CHANGING,
    )
    async def release(
        self, state: Backstage, caller: AskedBy, once: AskedOnce, data: JSONBody[v1.ReleaseHold]
    ) -> v1.Holds:
        """End the hold of one scope, or the one on the whole fleet; what has become due meanwhile starts.

        A scope that is held by itself stays held when the whole fleet is released. Releasing what is not held does
        nothing.
        """
        _check(caller, data.scope)
        await state.fleet.release(by=caller.name, why=data.why, scope=data.scope, idempotency_key=once)
        return _show_holds(state.fleet, caller)


def _check(caller: Caller, scope: str | None) -> None:
    if scope is None:
        caller.check_unlimited()
    else:
        caller.check(scope)


def _show_holds(fleet: Fleet, caller: Caller) -> v1.Holds:
    held = (
        show_hold(view.scope.hold, view.id)
        for view in fleet.replica.views()
        if view.scope is not None and view.scope.hold is not None and caller.sees(view.id)
    )
    scopes = sorted((hold for hold in held if hold is not None), key=lambda hold: hold.scope or "")
    return v1.Holds(fleet=show_hold(fleet.current_hold, None), scopes=scopes)
