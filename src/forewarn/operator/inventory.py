"""The paths of the inventory: scopes, VMs and hosts."""

from litestar import Controller, get

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.access import AskedBy, needs
from forewarn.operator.backstage import Backstage
from forewarn.operator.parameters import After, Limit, OnlyScope, refusals
from forewarn.operator.showing_inventory import show_vms


class VmController(Controller):
    """The VMs."""

    path = "/v1/vms"
    tags = ("inventory",)

    @get(
        operation_id="listVms",
        summary="List VMs",
        opt=needs(Role.VIEWER),
        responses=refusals(_404="There is no such scope."),
    )
    async def list_vms(
        self,
        state: Backstage,
        caller: AskedBy,
        only_scope: OnlyScope = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.VmPage:
        """List VMs by scope and name."""
        return show_vms(state.fleet, state.guests.url, scope=only_scope, after=after, limit=limit, caller=caller)
