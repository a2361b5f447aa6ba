"""Fleet page: every scope as a block with its VMs by update domain and fault domain, or every host with its VMs.

The page has the first blocks; the browser requests further ones when the user scrolls to them.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

from litestar import Response, get
from litestar.exceptions import ValidationException
from litestar.params import PathParameter, QueryParameter

from forewarn.core.access import Role
from forewarn.core.scope import Scope
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Vm
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.vm_state import VmState, vm_states
from forewarn.operator.pagination import visible_scopes
from forewarn.operator.state import AppState
from forewarn.operator.views.inventory import sorted_vms
from forewarn.operator.views.inventory_pages import list_hosts

PATH = f"{ROOT}/fleet"

VMS_PER_PART = 800
"""A part of the page ends after the block that reaches this number of VMs …"""

BLOCKS_PER_PART = 60
"""… or after this number of blocks."""

VMS_PER_DOMAIN = 250
"""How many VMs of one update domain a block shows; it says how many there are."""

Search = Annotated[str, QueryParameter(name="q", max_length=128)]
StateName = Annotated[str, QueryParameter(name="state", max_length=32)]
ViewBy = Annotated[Literal["scopes", "hosts"], QueryParameter(name="view")]
ScopeId = Annotated[str, PathParameter(max_length=128)]
AfterBlock = Annotated[str, QueryParameter(name="after", max_length=128)]


class Tile(NamedTuple):
    """A VM in a block. `scope` is empty where the block has one."""

    name: str
    path: str
    state: VmState
    fault_domain: int
    host: str


class TileRow(NamedTuple):
    """The VMs of an update domain, those of one fault domain next to each other."""

    label: str
    tiles: list[Tile]
    omitted: int


class Block(NamedTuple):
    """A scope or a host."""

    id: str
    note: str
    is_held: bool
    rows: list[TileRow]
    vms: int


@get(PATH, opt=requires(Role.VIEWER))
async def show_fleet(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    search: Search = "",
    state_name: StateName = "",
    view_by: ViewBy = "scopes",
    after: AfterBlock = "",
) -> Response[str]:
    """Show the fleet; a request with `after` gets only the blocks after that one."""
    position = await state.fleet.journal.end()
    only_state = _parse_state(state_name)
    if view_by == "scopes":
        blocks, more = await _scope_blocks(state, caller, search, only_state, after)
    else:
        blocks, more = await _host_blocks(state, caller, search, only_state, after)
    query = {"q": search, "state": only_state.value if only_state else "", "view": view_by}
    given = {name: value for name, value in query.items() if value}
    return render_page(
        request,
        "fleet-blocks.html" if after else "fleet.html",
        title="Fleet",
        position=position,
        blocks=blocks,
        query=query,
        states=list(VmState),
        self_path=f"{PATH}?{urlencode(given)}",
        next_path=f"{PATH}?{urlencode(given | {'after': more})}" if more else None,
    )


@get(f"{PATH}/scopes/{{scope_id:str}}", opt=requires(Role.VIEWER))
async def show_block(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    scope_id: ScopeId,
    search: Search = "",
    state_name: StateName = "",
) -> Response[str]:
    """Show the block of one scope again, after a change."""
    caller.check_scope(scope_id)
    text, only_state = search.strip().casefold(), _parse_state(state_name)
    block = _scope_block(state, state.fleet.replica.scope(scope_id), text, only_state, state.fleet.clock.now())
    return render_page(
        request,
        "fleet-blocks.html",
        blocks=[] if block is None else [block],
        query={"q": search, "state": state_name, "view": "scopes"},
        next_path=None,
    )


def _parse_state(name: str) -> VmState | None:
    try:
        return VmState(name) if name else None
    except ValueError:
        raise ValidationException(f"state is one of {', '.join(VmState)} (got {name})") from None


async def _scope_blocks(
    state: AppState, caller: Caller, search: str, only_state: VmState | None, after: str
) -> tuple[list[Block], str]:
    """Return blocks, and the id after which further ones follow; empty if there are none."""
    text, now = search.strip().casefold(), state.fleet.clock.now()

    async def matching() -> AsyncIterator[Block]:
        async for scope in visible_scopes(state.fleet.replica, state.scope_ids.after(after), caller):
            if (block := _scope_block(state, scope, text, only_state, now)) is not None:
                yield block

    blocks: list[Block] = []
    async for block in matching():
        if len(blocks) >= BLOCKS_PER_PART or sum(each.vms for each in blocks) >= VMS_PER_PART:
            return blocks, blocks[-1].id
        blocks.append(block)
    return blocks, ""


def _scope_block(state: AppState, scope: Scope, text: str, only_state: VmState | None, now: datetime) -> Block | None:
    """Return the block of a scope with the VMs that match; None if none does."""
    found = [
        vm
        for vm in scope.roster
        if text in scope.id.casefold()
        or text in vm.name.casefold()
        or (vm.host is not None and text in vm.host.casefold())
        or any(text == address.ip for address in vm.addresses)
    ]
    states = _states(state, scope, now)
    if only_state is not None:
        found = [vm for vm in found if states[vm.name] is only_state]
    if not found and (text or only_state is not None):
        return None
    rows = []
    for domain in sorted({vm.update_domain for vm in found}):
        vms = sorted(
            (vm for vm in found if vm.update_domain == domain),
            key=lambda vm: (vm.fault_domain, natural_sort_key(vm.name)),
        )
        tiles = [_tile(scope, vm, states[vm.name]) for vm in vms[:VMS_PER_DOMAIN]]
        rows.append(TileRow(f"UD {domain}", tiles, len(vms) - len(tiles)))
    return Block(scope.id, scope.kind.value, scope.hold is not None, rows, len(found))


def _states(state: AppState, scope: Scope, now: datetime) -> dict[str, VmState]:
    view = state.fleet.replica.get_or_create_view(scope.id)
    return vm_states(view, scope, state.fleet.holds.current, now=now)


def _tile(scope: Scope, vm: Vm, state: VmState) -> Tile:
    return Tile(vm.name, f"{scope.id}/{vm.name}", state, vm.fault_domain or 0, vm.host or "no host")


async def _host_blocks(
    state: AppState, caller: Caller, search: str, only_state: VmState | None, after: str
) -> tuple[list[Block], str]:
    """Return blocks, perhaps none, and the host after which to continue; empty if there are no further hosts."""
    text, now = search.strip().casefold(), state.fleet.clock.now()
    page = await list_hosts(state, caller, name=None, after=after, limit=BLOCKS_PER_PART)
    blocks: list[Block] = []
    states: dict[str, dict[str, VmState]] = {}
    async for host in iterate_gradually(page.hosts):
        if sum(block.vms for block in blocks) >= VMS_PER_PART:
            return blocks, blocks[-1].id
        rows = []
        for scope_id in host.scopes:
            scope, _ = state.fleet.replica.newest(scope_id)
            if scope is None:
                continue
            if scope_id not in states:
                states[scope_id] = _states(state, scope, now)
            known = states[scope_id]
            vms = [
                vm
                for vm in sorted_vms(scope.roster)
                if vm.host == host.name
                and only_state in (None, known[vm.name])
                and (text in host.name.casefold() or text in scope_id.casefold() or text in vm.name.casefold())
            ]
            if vms:
                tiles = [_tile(scope, vm, known[vm.name]) for vm in vms[:VMS_PER_DOMAIN]]
                rows.append(TileRow(scope_id, tiles, len(vms) - len(tiles)))
        if rows:
            count = sum(len(row.tiles) + row.omitted for row in rows)
            blocks.append(Block(host.name, "host", False, rows, count))
    return blocks, page.next or ""
