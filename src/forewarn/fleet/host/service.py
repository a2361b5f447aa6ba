"""The fleet on a host: serves the guests of the host's VMs and carries out their impacts, and saves nothing.

It reads the replica of the host's own scopes. Whatever must be saved is a command to the control nodes. Without them
guests get responses from the replica, and everything else is repeated until a control node answers.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from forewarn.clock import Clock
from forewarn.core.errors import CoreError
from forewarn.core.policy import Policy
from forewarn.files import read_file, write_file
from forewarn.fleet.errors import SAVE_ERRORS, FleetError, HostTaken
from forewarn.fleet.event_loop import pause_gc, tasks_until_exit
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.hold_record import HoldRecord
from forewarn.fleet.host.commands import Claim, ClaimResult, Release, Renew, ReportPorts, ScopePolls, Seen
from forewarn.fleet.host.control_client import CATCH_UP_SECONDS, CommandTransport, ControlClient
from forewarn.fleet.host.registry import digest_scopes
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.main_loop import MainLoop
from forewarn.fleet.metrics import FleetMetrics, MetricsStore
from forewarn.fleet.replica import LongPollObserver, ScopeView
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

REPORT_SECONDS = 60.0
"""How often a host reports which scopes have polled."""

STALE_AFTER = timedelta(seconds=5)
"""How old the replica may be before that is reported."""

STALE_LOG_SECONDS = 60.0

ENABLE_PAUSE = 5.0
"""How long, in seconds, an enablement that could not be saved is not tried again: guests do not wait for each try."""

PORTS_FILE = "ports.json"


class HostRecords(Store, CommandTransport, Protocol):
    """The records of a host, and its way to the control nodes."""

    synced_at: datetime | None
    has_followed: asyncio.Event
    on_placed: Callable[[], None]

    @property
    def is_connected(self) -> bool:
        """Whether a server answers."""
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
        self.scopes.observers.extend(
            (self._observe_revision, self.impacts.observe, self._set_timer, LongPollObserver(self.replica).observe)
        )
        records.on_placed = self._wake.set
        self.ports.on_changed = self._wake.set
        self.health.add_limitation(self._age_problem)
        self.health.add_limitation(self._control_problem)

    @classmethod
    @asynccontextmanager
    async def run(
        cls, *, host: str, records: HostRecords, platform: Platform, clock: Clock, policy: Policy, directory: Path
    ) -> AsyncIterator["HostFleet"]:
        """Fill the replica from disk, become the process that serves the host, and keep up with the cell.

        While another process serves the host, this waits. Without an answer of a control node it goes on.
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
            with suppress(*SAVE_ERRORS, CoreError, FleetError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await fleet.client.send(Release(process=fleet.client.process, term=fleet.client.term))

    @property
    def age(self) -> timedelta | None:
        """How old the replica may be; None if it was never filled."""
        synced_at = self._records.synced_at
        return None if synced_at is None else max(timedelta(0), datetime.now(UTC) - synced_at)

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
        """Become the process that serves the host. Wait for another one, but not for the control nodes."""
        deadline = asyncio.get_running_loop().time() + FIRST_ANSWER_SECONDS
        holder = ""
        while not self.client.term:
            try:
                await self._claim()
            except HostTaken as error:
                if error.holder != holder:
                    holder = error.holder
                    log.warning("host %s is served by %s; waiting until it ends", self.host, holder)
            except SAVE_ERRORS as error:
                if not holder and asyncio.get_running_loop().time() > deadline:
                    log.warning("%s; guests are served from what is on disk", error)
                    return
                await asyncio.sleep(CLAIM_SECONDS / 4)
                continue
            else:
                break
            await self._pause(CLAIM_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                await self._records.has_followed.wait()
                while any(self.replica.newest(id_)[0] is None for id_ in self._told):
                    self._followed.clear()
                    await self._followed.wait()

    async def _claim(self) -> None:
        client = self.client
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        response = await client.send(Claim(process=client.process, holder=holder, ports=dict(self.ports.assigned)))
        if response.term is not None:
            client.term = response.term.term
            self.ports.merge(response.term.ports)
            self._take(response.term)
            log.info("serving host %s in term %d", self.host, client.term)
            await self.impacts.start([self.host])

    async def _keep_term(self) -> None:
        """Renew the term without end; raise HostTaken if another process has taken over."""
        while True:
            try:
                if not self.client.term:
                    await self._claim()
                else:
                    scopes = digest_scopes(self._told)
                    renew = Renew(process=self.client.process, term=self.client.term, scopes=scopes)
                    response = await self.client.send(renew)
                    if response.term is not None:
                        self._take(response.term)
                    await self._report_ports()
            except SAVE_ERRORS as error:
                log.debug("could not renew the term of host %s: %s", self.host, error)
                await asyncio.sleep(CLAIM_SECONDS)
                continue
            await self._pause(RENEW_SECONDS)

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
        await self._client.approve(scope, vm, tuple(ids))


class HostLastSeen:
    """The time of each scope's last request. Most are reported once a minute; the first one enables the scope."""

    def __init__(self, client: ControlClient, scopes: Scopes, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._clock = scopes.clock
        self._replica = scopes.replica
        self._tasks = tasks
        self._enabling: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._reported_at = self._clock.now()

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Record a valid request. The caller must await the returned task, if any, before it responds."""
        view.seen_at = now = self._clock.now()
        if now < view.fresh_until or (view.scope is not None and view.scope.enabled):
            return None
        enabling = self._enabling.get(view.id)
        if enabling is None:
            if asyncio.get_running_loop().time() < self._not_before.get(view.id, 0.0):
                return None
            enabling = self._tasks.create_task(self._enable(view), name=f"enable {view.id}")
            self._enabling[view.id] = enabling
        return asyncio.shield(enabling)

    async def report(self) -> None:
        """Report every minute which scopes have polled, without end."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            since, now = self._reported_at, self._clock.now()
            polled = [view for view in self._replica.views() if view.seen_at is not None and view.seen_at >= since]
            if polled:
                try:
                    await self._send(polled)
                except (CoreError, FleetError) as error:
                    log.info("could not report polls: %s", error)
                    continue
            self._reported_at = now

    async def _enable(self, view: ScopeView) -> None:
        try:
            await self._client.catch_up(view.id, await self._send([view]), CATCH_UP_SECONDS)
            self._not_before.pop(view.id, None)
        except (CoreError, FleetError) as error:
            self._not_before[view.id] = asyncio.get_running_loop().time() + ENABLE_PAUSE
            log.warning("could not enable scope %s; a later request tries again: %s", view.id, error)
        finally:
            del self._enabling[view.id]

    async def _send(self, views: Iterable[ScopeView]) -> int:
        polls = {
            view.id: ScopePolls(seen_at=view.seen_at, version=view.poll_version, vms=dict(view.polled_at))
            for view in views
            if view.seen_at is not None
        }
        response = await self._client.send(Seen(process=self._client.process, term=self._client.term, scopes=polls))
        return response.revision


class HostPorts:
    """The guest ports of the host's VMs: on disk, and reported to the control nodes. A VM keeps its port here."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / PORTS_FILE
        self._ports: dict[str, int] = {}
        with suppress(FileNotFoundError, ValueError):
            content = json.loads(read_file(self._file))
            self._ports = {str(name): int(port) for name, port in content.items()}
        self.address = "127.0.0.1"
        """The address of the ports."""
        self.is_reported = True
        self.on_changed: Callable[[], None] = lambda: None
        """Called when there is something to report."""

    @property
    def assigned(self) -> Mapping[str, int]:
        """The port of each VM, by `scope/name`."""
        return self._ports

    def merge(self, ports: Mapping[str, int]) -> None:
        """Add ports that the control nodes know and the disk does not have."""
        taken = set(self._ports.values())
        self._ports = {**{name: port for name, port in ports.items() if port not in taken}, **self._ports}

    async def assign(self, ports: Mapping[str, int]) -> None:
        """Assign ports to VMs."""
        ports = {**self._ports, **ports}
        if ports != self._ports:
            self._ports = ports
            await asyncio.to_thread(write_file, self._file, json.dumps(ports).encode())
        self.is_reported = False
        self.on_changed()
