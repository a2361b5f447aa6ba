"""The fleet on a host: serves the guests of the host's VMs and carries out their impacts, and saves nothing.

It reads the replica of the host's own scopes. Whatever must be saved is a command to the control nodes. Without them
guests get responses from the replica, and everything else is repeated until a control node answers.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from forewarn import __version__
from forewarn.clock import Clock
from forewarn.core.errors import CoreError, WrongHost
from forewarn.core.policy import Policy
from forewarn.fleet.clock_offset import ClockOffset
from forewarn.fleet.errors import SAVE_ERRORS, FleetError, HostTaken, SaveFailed
from forewarn.fleet.event_loop import pause_gc, tasks_until_exit
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.hold_record import HoldRecord
from forewarn.fleet.host.commands import Claim, ClaimResult, Release, Renew, ReportPorts
from forewarn.fleet.host.control_client import CommandTransport, ControlClient
from forewarn.fleet.host.last_seen import HostLastSeen
from forewarn.fleet.host.ports import HostPorts
from forewarn.fleet.host.registry import LEASE_SECONDS, digest_scopes
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.main_loop import MainLoop
from forewarn.fleet.metrics import FleetMetrics, MetricsStore
from forewarn.fleet.scheduler import TimerHeap
from forewarn.fleet.scopes import ScopeChange, Scopes
from forewarn.platform.port import Platform
from forewarn.store.port import Store

log = logging.getLogger(__name__)

RENEW_SECONDS = 3.0
CLAIM_SECONDS = 1.0
"""How often a process asks again for a host that another one serves, or while no control node answers."""

FIRST_ANSWER_SECONDS = 5.0
"""How long a start waits for the control nodes; then guests are served from what is on disk."""

STALE_AFTER = timedelta(seconds=5)
"""How old the replica may be before that is reported."""

STALE_LOG_SECONDS = 60.0


class HostRecords(Store, CommandTransport, Protocol):
    """The records of a host, and its way to the control nodes."""

    has_followed: asyncio.Event
    on_placed: Callable[[], None]
    newest_format: int
    """The newest format of records that this process knows."""

    @property
    def age(self) -> timedelta | None:
        """How old the records may be; None if they were never received."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether a server answers."""
        ...

    @property
    def disk_problem(self) -> str | None:
        """Why changes cannot be written to disk, and are not yielded; None if they can."""
        ...

    def follow(self, scopes: Iterable[str]) -> None:
        """Follow these scopes from now on, and forget all others."""
        ...


class HostFleet:
    """The parts of the fleet that a host needs. Created by `HostFleet.run`, valid within that context."""

    def __init__(
        self,
        host: str,
        records: HostRecords,
        platform: Platform,
        clock: Clock,
        policy: Policy,
        tasks: asyncio.TaskGroup,
        directory: Path,
    ) -> None:
        self.host = host
        self.clock = clock
        self.clock_offset = ClockOffset(clock, acts_by_time=False)
        self.metrics = FleetMetrics()
        self.health = HealthCheck(MetricsStore(records, self.metrics))
        self._records = records
        self._tasks = tasks
        self._followed = asyncio.Event()
        self._loop = MainLoop(records, tasks, on_followed=self._followed.set)
        self.scopes = Scopes(self._loop, clock, policy, FleetStateRecord(self._loop), HoldRecord(self._loop))
        self.replica = self.scopes.replica
        self.client = ControlClient(records, host, self.replica)
        self.events = HostApprovals(self.client)
        self.last_seen = HostLastSeen(self.client, self.scopes, tasks)
        self.ports = HostPorts(directory)
        self.impacts = Impacts(platform, self.scopes, self._loop, writer=self.client)
        self._retries = TimerHeap(clock, self._on_retry)
        self._wake = asyncio.Event()
        self._told: tuple[str, ...] = ()
        """The scopes that a control node has named."""
        self._other_holder = ""
        """Another process that serves the host, as last logged."""
        self.scopes.add_observers(self._observe_revision, self.impacts.observe, self._set_timer)
        records.on_placed = self._wake.set
        self.ports.on_changed = self._wake.set
        self.health.add_limitation(self._age_problem)
        self.health.add_limitation(self._control_problem)
        self.health.add_limitation(self.clock_offset.problem)

    @classmethod
    @asynccontextmanager
    async def run(
        cls, *, host: str, records: HostRecords, platform: Platform, clock: Clock, policy: Policy, directory: Path
    ) -> AsyncIterator["HostFleet"]:
        """Fill the replica from disk, become the process that serves the host, and keep up with the cell.

        While control nodes answer that another process serves the host, this waits. Without their answers it goes on.
        """
        async with records.watch() as changes, tasks_until_exit() as tasks:
            fleet = cls(host, records, platform, clock, policy, tasks, directory)
            with pause_gc():
                await fleet._loop.fill(changes)
            tasks.create_task(fleet._loop.follow(changes), name="follow the store")
            await fleet._claim_first()
            tasks.create_task(fleet._keep_term(), name="renew the term")
            tasks.create_task(fleet.last_seen.report(), name="report polls")
            tasks.create_task(fleet._watch_age(), name="watch the age of the replica")
            try:
                yield fleet
            finally:
                fleet.impacts.halt()
                fleet._retries.stop()
            if fleet.client.term:
                with suppress(*SAVE_ERRORS, CoreError, FleetError):
                    async with asyncio.timeout(RENEW_SECONDS):
                        await fleet.client.send(Release(process=fleet.client.process, term=fleet.client.term))

    @property
    def age(self) -> timedelta | None:
        """How old the replica may be; None if it was never filled."""
        return self._records.age

    @property
    def disk_problem(self) -> str | None:
        """Why guests do not get what is new: the disk cannot be written. None if it can."""
        return self._records.disk_problem

    @property
    def control_age(self) -> float | None:
        """How many seconds ago a control node answered; None: never."""
        answered_at = self.client.answered_at
        return None if answered_at is None else asyncio.get_running_loop().time() - answered_at

    @property
    def vms(self) -> int:
        """The number of VMs on this host."""
        hosts = self.replica.hosts()
        return len(hosts[self.host]) if self.host in hosts else 0

    async def _claim_first(self) -> None:
        """Become the process that serves the host. Wait for another one, but not for the control nodes.

        Without a term, a process only serves guests: impacts begin with the first term.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FIRST_ANSWER_SECONDS
        while not self.client.term:
            try:
                if not await self._claim():
                    # The other process may have ended already, as when this one is its restart: its term ends by then.
                    deadline = loop.time() + LEASE_SECONDS + FIRST_ANSWER_SECONDS
                    await self._pause(CLAIM_SECONDS)
            except SAVE_ERRORS as error:
                if loop.time() > deadline:
                    log.warning("%s; guests are served from what is on disk", error)
                    return
                await asyncio.sleep(CLAIM_SECONDS / 4)
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                await self._records.has_followed.wait()
                while any(self.replica.newest(id_)[0] is None for id_ in self._told):
                    self._followed.clear()
                    await self._followed.wait()

    async def _claim(self) -> bool:
        """Ask for a term; return whether it was granted. While another process serves the host, it is not."""
        client = self.client
        claim = Claim(
            process=client.process,
            holder=f"process {os.getpid()} on {socket.gethostname()}",
            ports=dict(self.ports.assigned),
            version=__version__,
            format=self._records.newest_format,
        )
        try:
            response = await client.send(claim)
        except HostTaken as error:
            if error.holder != self._other_holder:
                self._other_holder = error.holder
                log.warning("host %s is served by %s; waiting until it ends", self.host, error.holder)
            return False
        if response.term is None:
            return False
        client.term = response.term.term
        self.ports.merge(response.term.ports)
        self._take(response.term)
        log.info("serving host %s in term %d", self.host, client.term)
        await self.impacts.start([self.host])
        return True

    async def _keep_term(self) -> None:
        """Renew the term without end; raise HostTaken if another process has taken over.

        A process that has had no term yet, because it started without control nodes, waits for the one before it.
        """
        while True:
            try:
                if self.client.term:
                    await self._renew()
                elif not await self._claim():
                    await self._pause(CLAIM_SECONDS)
                    continue
            except SAVE_ERRORS as error:
                log.debug("could not renew the term of host %s: %s", self.host, error)
                await asyncio.sleep(CLAIM_SECONDS)
                continue
            await self._pause(RENEW_SECONDS)

    async def _renew(self) -> None:
        command = Renew(
            process=self.client.process,
            term=self.client.term,
            scopes=digest_scopes(self._told),
            clock_offset=self.clock_offset.seconds,
        )
        response = await self.client.send(command)
        self.clock_offset.take(self.client.times)
        if response.term is not None:
            self._take(response.term)
        await self._report_ports()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless there is something to do earlier."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def _take(self, term: ClaimResult) -> None:
        """Follow the scopes that a control node names, and those that have VMs here as far as the host knows."""
        if term.scopes is not None:
            self._told = term.scopes
        hosts = self.replica.hosts()
        own = {view.id for view, _ in hosts[self.host]} if self.host in hosts else set()
        self._records.follow(own | set(self._told))

    async def _report_ports(self) -> None:
        if self.ports.is_reported:
            return
        self.ports.is_reported = True
        client, ports = self.client, self.ports
        command = ReportPorts(
            process=client.process, term=client.term, address=ports.address, ports=dict(ports.assigned)
        )
        try:
            await client.send(command)
        except SAVE_ERRORS:
            ports.is_reported = False
            raise

    def _observe_revision(self, change: ScopeChange) -> None:
        self.client.observe(self.replica.get_or_create_view(change.id))

    def _set_timer(self, change: ScopeChange) -> None:
        """Wake a scope when an impact on it can be tried again."""
        events = change.after.events if change.after is not None else ()
        now = self.clock.now()
        retries = [impact.retry_at for event in events for impact in event.impacts if impact.retry_at is not None]
        self._retries.set(change.id, min((at for at in retries if at > now), default=None))

    def _on_retry(self, id_: str) -> None:
        self.scopes.notify(self.replica.get_or_create_view(id_))

    async def _watch_age(self) -> None:
        """Log when the replica becomes old, and when it is current again, without end."""
        logged_at: float | None = None
        while True:
            await asyncio.sleep(1)
            now, problem = asyncio.get_running_loop().time(), self._age_problem()
            if problem is None:
                if logged_at is not None:
                    log.warning("the replica is current again")
                logged_at = None
            elif logged_at is None or now - logged_at >= STALE_LOG_SECONDS:
                log.warning("%s", problem)
                logged_at = now

    def _age_problem(self) -> str | None:
        age = self.age
        if age is None:
            return "this host has not received its VMs yet: check the NATS servers"
        if age <= STALE_AFTER:
            return None
        return f"guests get responses from {age.total_seconds():.0f} s ago: check the NATS servers"

    def _control_problem(self) -> str | None:
        age = self.control_age
        if age is not None and age <= 3 * RENEW_SECONDS:
            return None
        since = "yet" if age is None else f"for {age:.0f} s"
        return f"no control node has answered {since}: approvals and outcomes wait"


class HostApprovals:
    """Approvals of the host's VMs, as commands to the control nodes."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    async def approve(self, scope: str, vm: str, ids: Sequence[str]) -> None:
        """Record a VM's approval of events of its own scope."""
        try:
            await self._client.approve(scope, vm, tuple(ids))
        except (HostTaken, WrongHost) as error:  # another process or host has the VM, and this one hears of it late
            raise SaveFailed(str(error)) from error
