"""Fleet page: every scope as a block with its VMs by update domain and fault domain, or every host with its VMs.

The page has the first part of the blocks; the browser requests further parts when the user scrolls to them, and one
block or part again when it has changed, or when the user returns to a part that was far from the window.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from heapq import heapify, heappop
from itertools import takewhile
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ValidationException
from litestar.params import QueryParameter

from forewarn.core.access import Role
from forewarn.core.scope import Scope
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Vm
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.vm_state import VmState, count_states, vm_states
from forewarn.operator.pagination import visible_scopes
from forewarn.operator.parameters import HostName, ScopeId
from forewarn.operator.state import AppState

PATH = f"{ROOT}/fleet"

VMS_PER_PART = 800
"""A part of the page ends after the block that reaches this number of VMs …"""

BLOCKS_PER_PART = 60
"""… or after this number of blocks."""

BLOCKS_PER_ROWS = 12
"""This number of blocks fills rows of 1, 2, 3, 4 or 6 columns: a part with half of its VMs ends there, without gap."""

VMS_PER_CELL = 250
"""How many VMs of one update domain and fault domain a block shows; it says how many there are."""

NAMED_TILES = 60
"""A block with more VMs shows their marks only, without names."""

MAX_LABEL = 18
"""How many characters of a name a tile shows: the last ones, which differ."""

Search = Annotated[str, QueryParameter(name="q", max_length=128)]
StateName = Annotated[str, QueryParameter(name="state", max_length=32)]
ViewBy = Annotated[Literal["scopes", "hosts"], QueryParameter(name="view")]
OnlyScope = Annotated[str, QueryParameter(name="scope", max_length=128)]
OnlyHost = Annotated[str, QueryParameter(name="host", max_length=128)]
AfterBlock = Annotated[str, QueryParameter(name="after", max_length=128)]
UntilBlock = Annotated[str, QueryParameter(name="until", max_length=128)]


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of the page, as in its URL. `scope` and `host` are exact names."""

    q: str = ""
    state: str = ""
    scope: str = ""
    host: str = ""
    view: Literal["scopes", "hosts"] = "scopes"

    @property
    def text(self) -> str:
        """The text to search for."""
        return self.q.strip().casefold()

    @property
    def only_state(self) -> VmState | None:
        """The state of the VMs to show; None: all."""
        return VmState(self.state) if self.state else None

    @property
    def is_filter(self) -> bool:
        """Whether VMs can be left out."""
        return bool(self.text or self.state)

    @property
    def is_default(self) -> bool:
        """Whether the page shows the whole fleet by scope."""
        return self == FleetQuery()

    def url(self, path: str, **changed: str) -> str:
        """Return the URL of a path with these filters, except for the changed ones."""
        given = {name: value for name, value in (msgspec.structs.asdict(self) | changed).items() if value}
        return f"{path}?{urlencode(given)}"

    def without(self, name: str) -> str:
        """Return the URL of the page without one filter."""
        return self.url(PATH, **{name: ""})


def provide_query(
    search: Search = "",
    state_name: StateName = "",
    view_by: ViewBy = "scopes",
    only_scope: OnlyScope = "",
    only_host: OnlyHost = "",
) -> FleetQuery:
    """Provide the filters of a request to handlers."""
    if state_name and state_name not in list(VmState):
        raise ValidationException(f"state is one of {', '.join(VmState)} (got {state_name})")
    return FleetQuery(q=search, state=state_name, view=view_by, scope=only_scope, host=only_host)


FleetQueryDep = NamedDependency[FleetQuery]
"""The filters of a request, as handlers take them: `fleet_query: FleetQueryDep`."""

DEPENDENCIES = {"fleet_query": Provide(provide_query, sync_to_thread=False)}


class Tile(NamedTuple):
    """A VM in a block."""

    name: str
    label: str
    path: str
    state: VmState
    host: str


class Cell(NamedTuple):
    """The VMs of a fault domain within an update domain, or of a scope on a host."""

    tiles: list[Tile]
    omitted: int


class TileRow(NamedTuple):
    """A row of a block: an update domain of a scope, or a scope of a host, to which its label leads."""

    label: str
    cells: list[Cell]
    scope: str = ""


class Block(NamedTuple):
    """A scope or a host. `columns` are the titles of its cells; `scopes` are those whose changes change it.

    `is_silent`: the process of the host is not heard from.
    """

    id: str
    note: str
    is_held: bool
    is_silent: bool
    columns: list[str]
    rows: list[TileRow]
    vms: int
    scopes: list[str]

    @property
    def is_named(self) -> bool:
        """Whether tiles show names."""
        return self.vms <= NAMED_TILES


class BlockPage(NamedTuple):
    """Blocks after one and up to another; `until` is empty for the last part.

    `following` is None, or where the part after this one ends, if this one was full before it reached its end.
    """

    blocks: list[Block]
    after: str
    until: str
    following: str | None = None


@get(PATH, opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_fleet(
    request: AnyRequest, state: AppState, caller: CallerDep, fleet_query: FleetQueryDep
) -> Response[str]:
    """Show the fleet, with the first part of the blocks."""
    return render_page(
        request,
        "fleet.html",
        title="Fleet",
        position=await state.fleet.journal.end(),
        part=await _read_part(state, caller, fleet_query, after="", until=""),
        query=fleet_query,
        counts=await _count_states(state, caller),
    )


@get(f"{PATH}/part", opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_part(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    fleet_query: FleetQueryDep,
    after: AfterBlock = "",
    until: UntilBlock = "",
) -> Response[str]:
    """Show the blocks after one: those of a further part, or up to `until` those of a part that has changed.

    A part that has grown too much ends earlier, and a further one has the rest.
    """
    part = await _read_part(state, caller, fleet_query, after=after, until=until)
    return render_page(request, "fleet-part.html", part=part, query=fleet_query)


@get(f"{PATH}/states", opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_states(
    request: AnyRequest, state: AppState, caller: CallerDep, fleet_query: FleetQueryDep
) -> Response[str]:
    """Show how many VMs are in each state."""
    counts = await _count_states(state, caller)
    return render_page(request, "fleet-states.html", query=fleet_query, counts=counts)


@get(f"{PATH}/scopes/{{scope_id:str}}", opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_scope_block(
    request: AnyRequest, state: AppState, caller: CallerDep, fleet_query: FleetQueryDep, scope_id: ScopeId
) -> Response[str]:
    """Show the block of a scope again, after a change; nothing if no VM matches any more."""
    caller.check_scope(scope_id)
    scope, _ = state.fleet.replica.newest(scope_id)
    block = None if scope is None else _scope_block(state, scope, fleet_query, state.fleet.clock.now())
    return render_page(request, "fleet-block.html", block=block, query=fleet_query)


@get(f"{PATH}/hosts/{{host_name:str}}", opt=requires(Role.VIEWER), dependencies=DEPENDENCIES)
async def show_host_block(
    request: AnyRequest, state: AppState, caller: CallerDep, fleet_query: FleetQueryDep, host_name: HostName
) -> Response[str]:
    """Show the block of a host again, after a change; nothing if no VM matches any more."""
    block = _host_block(state, caller, host_name, fleet_query, {}, state.fleet.clock.now())
    return render_page(request, "fleet-block.html", block=block, query=fleet_query)


async def _count_states(state: AppState, caller: Caller) -> dict[VmState, int]:
    counts = dict.fromkeys(VmState, 0)
    now, hold, knows_polls = state.fleet.clock.now(), state.fleet.holds.current, state.fleet.cluster.hosts.knows_polls
    async for scope in visible_scopes(state.fleet.replica, state.scope_ids.ids(), caller):
        view = state.fleet.replica.get_or_create_view(scope.id)
        for each, count in count_states(view, scope, hold, now=now, knows_polls=knows_polls).items():
            counts[each] += count
    if not counts[VmState.UNKNOWN]:  # only for a minute after the start of a control node
        del counts[VmState.UNKNOWN]
    return counts


async def _read_part(state: AppState, caller: Caller, query: FleetQuery, *, after: str, until: str) -> BlockPage:
    find = _scope_blocks if query.view == "scopes" else _host_blocks
    blocks: list[Block] = []
    async for block in find(state, caller, query, after, until):
        if is_full(blocks):
            return BlockPage(blocks, after, blocks[-1].id, until)
        blocks.append(block)
    return BlockPage(blocks, after, until)


async def _scope_blocks(
    state: AppState, caller: Caller, query: FleetQuery, after: str, until: str
) -> AsyncIterator[Block]:
    now = state.fleet.clock.now()
    ids: Iterable[str] = state.scope_ids.after(after)
    if query.scope:
        ids = [query.scope] if query.scope > after else []
    elif query.only_state not in (None, VmState.QUIET, VmState.SILENT, VmState.UNKNOWN):
        ids = sorted(view.id for view in state.fleet.replica.views_with_events() if view.id > after)
    if until:
        ids = takewhile(lambda id_: id_ <= until, ids)
    async for scope in visible_scopes(state.fleet.replica, ids, caller):
        if (block := _scope_block(state, scope, query, now)) is not None:
            yield block


def is_full(blocks: list[Block]) -> bool:
    """Return whether a part has its blocks."""
    limit = VMS_PER_PART if len(blocks) % BLOCKS_PER_ROWS else VMS_PER_PART // 2
    return len(blocks) >= BLOCKS_PER_PART or sum(block.vms for block in blocks) >= limit


def _scope_block(state: AppState, scope: Scope, query: FleetQuery, now: datetime) -> Block | None:
    """Return the block of a scope with the VMs that match; None if none does."""
    text = query.text
    found: Iterable[Vm] = scope.roster
    if text and text not in scope.id.casefold():
        found = [vm for vm in found if _has_text(vm, text)]
        if not found:
            return None
    states = _states(state, scope, now)
    vms = [vm for vm in found if query.only_state in (None, states[vm.name])]
    if not vms and query.is_filter:
        return None
    columns = sorted({vm.fault_domain or 0 for vm in vms})
    cells: dict[tuple[int, int], list[Vm]] = {}
    for vm in vms:
        cells.setdefault((vm.update_domain, vm.fault_domain or 0), []).append(vm)
    rows = [
        TileRow(f"UD {row}", [_cell(scope, cells.get((row, column), []), states) for column in columns])
        for row in sorted({vm.update_domain for vm in vms})
    ]
    titles = [f"FD {column}" for column in columns]
    return Block(scope.id, scope.kind.value, scope.hold is not None, False, titles, rows, len(vms), [scope.id])


def _has_text(vm: Vm, text: str) -> bool:
    return (
        text in vm.name.casefold()
        or (vm.host is not None and text in vm.host.casefold())
        or any(text == address.ip for address in vm.addresses)
    )


def _states(state: AppState, scope: Scope, now: datetime) -> dict[str, VmState]:
    view = state.fleet.replica.get_or_create_view(scope.id)
    return vm_states(view, scope, state.fleet.holds.current, now=now, knows_polls=state.fleet.cluster.hosts.knows_polls)


def _cell(scope: Scope, vms: list[Vm], states: dict[str, VmState]) -> Cell:
    vms = sorted(vms, key=lambda vm: natural_sort_key(vm.name))
    tiles = [
        Tile(vm.name, short_name(vm.name), f"{scope.id}/{vm.name}", states[vm.name], vm.host or "no host")
        for vm in vms[:VMS_PER_CELL]
    ]
    return Cell(tiles, len(vms) - len(tiles))


def short_name(name: str) -> str:
    """Return a name as a tile or a row shows it: names of a scope, and those of scopes, differ at their end."""
    return name if len(name) <= MAX_LABEL else f"…{name[1 - MAX_LABEL :]}"


async def _host_blocks(
    state: AppState, caller: Caller, query: FleetQuery, after: str, until: str
) -> AsyncIterator[Block]:
    now = state.fleet.clock.now()
    states: dict[str, dict[str, VmState]] = {}
    hosts = [query.host] if query.host else list(state.fleet.replica.hosts())
    names = [name async for name in iterate_gradually(hosts) if name > after and (not until or name <= until)]
    async for name in iterate_gradually(_in_order(names)):
        if (block := _host_block(state, caller, name, query, states, now)) is not None:
            yield block


def _in_order(names: list[str]) -> Iterator[str]:
    """Yield the names in order; few are needed, and to sort all of them would take long."""
    heapify(names)
    while names:
        yield heappop(names)


def _host_block(
    state: AppState,
    caller: Caller,
    host: str,
    query: FleetQuery,
    states: dict[str, dict[str, VmState]],
    now: datetime,
) -> Block | None:
    """Return the block of a host with the VMs that match; None if none does. `states` has those of known scopes."""
    placed: dict[str, list[Vm]] = {}
    for view, vm in state.fleet.replica.hosts().get(host, ()):
        if caller.can_see(view.id):
            placed.setdefault(view.id, []).append(vm)
    text, rows, count = query.text, [], 0
    for scope_id in sorted(placed):
        scope = state.fleet.replica.scope(scope_id)
        if scope_id not in states:
            states[scope_id] = _states(state, scope, now)
        known = states[scope_id]
        vms = [
            vm
            for vm in placed[scope_id]
            if vm.name in known  # else added during this request
            and query.only_state in (None, known[vm.name])
            and (text in scope_id.casefold() or _has_text(vm, text))
        ]
        if vms:
            count += len(vms)
            rows.append(TileRow(short_name(scope_id), [_cell(scope, vms, known)], scope_id))
    if not rows:
        return None
    is_silent = host in state.fleet.cluster.hosts.silent()
    return Block(host, "host", False, is_silent, [], rows, count, sorted(placed))
