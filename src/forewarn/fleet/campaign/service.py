"""Campaign service: starts, lists and controls campaigns and stores their records.

`fleet.campaign.duty` runs them.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid4, uuid5

import msgspec

from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.commands import abort, pause, plan_progress, resume, retry, skip, start
from forewarn.core.campaign.draft import CampaignDecision
from forewarn.core.campaign.estimate import CompletionEstimate
from forewarn.core.campaign.explain import WaitReasons, stop_reason
from forewarn.core.campaign.limits import format_count
from forewarn.core.campaign.plan import Plan
from forewarn.core.campaign.record import (
    Campaign,
    CampaignEncoder,
    CampaignState,
    check_size,
    decode,
)
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.errors import Invalid, ResourceExists
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.journal import Entry
from forewarn.core.text import check_text
from forewarn.fleet.campaign.duty import CampaignDuty
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.duty import no_guards
from forewarn.fleet.errors import SAVE_ERRORS, AmbiguousCampaign, CampaignNotFound, GateNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordCodec, RecordTable
from forewarn.fleet.registry import Registry
from forewarn.fleet.scopes import Scopes
from forewarn.platform.port import GateChecker, Notifier
from forewarn.store.port import Guards, RecordKind

MAX_OPEN_CAMPAIGNS = 100
"""How many campaigns can be open at a time."""

MAX_FINISHED = 100
"""How many ended campaigns, the newest ones, are kept; the journal has all."""

MAX_ENDED = 1_000
"""How many ended campaigns are kept at most, including those whose notifications are not delivered yet. The oldest are
deleted."""

CAMPAIGN_IDS = UUID("6f0c9a52-3d1b-4f5e-9c64-0a4c2f8e7b13")
"""The namespace of campaign ids that follow from an idempotency key."""

CampaignCommand = Callable[[Campaign, datetime], CampaignDecision]
"""An operator's command on a campaign; raises if it is not possible."""

IsVisible = Callable[[Campaign], bool]
"""Returns whether the caller may see a campaign; others are treated as non-existent."""


def _all_visible(_: Campaign) -> bool:
    return True


class CampaignStatus(NamedTuple):
    """What a campaign waits for, and its expected end."""

    explain: tuple[str, ...]
    """What it waits for, decisions of people first."""
    expected_end: datetime | None
    """When it will end, or ended; None if that waits for a person."""
    needs_operator: bool
    """Whether it is running, but nothing continues until a person decides."""


class Campaigns:
    """All campaigns as last saved. `by` is the caller; a repeated `idempotency_key` changes nothing.

    Every process serves requests about campaigns; the process that has `duty` runs them.
    """

    def __init__(
        self,
        scopes: Scopes,
        main_loop: MainLoop,
        *,
        checker: GateChecker,
        notifier: Notifier,
        registry: Registry,
        guards: Callable[[], Guards] = no_guards,
    ) -> None:
        self._registry = registry
        self._scopes = scopes
        self._checker = checker
        self._notifier = notifier
        self._records = RecordTable[Campaign]()
        self._lock = asyncio.Lock()
        encoder = CampaignEncoder()
        self._loop = main_loop.add(RecordCodec(RecordKind.CAMPAIGN, encoder, decode), self._records)
        self.duty = CampaignDuty(
            scopes, main_loop, self._loop, self._records, encoder, checker=checker, notifier=notifier, guards=guards
        )
        self._loop.observers.append(self.duty.observe_record)

    @property
    def observers(self) -> list[Observer[Campaign]]:
        """The observers of every change of a campaign, in order."""
        return self._loop.observers

    # Queries.

    def all(self) -> tuple[Campaign, ...]:
        """Return every campaign, the oldest first."""
        return tuple(sorted(self._records.values(), key=lambda campaign: (campaign.started_at, campaign.id)))

    def find(self, name_or_id: str, is_visible: IsVisible = _all_visible) -> Campaign:
        """Return the campaign with that id, or that name: the open one, else the newest."""
        known, _ = self._records.newest(name_or_id.upper())
        if known is not None and is_visible(known):
            return known
        named = [campaign for campaign in self.all()[::-1] if campaign.name == name_or_id and is_visible(campaign)]
        not_over = [campaign for campaign in named if not campaign.state.is_over]
        if len(not_over) > 1:
            raise AmbiguousCampaign(name_or_id, [campaign.id for campaign in not_over])
        for campaign in not_over or named:
            return campaign
        raise CampaignNotFound(name_or_id)

    def is_in_use(self, name: str, is_visible: IsVisible = _all_visible) -> bool:
        """Return whether a visible open campaign has the name. Names are not case-sensitive."""
        return any(
            campaign.name.casefold() == name.casefold() and is_visible(campaign)
            for campaign in self.all()
            if not campaign.state.is_over
        )

    def find_by_key(self, idempotency_key: IdempotencyKey | None) -> Campaign | None:
        """Return the campaign that this request started before."""
        if idempotency_key is None:
            return None
        now = self._scopes.clock.now()
        begun = (campaign for campaign in self.all() if campaign.seen_keys)
        return next(
            (campaign for campaign in begun if is_repeated_request(campaign.seen_keys[:1], idempotency_key, now=now)),
            None,
        )

    async def status(self, id_: str) -> CampaignStatus:
        """Return what a campaign waits for and its expected end, computed in short time slices."""
        campaign = self.find(id_)
        blockers = self.duty.blockers(campaign.id)
        rule_context, now = self._scopes.rule_context, self._scopes.clock.now()
        calendar = Calendar(campaign.spec, rule_context, find_zone, since=now)
        waits = WaitReasons(campaign, calendar, rule_context, blockers, now=now)
        estimate = CompletionEstimate(campaign, calendar, rule_context, now=now)
        async for progress in iterate_gradually(() if campaign.state.is_over else campaign.scopes):
            scope, _ = self._scopes.replica.newest(progress.scope)
            waits.add(progress, scope)
            estimate.add(progress, scope)
        return CampaignStatus(waits.messages, estimate.end, waits.needs_operator)

    def stop_reason(self, id_: str) -> str:
        """Return in a few words why a campaign starts nothing, if one reason applies to all of it; else empty."""
        campaign, _ = self._records.newest(id_)
        return "" if campaign is None else stop_reason(campaign)

    def is_stopped(self, id_: str) -> bool:
        """Return whether a campaign starts nothing until a person resumes it."""
        campaign, _ = self._records.newest(id_)
        return campaign is not None and campaign.state in (CampaignState.PAUSED, CampaignState.HALTED)

    async def overlaps(self, spec: CampaignSpec, is_visible: IsVisible = _all_visible) -> tuple[str, ...]:
        """Return which open campaigns still have to maintain VMs that are selected here."""
        selected, warnings = Selector(spec.selection), []
        for campaign in self.all():
            if not campaign.state.is_over and (vms := await self._count_shared_vms(campaign, selected)):
                name = f"campaign {campaign.name}" if is_visible(campaign) else "a campaign that you cannot see"
                warnings.append(
                    f"{name} also still has to maintain {format_count(vms, 'vms')} of these: both will do so in turn"
                )
        return tuple(warnings)

    async def _count_shared_vms(self, campaign: Campaign, selected: Selector) -> int:
        """Count the selected VMs that a campaign still has to maintain."""
        theirs, vms = Selector(campaign.spec.selection), 0
        async for progress in iterate_gradually(campaign.scopes):
            scope, _ = self._scopes.replica.newest(progress.scope)
            domains = {wave.update_domain for wave in progress.waves if not wave.state.is_settled}
            if scope is not None and domains:
                vms += sum(
                    theirs.is_selected(scope, vm) for vm in selected.select(scope) if vm.update_domain in domains
                )
        return vms

    # Starting.

    def check(self, spec: CampaignSpec, is_visible: IsVisible = _all_visible) -> None:
        """Refuse a campaign that cannot be started, before it is planned.

        The name of an invisible campaign can be used again: otherwise callers could find out that it exists.
        """
        find_zone(spec.policy.zone)
        for window in spec.policy.windows:
            find_zone(window.zone or spec.policy.zone)
        gate = spec.policy.gate
        if isinstance(gate, str) and gate not in self._checker.gates:
            raise GateNotFound(gate, self._checker.gates)
        if self.is_in_use(spec.name, is_visible):
            raise ResourceExists(f"an open campaign {spec.name}")
        if sum(not campaign.state.is_over for campaign in self.all()) >= MAX_OPEN_CAMPAIGNS:
            raise Invalid(
                f"the limit of {MAX_OPEN_CAMPAIGNS} open campaigns is reached: wait for one to end, or abort one"
            )

    async def start(
        self,
        spec: CampaignSpec,
        plan: Plan,
        *,
        by: str,
        why: str = "",
        idempotency_key: IdempotencyKey | None = None,
        id_: str | None = None,
        is_visible: IsVisible = _all_visible,
        unannounced: bool = False,
    ) -> Campaign:
        """Start a campaign as planned, `unannounced` even if VMs will not hear of it. Unplaced VMs are refused."""
        check_text(why, "reason")

        async def create(guards: Callable[[], Guards]) -> Campaign:
            if (before := self.find_by_key(idempotency_key)) is not None:
                return before
            self.check(spec, is_visible)
            decision = await self._start(
                spec, plan, id_=(id_ or _derive_id(idempotency_key)).upper(), by=by, why=why, unannounced=unannounced
            )
            campaign = decision.record
            if idempotency_key is not None:
                keys = add_seen_key((), idempotency_key, now=campaign.state_change.at)
                campaign = msgspec.structs.replace(campaign, seen_keys=keys)
            check_size(campaign)
            await self._loop.apply(
                campaign.id, lambda known: _create_record(known, campaign, decision.entries, guards())
            )
            await self._drop_oldest()
            return campaign

        async with self._lock:
            return await self._registry.run(create)

    async def _drop_oldest(self) -> None:
        """Delete the oldest ended campaigns; those that have notifications to deliver, by any process, last."""
        await self._drop(MAX_FINISHED, lambda campaign: campaign.state.is_over and not campaign.notifications)
        await self._drop(MAX_ENDED, lambda campaign: campaign.state.is_over)

    async def _drop(self, limit: int, may_drop: Callable[[Campaign], bool]) -> None:
        """Delete the oldest of the campaigns that may be deleted, over a limit."""

        def drop(known: Campaign | None) -> Decision[Campaign, None]:
            return Decision(None if known is None or may_drop(known) else known, (), None)

        campaigns = [campaign for campaign in self.all() if may_drop(campaign)]
        for campaign in campaigns[: max(len(campaigns) - limit, 0)]:
            with suppress(*SAVE_ERRORS):
                await self._loop.apply(campaign.id, drop)

    async def _start(
        self, spec: CampaignSpec, plan: Plan, *, id_: str, by: str, why: str, unannounced: bool
    ) -> CampaignDecision:
        now = self._scopes.clock.now()
        scopes = []
        async for id_of_scope, planned in iterate_gradually(plan.by_scope().items()):
            scope, _ = self._scopes.replica.newest(id_of_scope)
            seen = scope.entries if scope is not None else 0
            scopes.append(plan_progress(planned, started_at=now.replace(microsecond=0), seen=seen))
        notify = self._notifier.has_receivers
        return start(spec, plan, scopes, id_=id_, by=by, why=why, now=now, notify=notify, unannounced=unannounced)

    # Commands of operators.

    async def pause(
        self, id_: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> Campaign:
        """Announce and start nothing until the campaign is resumed. No planned event starts after the return."""
        return await self._run_command(id_, lambda record, now: pause(record, by=by, why=why, now=now), idempotency_key)

    async def resume(
        self, id_: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> Campaign:
        """Resume a paused or halted campaign, and count its failures from zero again."""
        return await self._run_command(
            id_, lambda record, now: resume(record, by=by, why=why, now=now), idempotency_key
        )

    async def abort(
        self, id_: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> Campaign:
        """Cancel Scheduled events, let Started ones end, and finish."""
        return await self._run_command(id_, lambda record, now: abort(record, by=by, why=why, now=now), idempotency_key)

    async def retry(
        self, id_: str, scope: str, *, by: str, why: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> Campaign:
        """Retry the failed wave of a scope."""

        def command(record: Campaign, now: datetime) -> CampaignDecision:
            value, _ = self._scopes.replica.newest(scope)
            return retry(record, scope, value, by=by, why=why, now=now)

        return await self._run_command(id_, command, idempotency_key, lambda: self._scopes.guards(scope))

    async def skip(
        self, id_: str, scope: str, *, by: str, why: str, idempotency_key: IdempotencyKey | None = None
    ) -> Campaign:
        """Skip the current wave of a scope, which has not begun or has failed."""
        return await self._run_command(
            id_,
            lambda record, now: skip(record, scope, by=by, why=why, now=now),
            idempotency_key,
        )

    async def _run_command(
        self,
        id_: str,
        command: CampaignCommand,
        idempotency_key: IdempotencyKey | None,
        guards: Callable[[], Guards] = no_guards,
    ) -> Campaign:
        """Apply an operator's command, whichever process runs the campaign; a repeated command changes nothing.

        `guards` returns the other records that the command reads. The campaign's runner gets the new record.
        Announcements and starts in progress are guarded by the old one, and are decided again.
        """
        id_ = self.find(id_).id

        def decide(campaign: Campaign | None) -> Decision[Campaign, Campaign]:
            if campaign is None:
                raise CampaignNotFound(id_)
            now = self.duty.now(campaign)
            if idempotency_key is not None and is_repeated_request(campaign.seen_keys, idempotency_key, now=now):
                return Decision(campaign, (), campaign)
            decision = command(campaign, now)
            record = decision.record
            if idempotency_key is not None:
                keys = add_seen_key(campaign.seen_keys, idempotency_key, now=now)
                record = msgspec.structs.replace(record, seen_keys=keys)
            return Decision(record, decision.entries, record, guards())

        return await self._loop.apply(id_, decide)


def _derive_id(idempotency_key: IdempotencyKey | None) -> str:
    """Return the id of a new campaign: the same request has the same id at every control node."""
    if idempotency_key is None:
        return str(uuid4())
    return str(uuid5(CAMPAIGN_IDS, f"{idempotency_key.caller}/{idempotency_key.key}"))


def _create_record(
    known: Campaign | None, campaign: Campaign, entries: Sequence[Entry], guards: Guards
) -> Decision[Campaign, None]:
    if known is not None:
        raise ResourceExists(f"a campaign {campaign.id}")
    return Decision(campaign, entries, None, guards)
