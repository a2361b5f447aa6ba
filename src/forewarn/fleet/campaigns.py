"""Campaigns that were started: their records, and what people do with them. `fleet.rolling` carries each of them on."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import uuid4

from forewarn.core import operations
from forewarn.core.campaign.commands import abort, pause, resume, retry, skip
from forewarn.core.campaign.estimate import CompletionEstimate
from forewarn.core.campaign.explain import CampaignBlockers, WaitReasons, stop_reason
from forewarn.core.campaign.limits import format_count
from forewarn.core.campaign.load import FleetLoad, has_active_work
from forewarn.core.campaign.plan import Plan, PlannedWave
from forewarn.core.campaign.record import (
    Campaign,
    CampaignState,
    Notification,
    ScopeProgress,
    StateChange,
    Wave,
    check_size,
    decode,
    encode,
)
from forewarn.core.campaign.rollout import Rollout
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.change import Change
from forewarn.core.errors import CoreError, Invalid, PlacementFailed, ResourceExists
from forewarn.core.event import State
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Scope
from forewarn.core.text import check_text, truncate_text
from forewarn.fleet.clockwork import Clockwork
from forewarn.fleet.errors import AmbiguousCampaign, NoSuchCampaign, NoSuchGate, NoSuchScope, NotSaved
from forewarn.fleet.queue import Decision, Queues, Shelf
from forewarn.fleet.replica import View
from forewarn.fleet.rolling import Rolling
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.turns import unhurried
from forewarn.fleet.zones import zone_named
from forewarn.platform.port import Checker, Messenger
from forewarn.store.port import Deleted, Key, Kind, Record, SnapshotEnd, Store, StoreError, Watched

log = logging.getLogger(__name__)

OPEN_CAMPAIGNS = 100
"""How many campaigns can be open at a time."""

KEPT = 100
"""How many campaigns that are over are kept, the newest; the journal tells of all."""

SECOND = timedelta(seconds=1)


Sees = Callable[[Campaign], bool]
"""Tells whether somebody sees a campaign; what is of others is as if it were not there."""


def _everything(_: Campaign) -> bool:
    return True


class Prospects(NamedTuple):
    """What is to be expected of a campaign."""

    explain: tuple[str, ...]
    """What it waits for, what a person decides first."""
    expected_end: datetime | None
    """When it will be over, or was; None: that waits for a person."""
    needs_person: bool
    """Whether it runs, and yet nothing goes on until a person decides."""


class Campaigns:
    """All campaigns, as they were last saved. `by` is who asks, `once` the request's key: asking again changes nothing.

    Must be told of every scope that has changed (`look`), and of every hold on the fleet (`look_again`).
    """

    def __init__(
        self, scopes: Scopes, store: Store, tasks: asyncio.TaskGroup, *, checker: Checker, messenger: Messenger
    ) -> None:
        self._scopes = scopes
        self._store = store
        self._tasks = tasks
        self._checker = checker
        self._messenger = messenger
        self._records: dict[str, tuple[Campaign | None, int]] = {}
        self._rolling: dict[str, Rolling] = {}
        self._by_scope: dict[str, list[Rolling]] = {}
        self._orphans: set[str] = set()
        self._impacted = FleetLoad()
        self._one_at_a_time = asyncio.Lock()
        self._queues = Queues(store, tasks, Shelf(Kind.CAMPAIGN, self._newest, self._keep, encode, decode))
        self._clockwork = Clockwork(scopes.clock, self._wake)
        self._is_live = False

    # Looking.

    @property
    def busy(self) -> int:
        """How much is under way that does not wait for the clock."""
        return self._queues.busy + len(self._orphans) + sum(rolling.is_busy for rolling in self._rolling.values())

    @property
    def is_armed(self) -> bool:
        """Whether the clock has been asked to call back."""
        return self._clockwork.is_armed

    def all(self) -> tuple[Campaign, ...]:
        """Return every campaign, the oldest first."""
        known = (campaign for campaign, _ in self._records.values() if campaign is not None)
        return tuple(sorted(known, key=lambda campaign: (campaign.started_at, campaign.id)))

    def find(self, said: str, sees: Sees = _everything) -> Campaign:
        """Return the campaign of that id, or of that name: the one that is not over, else the newest."""
        known, _ = self._records.get(said.upper(), (None, 0))
        if known is not None and sees(known):
            return known
        named = [campaign for campaign in self.all()[::-1] if campaign.name == said and sees(campaign)]
        not_over = [campaign for campaign in named if not campaign.state.is_over]
        if len(not_over) > 1:
            raise AmbiguousCampaign(said, [campaign.id for campaign in not_over])
        for campaign in not_over or named:
            return campaign
        raise NoSuchCampaign(said)

    def is_in_use(self, name: str, sees: Sees = _everything) -> bool:
        """Tell whether a campaign that is seen and not over has the name. Names are of any case."""
        return any(
            campaign.name.casefold() == name.casefold() and sees(campaign)
            for campaign in self.all()
            if not campaign.state.is_over
        )

    def answered(self, once: IdempotencyKey | None) -> Campaign | None:
        """Return the campaign that this request has started before."""
        if once is None:
            return None
        now = self._scopes.clock.now()
        begun = (campaign for campaign in self.all() if campaign.seen_keys)
        return next(
            (campaign for campaign in begun if is_repeated_request(campaign.seen_keys[:1], once, now=now)), None
        )

    async def prospects(self, id_: str) -> Prospects:
        """Say what a campaign waits for, and when it is expected to be over, in turns with whatever else goes on."""
        campaign = self.find(id_)
        rolling = self._rolling.get(campaign.id)
        hindrances = rolling.course.blockers if rolling is not None else CampaignBlockers()
        if hindrances.start_limit is not None or hindrances.announce_limit is not None:
            hindrances = hindrances._replace(is_permanent=not self._anything_ends())
        conditions, now = self._scopes.conditions, self._scopes.clock.now()
        waits = WaitReasons(campaign, conditions, hindrances, now=now, zones=zone_named)
        outlook = CompletionEstimate(campaign, conditions, now=now, zones=zone_named)
        async for progress in unhurried(() if campaign.state.is_over else campaign.scopes):
            waits.add(progress)
            outlook.add(progress)
        return Prospects(waits.messages, outlook.end, waits.needs_operator)

    def _anything_ends(self) -> bool:
        """Tell whether anything that is in impact, wherever in the fleet, goes on without a person."""
        newest = (self._scopes.replica.newest(load.scope)[0] for load in self._impacted.loads())
        return any(scope is not None and has_active_work(scope) for scope in newest)

    def stopped(self, id_: str) -> str:
        """Say in a word why a campaign lets nothing start, where that is the same for all of it; else nothing."""
        campaign, _ = self._records.get(id_, (None, 0))
        return "" if campaign is None else stop_reason(campaign)

    async def overlaps(self, spec: CampaignSpec, sees: Sees = _everything) -> tuple[str, ...]:
        """Say which campaigns that are not over have still to do VMs that are selected here."""
        selected, said = Selector(spec.selection), []
        for campaign in self.all():
            if not campaign.state.is_over and (vms := await self._shared(campaign, selected)):
                name = f"campaign {campaign.name}" if sees(campaign) else "a campaign that you do not see"
                said.append(
                    f"{name} has still to do {format_count(vms, 'vms')} of these: each has its own turn with them"
                )
        return tuple(said)

    async def _shared(self, campaign: Campaign, selected: Selector) -> int:
        """Count the VMs that a campaign has still to do and that are selected."""
        theirs, vms = Selector(campaign.spec.selection), 0
        async for progress in unhurried(campaign.scopes):
            scope, _ = self._scopes.replica.newest(progress.scope)
            domains = {wave.update_domain for wave in progress.waves if not wave.state.is_settled}
            if scope is not None and domains:
                vms += sum(
                    theirs.is_selected(scope, vm) for vm in selected.select(scope) if vm.update_domain in domains
                )
        return vms

    # Starting.

    def check(self, spec: CampaignSpec, sees: Sees = _everything) -> None:
        """Refuse what cannot be started, before anything is planned.

        A name that only a campaign has which is not seen can be used: else it could be found out that there is one.
        """
        zone_named(spec.policy.zone)
        for window in spec.policy.windows:
            zone_named(window.zone or spec.policy.zone)
        gate = spec.policy.gate
        if isinstance(gate, str) and gate not in self._checker.gates:
            raise NoSuchGate(gate, self._checker.gates)
        if self.is_in_use(spec.name, sees):
            raise ResourceExists(f"a campaign {spec.name} that is not over")
        if sum(not campaign.state.is_over for campaign in self.all()) >= OPEN_CAMPAIGNS:
            raise Invalid(f"{OPEN_CAMPAIGNS} campaigns are not over yet: wait until one is, or abort one")

    async def start(
        self,
        spec: CampaignSpec,
        plan: Plan,
        *,
        by: str,
        why: str = "",
        once: IdempotencyKey | None = None,
        id_: str | None = None,
        sees: Sees = _everything,
    ) -> Campaign:
        """Start a campaign as it was planned. A plan that leaves VMs without a place is refused."""
        check_text(why, "reason")
        async with self._one_at_a_time:
            if (before := self.answered(once)) is not None:
                return before
            self.check(spec, sees)
            _check_placed(plan)
            campaign, entry = await self._new(spec, plan, id_=id_ or str(uuid4()), by=by, why=why, once=once)
            check_size(campaign)
            await self._queues.apply(campaign.id, lambda known: _made(known, campaign, entry))
            self._roll(campaign)
            await self._drop_oldest()
            return campaign

    async def _drop_oldest(self) -> None:
        over = [campaign.id for campaign in self.all() if campaign.state.is_over and campaign.id not in self._rolling]
        for id_ in over[: max(len(over) - KEPT, 0)]:
            with suppress(NotSaved):
                await self._queues.apply(id_, lambda _: Decision(None, (), None))

    async def _new(
        self, spec: CampaignSpec, plan: Plan, *, id_: str, by: str, why: str, once: IdempotencyKey | None
    ) -> tuple[Campaign, Entry]:
        now = self._scopes.clock.now()
        started_at = now.replace(microsecond=0)
        waves: dict[str, list[PlannedWave]] = {}
        async for wave in unhurried(plan.waves):
            waves.setdefault(wave.scope, []).append(wave)
        progress = [self._begin(scope, planned, started_at) async for scope, planned in unhurried(waves.items())]
        selected = plan.totals
        facts = {
            "name": spec.name,
            "type": spec.type.value,
            "scopes": str(selected.scopes),
            "waves": str(len(plan.waves)),
            "vms": str(selected.vms),
        }
        entry = Entry(n=1, at=now, kind=EntryKind.CAMPAIGN_STARTED, by=by, why=truncate_text(why), facts=facts)
        untold = (Notification(n=1, what="started", at=now, why=truncate_text(why)),) if self._messenger.listens else ()
        campaign = Campaign(
            id=id_.upper(),
            spec=spec,
            state=CampaignState.RUNNING,
            by=by,
            started_at=started_at,
            state_change=StateChange(by=by, at=now, why=truncate_text(why)),
            scopes=tuple(progress),
            selected=selected,
            why=truncate_text(why),
            planned_end=plan.ends_at,
            entries=1,
            seen_keys=add_seen_key((), once, now=now),
            notifications=untold,
        )
        return campaign, entry

    def _begin(self, id_: str, planned: list[PlannedWave], started_at: datetime) -> ScopeProgress:
        base = (planned[0].not_before - started_at) // SECOND
        waves = tuple(
            Wave(wave.update_domain, (wave.not_before - planned[0].not_before) // SECOND, vms=len(wave.vms))
            for wave in planned
        )
        scope, _ = self._scopes.replica.newest(id_)
        return ScopeProgress(id_, base, waves, scope.entries if scope is not None else 0)

    # What people do with it.

    async def pause(self, id_: str, *, by: str, why: str = "", once: IdempotencyKey | None = None) -> Campaign:
        """Announce and start nothing until it is resumed. On return, what was about to start has started."""
        return await self._steer(id_, lambda course, now: pause(course, by=by, why=why, now=now), once)

    async def resume(self, id_: str, *, by: str, why: str = "", once: IdempotencyKey | None = None) -> Campaign:
        """Let a campaign go on that was paused or has halted; failures are counted anew."""
        return await self._steer(id_, lambda course, now: resume(course, by=by, why=why, now=now), once)

    async def abort(self, id_: str, *, by: str, why: str = "", once: IdempotencyKey | None = None) -> Campaign:
        """Cancel what is Scheduled, let what is Started end, and be over."""
        return await self._steer(id_, lambda course, now: abort(course, by=by, why=why, now=now), once)

    async def retry(
        self, id_: str, scope: str, *, by: str, why: str = "", once: IdempotencyKey | None = None
    ) -> Campaign:
        """Have the failed wave of a scope done once more."""

        def do(course: Rollout, now: datetime) -> None:
            value, _ = self._scopes.replica.newest(scope)
            retry(course, scope, value, by=by, why=why, now=now)

        return await self._steer(id_, do, once, touching=scope)

    async def skip(self, id_: str, scope: str, *, by: str, why: str, once: IdempotencyKey | None = None) -> Campaign:
        """Pass over the current wave of a scope, which has not begun or has failed."""
        return await self._steer(
            id_, lambda course, now: skip(course, scope, by=by, why=why, now=now), once, touching=scope
        )

    async def _steer(
        self,
        id_: str,
        do: Callable[[Rollout, datetime], None],
        once: IdempotencyKey | None,
        *,
        touching: str | None = None,
    ) -> Campaign:
        campaign = self.find(id_)
        rolling = self._rolling.get(campaign.id)
        if rolling is not None:
            return await rolling.steer(do, once, touching=touching)
        now = self._scopes.clock.now()
        if once is None or not is_repeated_request(campaign.seen_keys, once, now=now):
            do(Rollout(campaign, zone_named), now)
        return campaign

    # What goes on by itself.

    def go_live(self) -> None:
        """Carry on every campaign that is not over."""
        self._is_live = True
        for campaign in self.all():
            self._roll(campaign)

    def stop(self) -> None:
        """Wake no campaign any more."""
        self._clockwork.stop()

    def take(self, change: Watched) -> None:
        """Take what the store gives, unless it is known already."""
        if isinstance(change, SnapshotEnd) or change.revision <= self._records.get(change.key.id, (None, 0))[1]:
            return
        id_ = change.key.id
        before, _ = self._records.get(id_, (None, 0))
        self._keep(id_, decode(change.value) if isinstance(change, Record) else None, change.revision)
        if isinstance(change, Deleted) and before is not None and self._is_live:
            self._lose(before)

    def _lose(self, campaign: Campaign) -> None:
        """Somebody else has deleted a campaign's record: let it rest, and cancel what would wait for it for ever."""
        if (rolling := self._rolling.get(campaign.id)) is not None:
            rolling.lose()
        if not campaign.state.is_over:
            log.warning("the record of campaign %s is gone: its events are canceled", campaign.name)
            self._tasks.create_task(self._take_back_all(campaign), name=f"cancel events of {campaign.id}")

    def look(self, view: View) -> None:
        """Take a scope as it is now. Where no campaign has it and it has no events, that costs next to nothing."""
        if self._impacted.update(view.id, view.scope):
            self._wake_those_without_room()
        for rolling in self._by_scope.get(view.id, ()):
            rolling.note(view.id)
        if self._is_live and view.scope is not None:
            self._take_back_orphans(view.scope)

    def look_again(self) -> None:
        """See everything anew: what holds for the whole fleet has changed."""
        for rolling in self._rolling.values():
            rolling.look_again()

    def _wake_those_without_room(self) -> None:
        for rolling in self._rolling.values():
            if rolling.course.waits_for_capacity:
                rolling.wake()

    def _is_open(self, id_: str) -> bool:
        campaign, _ = self._records.get(id_, (None, 0))
        return campaign is not None and not campaign.state.is_over

    def _roll(self, campaign: Campaign) -> None:
        is_told = not campaign.notifications or not self._messenger.listens
        if not self._is_live or campaign.id in self._rolling or (campaign.state.is_over and is_told):
            return
        rolling = Rolling(
            campaign,
            self._scopes,
            self._store,
            self._tasks,
            self._queues,
            self._impacted,
            checker=self._checker,
            messenger=self._messenger,
            set_alarm=self._clockwork.set,
            on_room=self._wake_those_without_room,
            on_over=self._forget,
        )
        self._rolling[campaign.id] = rolling
        for progress in campaign.scopes:
            self._by_scope.setdefault(progress.scope, []).append(rolling)
        rolling.wake()

    def _forget(self, rolling: Rolling) -> None:
        self._rolling.pop(rolling.id, None)
        for progress in rolling.record.scopes:
            left = [other for other in self._by_scope.get(progress.scope, ()) if other is not rolling]
            if left:
                self._by_scope[progress.scope] = left
            else:
                self._by_scope.pop(progress.scope, None)

    def _wake(self, id_: str) -> None:
        if (rolling := self._rolling.get(id_)) is not None:
            rolling.wake()

    async def _take_back_all(self, campaign: Campaign) -> None:
        async for progress in unhurried(campaign.scopes):
            scope, _ = self._scopes.replica.newest(progress.scope)
            if scope is not None:
                self._take_back_orphans(scope)

    def _take_back_orphans(self, scope: Scope) -> None:
        for event in scope.events:
            if event.campaign and event.state is State.SCHEDULED and not self._is_open(event.campaign):
                self._take_back(scope.id, event.id, event.campaign)

    def _take_back(self, scope: str, event: str, campaign: str) -> None:
        if event not in self._orphans:
            self._orphans.add(event)
            self._tasks.create_task(self._cancel_orphan(scope, event, campaign), name=f"cancel {event}")

    async def _cancel_orphan(self, scope: str, event: str, campaign: str) -> None:
        """Cancel an event that would wait for ever: its campaign is over, or nobody knows of it."""

        def rule(value: Scope) -> Change[None]:
            if (found := value.find_event(event)) is None or found.state is not State.SCHEDULED:
                return Change(value, (), None)
            now = self._scopes.clock.now()
            why = "its campaign is over"
            return operations.cancel(value, event, self._scopes.conditions, by="campaigns", now=now, why=why)

        try:
            record = await self._store.load(Key(Kind.CAMPAIGN, campaign))
            if record is None or decode(record.value).state.is_over:
                await self._scopes.apply(scope, rule)
        except (NoSuchScope, CoreError, NotSaved, StoreError):
            return  # the next change of the scope, or the next start of the service, tries again
        finally:
            self._orphans.discard(event)

    def _newest(self, id_: str) -> tuple[Campaign | None, int | None]:
        campaign, revision = self._records.get(id_, (None, 0))
        return (None, None) if campaign is None else (campaign, revision)

    def _keep(self, id_: str, campaign: Campaign | None, revision: int) -> None:
        _, known = self._records.get(id_, (None, 0))
        if revision > known:
            self._records[id_] = (campaign, revision)


def _check_placed(plan: Plan) -> None:
    if plan.unplaced:
        first, *others = plan.unplaced
        raise PlacementFailed(first.scope, len(first.vms), first.rule, first.why, len(others))
    if not plan.waves:
        raise Invalid("the selection fits no VM: `forewarn vm list` shows what there is")


def _made(known: Campaign | None, campaign: Campaign, entry: Entry) -> Decision[Campaign, None]:
    if known is not None:
        raise ResourceExists(f"a campaign {campaign.id}")
    return Decision(campaign, (entry,), None)
