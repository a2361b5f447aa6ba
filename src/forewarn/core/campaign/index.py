"""The index of a campaign: everything derived from its record and its scopes, updated scope by scope.

It can be rebuilt at any moment: a new index that has observed the same scopes is equal. Only actions that were
requested and are not reported yet are lost with it; they are requested again, and every action may be repeated."""

from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush

from forewarn.core.campaign.actions import Action, AnnounceWave, CheckGate, ClearWave
from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.limits import resolve_limits
from forewarn.core.campaign.record import FAR_PAST, Campaign, ScopeProgress
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.status import InFlightWave, ScopeStatus, Turn, derive_status
from forewarn.core.campaign.windows import ZoneLookup
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope

MAX_OUTDATED = 64
"""How many outdated entries a heap may have, besides as many as it has valid ones."""


class WaveQueue:
    """Scopes, as positions, in the order of their waves. A deferred scope is not in the queue until it wakes.

    Both heaps may have outdated entries: the dictionaries have the valid ones. A heap with mostly outdated entries is
    rebuilt from its dictionary.
    """

    def __init__(self) -> None:
        self._turns: dict[int, Turn] = {}
        self._entries: list[Turn] = []
        self._wakes: dict[int, datetime] = {}
        self._deferred: list[tuple[datetime, int]] = []

    def __bool__(self) -> bool:
        return bool(self._turns)

    def push(self, turn: Turn) -> None:
        """Add a scope to the queue."""
        _, position = turn
        self._wakes.pop(position, None)
        if self._turns.get(position) != turn:
            self._turns[position] = turn
            heappush(self._entries, turn)
            if len(self._entries) > 2 * len(self._turns) + MAX_OUTDATED:
                self._entries = list(self._turns.values())
                heapify(self._entries)

    def pop(self) -> int:
        """Remove and return the first scope."""
        while self._turns.get((turn := heappop(self._entries))[1]) != turn:
            pass
        del self._turns[turn[1]]
        return turn[1]

    def defer(self, until: datetime, position: int) -> None:
        """Put a scope aside until a given time."""
        self._turns.pop(position, None)
        if self._wakes.get(position) != until:
            self._wakes[position] = until
            heappush(self._deferred, (until, position))
            if len(self._deferred) > 2 * len(self._wakes) + MAX_OUTDATED:
                self._deferred = [(at, deferred) for deferred, at in self._wakes.items()]
                heapify(self._deferred)

    def remove(self, position: int) -> None:
        """Remove a scope, queued or deferred."""
        self._turns.pop(position, None)
        self._wakes.pop(position, None)

    def pop_woken(self, now: datetime) -> Iterator[int]:
        """Remove and yield the deferred scopes whose time is reached."""
        while (at := self.wakes_at) is not None and at <= now:
            _, position = heappop(self._deferred)
            del self._wakes[position]
            yield position

    @property
    def wakes_at(self) -> datetime | None:
        """When the next deferred scope wakes."""
        while self._deferred and self._wakes.get(self._deferred[0][1]) != self._deferred[0][0]:
            heappop(self._deferred)
        return self._deferred[0][0] if self._deferred else None

    @property
    def heap_sizes(self) -> tuple[int, int]:
        """The sizes of the heaps, including outdated entries."""
        return len(self._entries), len(self._deferred)

    @property
    def positions(self) -> set[int]:
        """All scopes in it, deferred or not."""
        return self._turns.keys() | self._wakes.keys()


class PendingActions:
    """Actions that were requested and have no result yet, and when the gate was last found open."""

    def __init__(self) -> None:
        self._actions: set[Action] = set()
        self.announcing: dict[str, AnnounceWave] = {}
        self.clearing: set[str] = set()
        self.gate_checks = 0
        self.gate_opened_at = FAR_PAST

    def add(self, action: Action) -> bool:
        """Add an action; return whether it is new."""
        if action in self._actions:
            return False
        self._actions.add(action)
        match action:
            case AnnounceWave():
                self.announcing[action.scope] = action
            case ClearWave():
                self.clearing.add(action.scope)
            case CheckGate():
                self.gate_checks += 1
            case _:
                pass
        return True

    def discard(self, action: Action) -> None:
        """Remove a finished action."""
        if action not in self._actions:
            return
        self._actions.remove(action)
        match action:
            case AnnounceWave():
                self.announcing.pop(action.scope, None)
            case ClearWave():
                self.clearing.discard(action.scope)
            case CheckGate():
                self.gate_checks -= 1
            case _:
                pass

    @property
    def has_work(self) -> bool:
        """Whether any action other than a gate check is pending."""
        return len(self._actions) > self.gate_checks


class CampaignIndex:
    """The index of one campaign. `observe`, `decide` and `apply_result` own it and change it in place.

    A persistent data structure would be copied with every change, which is too slow for 25,000 waves.
    """

    def __init__(
        self, record: Campaign, context: RuleContext, zones: ZoneLookup, *, pending: PendingActions | None = None
    ) -> None:
        self.record = record
        """The record that it is derived from."""
        self.context = context
        self.pending = pending or PendingActions()
        self.calendar = Calendar(record.spec, context, zones, since=record.started_at)
        self.limits = resolve_limits(record.spec.policy, record.selected)
        self.selector = Selector(record.spec.selection)
        self.positions = {progress.scope: i for i, progress in enumerate(record.scopes)}
        self.stale = set(self.positions)
        """The scopes that must be observed before the next decision."""
        self.scopes: dict[str, Scope | None] = {}
        """The scopes as last observed."""
        self.statuses: dict[str, ScopeStatus] = {}
        self.news: set[str] = set()
        """The scopes with findings or actions that no decision has used yet."""
        self.in_flight: dict[str, InFlightWave] = {}
        self.ready = WaveQueue()
        """Waves that may be cleared, in order, now or from a later time on."""
        self.to_announce = WaveQueue()
        self.open: set[str] = set()
        """The scopes with open events of the campaign."""
        self.held: set[str] = set()
        self.unclosed: set[str] = set(self.positions)
        self.advanced: set[str] = set()
        """The scopes with a settled wave."""

    def scope_at(self, position: int) -> str:
        """Return the scope at a position."""
        return self.record.scopes[position].scope

    def progress(self, scope: str) -> ScopeProgress:
        """Return the progress of a scope in the record."""
        return self.record.scopes[self.positions[scope]]

    def update(self, record: Campaign, progress: ScopeProgress) -> ScopeStatus:
        """Derive the status of a scope again. A scope that has not been observed has no status."""
        id_ = progress.scope
        if id_ in self.stale:
            return ScopeStatus()
        position = self.positions[id_]
        status = derive_status(record, progress, position, self.scopes[id_], self.context, self.calendar)
        self.statuses[id_] = status
        _keep(self.open, id_, status.is_open)
        _keep(self.held, id_, status.is_held)
        _keep(self.unclosed, id_, not status.is_closed)
        _keep(self.advanced, id_, status.n > 1)
        _keep(self.news, id_, bool(status.findings or status.actions))
        if status.in_flight is not None:
            self.in_flight[id_] = status.in_flight
        else:
            self.in_flight.pop(id_, None)
        if status.ready is not None:
            self.ready.defer(status.ready.at, position)
        else:
            self.ready.remove(position)
        if status.announce_turn is not None:
            self.to_announce.push(status.announce_turn)
        else:
            self.to_announce.remove(position)
        return status

    def rebase(self, record: Campaign) -> None:
        """Continue with a record that an operator's command has changed; affected scopes must be observed again."""
        if record is self.record:
            return
        if record.state.is_aborted != self.record.state.is_aborted:
            self.stale = set(self.positions)
        else:
            pairs = zip(self.record.scopes, record.scopes, strict=True)
            self.stale |= {new.scope for old, new in pairs if new is not old}
        self.record = record


def _keep(members: set[str], id_: str, is_member: bool) -> None:
    if is_member:
        members.add(id_)
    else:
        members.discard(id_)


def observe(index: CampaignIndex, id_: str, scope: Scope | None) -> CampaignIndex:
    """Update the index, in place, with the current value of a scope (None: removed), and return the index."""
    index.stale.discard(id_)
    index.scopes[id_] = scope
    index.update(index.record, index.progress(id_))
    return index
