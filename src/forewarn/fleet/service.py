"""The fleet service: builds the parts of a fleet over one store, and runs them.

`forewarn.fleet.main_loop` explains how the parts work together.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import NamedTuple

from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.core.policy import Policy
from forewarn.fleet.campaign.service import Campaigns
from forewarn.fleet.clock_lease import ClockLease
from forewarn.fleet.clock_offset import ClockOffset, TimeSource
from forewarn.fleet.duties import Duties
from forewarn.fleet.emulator_journal import EmulatorJournal
from forewarn.fleet.event_loop import pause_gc, tasks_until_exit
from forewarn.fleet.events import Events
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.hold_record import FleetHold, HoldRecord
from forewarn.fleet.holds import Holds
from forewarn.fleet.host.command_handler import CommandHandler
from forewarn.fleet.host.registry import HostRegistry
from forewarn.fleet.idempotency import IdempotentScopes
from forewarn.fleet.impact_writer import ScopeImpactWriter
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.inventory import Inventory
from forewarn.fleet.journal import DEFAULT_RETENTION, Journal, JournalPruner
from forewarn.fleet.last_seen import LastSeenTracker
from forewarn.fleet.lease_record import LeaseRecords
from forewarn.fleet.log_observer import LogObserver
from forewarn.fleet.main_loop import MainLoop, RecordChange
from forewarn.fleet.manual_time import ManualTime, NoticeFloor
from forewarn.fleet.metrics import FleetMetrics, MetricsObserver, MetricsStore
from forewarn.fleet.outages import OutageTracker
from forewarn.fleet.policy_record import CellPolicy, PolicyRecord
from forewarn.fleet.ports import Ports
from forewarn.fleet.position import Positions
from forewarn.fleet.registry import Registry
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scheduler import Scheduler
from forewarn.fleet.scopes import Scopes
from forewarn.fleet.seen_record import SeenRecords, SeenWriter
from forewarn.fleet.speed import Speed
from forewarn.fleet.timers import Timers
from forewarn.fleet.tokens import Tokens
from forewarn.platform.port import GateChecker, Notifier, NullGateChecker, NullNotifier, Platform
from forewarn.store.port import Lease, Retention, Store


class Cluster(NamedTuple):
    """What several processes over one store share. A process that is the only one has these parts, too."""

    positions: Positions
    leases: LeaseRecords
    clock_lease: ClockLease
    clock_offset: ClockOffset | None
    """How far the clock is off; None in a service without servers to compare it with."""
    policy: PolicyRecord
    hosts: HostRegistry
    host_commands: CommandHandler


class Emulator(NamedTuple):
    """What only the emulator uses: its speed, its entries in the journal, the timers of its faults."""

    speed: Speed
    journal: EmulatorJournal
    timers: Timers


class Fleet:
    """The parts of a fleet. Created by `Fleet.run`, valid within that context.

    Reads use `replica`, which never waits. Changes use the part that they are about.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        store: Store,
        platform: Platform,
        clock: Clock,
        wall_clock: Clock,
        policy: Policy,
        retention: Retention,
        checker: GateChecker,
        notifier: Notifier,
        lease: Lease | None,
        clock_offset: ClockOffset | None,
        speed_setting: float | None,
        has_hosts: bool,
    ) -> None:
        self.clock = clock
        self.metrics = FleetMetrics()
        store = MetricsStore(store, self.metrics)
        self.health = HealthCheck(store)
        if clock_offset is not None:
            self.health.add_limitation(clock_offset.problem)
        self.journal = Journal(store, tasks)
        self._tasks = tasks
        self._background_tasks: set[asyncio.Task[None]] = set()

        loop = self._main_loop = MainLoop(store, tasks, on_followed=self.journal.wake)
        leases = LeaseRecords(loop)
        clock_lease = ClockLease(lease, leases, clock, clock_offset)
        state_record = FleetStateRecord(loop)
        hold_record = HoldRecord(loop)
        self.scopes = Scopes(loop, clock, policy, state_record, hold_record)
        self.scopes.has_clock = lease is None
        self.replica = self.scopes.replica
        idempotent = IdempotentScopes(self.scopes, store)
        registry = Registry(lease, leases, clock)
        self.inventory = Inventory(self.scopes, idempotent, state_record, registry)
        self.events = Events(self.scopes, idempotent)
        self.holds = Holds(hold_record, self.scopes, idempotent)
        self.tokens = Tokens(loop, registry, clock=clock, wall_clock=wall_clock)
        self.campaigns = Campaigns(
            self.scopes,
            loop,
            checker=checker,
            notifier=notifier,
            registry=registry,
            guards=clock_lease.guards,
        )
        self.ports = Ports(state_record)
        seen = SeenRecords(loop)
        seen_writer = SeenWriter(seen, self.scopes, loop, clock_lease.guards)
        self.emulator = Emulator(
            Speed(self.scopes, state_record, speed_setting),
            EmulatorJournal(self.scopes, state_record),
            Timers(clock, tasks),
        )
        self.last_seen = LastSeenTracker(self.scopes, tasks, seen)

        self._outages = OutageTracker(self.scopes, state_record, clock_lease.guards)
        scheduler = Scheduler(self.scopes, loop, state_record, self._outages, seen, clock_lease.guards)
        impacts = Impacts(platform, self.scopes, loop, scheduler, ScopeImpactWriter(self.scopes, clock_lease.guards))
        journal_pruner = JournalPruner(loop, retention, clock, lambda: clock_lease.is_held)
        self.duties = Duties(
            scheduler, impacts, self.campaigns.duty, journal_pruner, seen_writer=seen_writer, has_hosts=has_hosts
        )
        hosts = HostRegistry(loop, self.scopes)
        self.cluster = Cluster(
            positions=Positions(loop),
            leases=leases,
            clock_lease=clock_lease,
            clock_offset=clock_offset,
            policy=PolicyRecord(loop),
            hosts=hosts,
            host_commands=CommandHandler(hosts, self.scopes, self.last_seen, clock_offset),
        )
        notice_floor = NoticeFloor(self.scopes)
        self.time = ManualTime(
            clock,
            state_record,
            notice_floor,
            self.metrics,
            self.metrics.counts,
            self.campaigns.duty,
            [loop, scheduler, impacts, self.last_seen, self.emulator.timers],
        )

        # The order of the observers of a scope; those that are added later, of rosters and of long polls follow.
        log = LogObserver()
        self.scopes.add_observers(
            scheduler.observe,
            impacts.observe,
            self.campaigns.duty.observe,
            MetricsObserver(self.metrics, self.metrics.counts, self.scopes).observe,
            log.observe_scope,
        )
        if isinstance(clock, ManualClock):
            self.scopes.add_observers(notice_floor.observe)
        self.scopes.roster_observers.append(hosts.observe)
        hosts.silence_observers.append(self._on_host_changed)
        self.campaigns.observers.append(log.observe_campaign)
        hold_record.observers.append(self._on_hold_changed)
        self.cluster.policy.observers.append(self._on_policy_changed)
        self.emulator.speed.observers.append(lambda _: self.campaigns.duty.reevaluate())

    @classmethod
    @asynccontextmanager
    async def run(
        cls,
        *,
        store: Store,
        platform: Platform,
        clock: Clock,
        policy: Policy,
        retention: Retention = DEFAULT_RETENTION,
        wall_clock: Clock | None = None,
        checker: GateChecker | None = None,
        notifier: Notifier | None = None,
        has_duties: bool = True,
        lease: Lease | None = None,
        has_hosts: bool = False,
        times: TimeSource | None = None,
        speed_setting: float | None = None,
    ) -> AsyncIterator["Fleet"]:
        """Fill the replica from the store, start the duties, and continue with everything due, begun or interrupted.

        `wall_clock` is the clock for token expiry: real time, even if `clock` is manual. `checker` checks the gates
        of campaigns, and `notifier` sends notifications about them. Without duties this process serves guests and
        operators, and another one starts events, runs campaigns and carries out impacts; `duties` can be started later.
        With a `lease`, this process has the duties while it holds the lease, which it does only while its clock agrees
        with `times`. If it `has_hosts`, they carry out impacts.
        `speed_setting` is the speed of the settings in an emulator, whose operator can change the speed of the policy.
        """
        offset = ClockOffset(clock) if times is not None else None
        if times is not None and offset is not None:
            await offset.measure(times)
        async with store.watch() as changes, tasks_until_exit() as tasks:
            fleet = cls(
                tasks,
                store=store,
                platform=platform,
                clock=clock,
                wall_clock=wall_clock or SystemClock(),
                policy=policy,
                retention=retention,
                checker=checker or NullGateChecker(),
                notifier=notifier or NullNotifier(),
                lease=lease,
                clock_offset=offset,
                speed_setting=speed_setting,
                has_hosts=has_hosts,
            )
            with pause_gc():
                await fleet._main_loop.fill(changes)
            if has_hosts:
                fleet.cluster.hosts.expect_hosts()
            tasks.create_task(fleet._main_loop.follow(changes), name="follow the store")
            if times is not None and offset is not None:
                tasks.create_task(offset.watch(times), name="watch the clock")
            if lease is not None:
                # A process that is the only one holds its lease already: it has the duties before it serves requests.
                if not lease.lost.is_set() and fleet.cluster.clock_lease.may_hold:
                    await fleet.cluster.clock_lease.begin()
                    await fleet.duties.start()
                tasks.create_task(
                    fleet.cluster.clock_lease.hold(fleet.duties.start, fleet.duties.stop), name="hold the clock lease"
                )
            elif has_duties:
                await fleet.duties.start()
            try:
                yield fleet
            finally:
                was_on_duty = fleet.duties.scheduler.is_running
                fleet.duties.halt()
            if was_on_duty:
                await fleet._outages.stop()

    def use_policy(self, policy: Policy) -> None:
        """Apply another policy from now on, at the current speed and with the cell's own values; reevaluate all."""
        self.scopes.policy = self.cluster.policy.override(self.emulator.speed.keep(policy))
        self._reevaluate(include_idle=True)

    def _on_policy_changed(self, _: RecordChange[CellPolicy]) -> None:
        """Apply the policy of the cell; reevaluate all, except while the loop is being filled."""
        self.scopes.policy = self.cluster.policy.override(self.scopes.policy)
        if self._main_loop.is_filled:
            self._reevaluate(include_idle=True)

    def _on_hold_changed(self, _: RecordChange[FleetHold]) -> None:
        """Reevaluate all, except while the loop is being filled."""
        if self._main_loop.is_filled:
            self._reevaluate(include_idle=False)

    def _on_host_changed(self, view: ScopeView) -> None:
        """Decide again in a scope, because one of its hosts is silent or heard from again."""
        if self.duties.scheduler.is_running:
            self.duties.scheduler.wake(view.id)

    def _reevaluate(self, *, include_idle: bool) -> None:
        """Decide again in every campaign and in every scope that has events, or in all scopes."""
        self.metrics.released_at = self.clock.now()
        self.campaigns.duty.reevaluate()
        self.duties.scheduler.wake_all(include_idle=include_idle)

    def start_task(self, work: Coroutine[object, object, None], *, name: str) -> None:
        """Start a background task that runs until it is done or the service stops. It must not raise."""
        task = self._tasks.create_task(work, name=name)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    def cancel_tasks(self) -> None:
        """Cancel the background tasks: when the service stops, it must not wait for clients that follow them."""
        for task in self._background_tasks:
            task.cancel()
