"""The index of a campaign: everything derived from its record and its scopes, updated scope by scope.

`observe`, `decide` and `apply_result` change it in place; a failed save discards it. It can be rebuilt at any moment: a
new index that has observed the same scopes is equal. Lost with it are only the `PendingActions`: requested actions that
have no result yet, which are requested again, as every action may be repeated; and when the gate was found open, which
costs another check."""

from bisect import bisect_left, bisect_right, insort
from datetime import datetime

from forewarn.core.campaign.actions import Action, AnnounceWave, CheckGate, ClearWave
from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.limits import resolve_limits
from forewarn.core.campaign.record import FAR_PAST, Campaign, ScopeProgress
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.status import InFlightWave, ReadyWave, ScopeStatus, Turn, derive_status
from forewarn.core.campaign.windows import ZoneLookup
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope


class WaveQueue:
    """Scopes in the order of their waves. A deferred scope is not in the queue until it is put there at its time."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[Turn, datetime | None]] = {}
        self._queue: list[tuple[Turn, str]] = []
        self._deferred: list[tuple[datetime, Turn, str]] = []
        # Both are sorted. With thousands of scopes an insertion moves some memory, which is faster than a heap that
        # has to remember what was removed from it.

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, id_: str, turn: Turn, at: datetime | None = None) -> None:
        """Add or move a scope: into the queue, or deferred until a given time."""
        if self._members.get(id_) != (turn, at):
            self.remove(id_)
            self._members[id_] = turn, at
            if at is None:
                insort(self._queue, (turn, id_))
            else:
                insort(self._deferred, (at, turn, id_))

    def remove(self, id_: str) -> None:
        """Remove a scope, queued or deferred."""
        turn, at = self._members.pop(id_, (None, None))
        if turn is not None and at is None:
            del self._queue[bisect_left(self._queue, (turn, id_))]
        elif turn is not None and at is not None:
            del self._deferred[bisect_left(self._deferred, (at, turn, id_))]

    @property
    def first(self) -> tuple[Turn, str]:
        """The first scope of the queue, after its turn."""
        return self._queue[0]

    def pop_due(self, now: datetime, limit: int) -> list[tuple[Turn, str]]:
        """Remove and return deferred scopes whose time is reached, at most as many as the limit."""
        count = min(bisect_right(self._deferred, now, key=_time_of), limit)
        due = [(turn, id_) for _, turn, id_ in self._deferred[:count]]
        del self._deferred[:count]
        for _, id_ in due:
            del self._members[id_]
        return due

    @property
    def wakes_at(self) -> datetime | None:
        """When the time of the next deferred scope is reached."""
        return self._deferred[0][0] if self._deferred else None

    def is_due(self, now: datetime) -> bool:
        """Return whether the time of a deferred scope is reached."""
        return bool(self._deferred) and self._deferred[0][0] <= now

    @property
    def queued(self) -> list[tuple[Turn, str]]:
        """The scopes of the queue after their turns, in order."""
        return list(self._queue)

    @property
    def deferred(self) -> list[tuple[Turn, str]]:
        """The deferred scopes after their turns, in the order of their times."""
        return [(turn, id_) for _, turn, id_ in self._deferred]


def _time_of(entry: tuple[datetime, Turn, str]) -> datetime:
    return entry[0]


class PendingActions:
    """Actions that were requested and have no result yet, and when the gate was last found open."""

    def __init__(self) -> None:
        self._actions: set[Action] = set()
        self.announcing: dict[str, AnnounceWave] = {}
        self.clearing: set[str] = set()
        self.gate_checks = 0
        self.gate_opened_at = FAR_PAST
        """When the last check that found the gate open was requested: it counts for waves that had ended before."""
        self.gate_open_until = FAR_PAST

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
        self.ready_waves: dict[str, ReadyWave] = {}
        self.ready = WaveQueue()
        """Waves that may be cleared, in order, now or from a later time on."""
        self.at_gate = WaveQueue()
        """Waves that could be cleared now, but need an open gate: deferred until it was found open after their scope's
        previous wave had ended."""
        self.to_announce = WaveQueue()
        self.open: set[str] = set()
        """The scopes with open events of the campaign."""
        self.held: set[str] = set()
        self.unclosed: set[str] = set(self.positions)
        self.advanced: set[str] = set()
        """The scopes with a settled wave."""

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
        self.at_gate.remove(id_)
        if status.ready is not None and id_ not in self.pending.clearing:
            self.ready_waves[id_] = status.ready
            self.ready.put(id_, status.ready.turn, status.ready.at)
        else:
            self.ready_waves.pop(id_, None)
            self.ready.remove(id_)
        if status.announce_turn is not None and id_ not in self.pending.announcing:
            self.to_announce.put(id_, status.announce_turn)
        else:
            self.to_announce.remove(id_)
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
