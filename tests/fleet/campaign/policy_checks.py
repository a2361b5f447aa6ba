"""A store that checks the policy of every campaign at each save.

It knows the campaign requests and the saved scopes, and nothing of the rules that run campaigns."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.record import CampaignState
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.event import Event, EventType, State
from forewarn.core.impact import SETTLED
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Scope
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.store.port import NO_GUARDS, Guards, JournalQuery, JournalRow, RecordKey, RecordKind
from tests.core.campaign.plan_invariants import is_open
from tests.fleet.fleets import InterceptedStore

_decode_scope = msgspec.json.Decoder(Scope).decode


class CheckedCampaign(msgspec.Struct, frozen=True):
    """What the checks need to know of a campaign."""

    id: str
    spec: CampaignSpec
    state: CampaignState
    selected: Counts


_decode_campaign = msgspec.json.Decoder(CheckedCampaign).decode

NOTICE = {
    EventType.FREEZE: timedelta(minutes=15),
    EventType.REBOOT: timedelta(minutes=15),
    EventType.REDEPLOY: timedelta(minutes=10),
}


class PolicyCheckingStore(InterceptedStore):
    """A store that looks at everything it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes: dict[str, Scope] = {}
        self.campaigns: dict[str, CheckedCampaign] = {}
        self.started = 0
        """How many events of campaigns have started."""
        self.most_vms = 0
        """How many VMs were in impact at most when such an event started."""
        self.work_done: dict[tuple[str, str, str], int] = {}
        """How often a campaign's work was done on a VM."""
        self._journal_rows: dict[RecordKey, list[JournalRow]] = {}
        self._busy: dict[str, list[_Busy]] = {}
        """By scope, the VMs in impact."""
        self._last_end: dict[tuple[str, str], tuple[datetime, int]] = {}
        """By campaign and scope, when an event last ended that had started, and of which update domain it was."""

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save, then look."""
        revision = await super().save(key, value, entries, expected=expected, guards=guards)
        self._journal_rows.setdefault(key, []).extend(self._rows[len(self._rows) - len(entries) :])
        if key.kind is RecordKind.CAMPAIGN and value is not None:
            self.campaigns[key.id] = _decode_campaign(value)
        elif key.kind is RecordKind.SCOPE:
            self._check_scope(key.id, None if value is None else _decode_scope(value), entries)
        return revision

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Find the lines of a record without looking through those of thousands of others."""
        if query.key is None:
            return await super().journal(query)
        await self._yield_to_loop()
        lines = (row for row in self._journal_rows.get(query.key, ()) if row.position > query.after)
        kept = (row for row in lines if query.since is None or row.entry.at >= query.since)
        return [row for row in kept if not query.kinds or row.entry.kind in query.kinds][: query.limit]

    def clear_journal(self) -> None:
        """Keep nothing of the journal any more."""
        self._rows.clear()
        self._journal_rows.clear()

    def _check_scope(self, id_: str, after: Scope | None, entries: Sequence[Entry]) -> None:
        before = self.scopes.pop(id_, None)
        self._busy.pop(id_, None)
        if after is not None:
            self.scopes[id_] = after
            if busy := _in_impact(after):
                self._busy[id_] = busy
        known = {event.id: event for scope in (before, after) if scope is not None for event in scope.events}
        for entry in entries:
            event = known.get(entry.event or "")
            if event is not None and event.campaign:
                self._check_entry(id_, event, entry)

    def _check_entry(self, scope: str, event: Event, entry: Entry) -> None:
        campaign = self.campaigns[event.campaign]
        place = (campaign.id, scope)
        match entry.kind:
            case EntryKind.STARTED:
                self._check_start(campaign, scope, event, entry)
            case EntryKind.IMPACT_DONE:
                for vm in entry.vms:
                    self.work_done[campaign.id, scope, vm] = self.work_done.get((campaign.id, scope, vm), 0) + 1
            case EntryKind.COMPLETED | EntryKind.FAILED:
                self._last_end[place] = (entry.at, event.update_domain)
            case _:
                pass

    def _check_start(self, campaign: CheckedCampaign, scope: str, event: Event, entry: Entry) -> None:
        policy, now = campaign.spec.policy, entry.at
        self.started += 1
        assert campaign.state is CampaignState.RUNNING, "nothing starts while a campaign is stopped"
        assert is_open(policy, now, find_zone), "nothing starts while no window is open"
        assert event.not_before - event.created_at >= NOTICE[event.type], "every VM has the minimum notice"
        assert now >= event.not_before or event.approvals, "nothing starts early without approval"
        ended_at, domain = self._last_end.get((campaign.id, scope), (None, None))
        if ended_at is not None and domain != event.update_domain:
            assert now - ended_at >= policy.gap, "there is a gap between the waves of a scope"
        others = [other for other in self.scopes[scope].events if other.is_planned and other.state is State.STARTED]
        assert {other.update_domain for other in others} <= {event.update_domain}, "one update domain at a time"
        self._check_limits(campaign, now)

    def _check_limits(self, campaign: CheckedCampaign, now: datetime) -> None:
        """Count the load so far; impacts that begin at the same time could not be known."""
        policy, selected = campaign.spec.policy, campaign.selected
        busy = {(scope, vm.name): vm for scope, vms in self._busy.items() for vm in vms if vm.planned or vm.since < now}
        self.most_vms = max(self.most_vms, len(busy))
        for limit, total, found in (
            (policy.vms_at_once, selected.vms, len(busy)),
            (policy.hosts_at_once, selected.hosts, len({vm.host for vm in busy.values()})),
            (policy.scopes_at_once, selected.scopes, len({scope for scope, _ in busy})),
        ):
            assert limit is None or found <= limit.resolve(total), f"{found} at once, of {total}: {limit} are allowed"


class _Busy(NamedTuple):
    """A VM in impact."""

    name: str
    host: str
    since: datetime
    planned: bool


def _in_impact(scope: Scope) -> list[_Busy]:
    hosts = {vm.name: vm.host or f"{scope.id}/{vm.update_domain}" for vm in scope.roster}
    return [
        _Busy(impact.vm, hosts[impact.vm], event.started_at, event.is_planned)
        for event in scope.events
        if event.started_at is not None
        for impact in event.impacts
        if impact.state not in SETTLED
    ]
