"""Starts the whole service in order, and stops it in reverse order with everything saved."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from forewarn import __version__
from forewarn.api import local_service
from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.compose import operators
from forewarn.compose.data_directory import REPORT_DIRECTORY, SOCKET_DIRECTORY, claim_directory, open_store
from forewarn.compose.guests import GuestListeners, serve_guests
from forewarn.compose.initial_fleet import FleetLoader, StartupReporter, fill_cell, fill_if_empty
from forewarn.compose.platforms import HostSet, PlatformAdapters, create_adapters, create_policy
from forewarn.compose.reload import ReloadSettings, SettingsReloader, adopt_token
from forewarn.compose.remote_guests import RemoteGuests
from forewarn.core.vm import Vm
from forewarn.fleet.clock_offset import TimeSource
from forewarn.fleet.fleet_state import manual_clock_start, speed_at_start
from forewarn.fleet.service import Fleet
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.observer import Observer
from forewarn.guest.recorder import RequestRecorder
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.rehearsal import Rehearsal
from forewarn.settings.schema import EMULATOR, Preset, Settings
from forewarn.settings.types import RoleName, StoreName
from forewarn.store.port import Lease, Retention, Store

if TYPE_CHECKING:
    from forewarn.operator.scenario_player import LoadPlayer


class RunningService(msgspec.Struct, frozen=True, kw_only=True):
    """A running service."""

    fleet: Fleet
    directory: Path
    operator_url: str
    link_local_url: str | None
    link_local_interface: str | None
    guest_url: Callable[[str, Vm], str | None]
    """The URL of the VM's own endpoint by scope and VM, if it has one."""
    is_ephemeral: bool
    reload: ReloadSettings
    faults: Faults | None
    """The fault injection; None outside the emulator."""
    create_code: Callable[[str], str]
    """Returns a code with which a browser signs in once, within a minute, given the id of a token."""

    def sign_in_url(self) -> str:
        """Return a link that signs a browser in once, within a minute, with the service's own token if it is valid."""
        file = self.directory / local_service.TOKEN_FILE
        token = self.fleet.tokens.find(local_service.read_token(file)) if file.exists() else None
        path = f"{self.operator_url}/ui/sign-in"
        return path if token is None else f"{path}#code={self.create_code(token.id)}"


@asynccontextmanager
async def run_service(
    settings: Settings,
    preset: Preset,
    *,
    environ: Mapping[str, str],
    reporter: StartupReporter,
    clock: Clock | None = None,
    fleet_loader: FleetLoader | None = None,
    observer: Observer | None = None,
    rehearsal: Rehearsal | None = None,
    load_player: "LoadPlayer | None" = None,
) -> AsyncIterator[RunningService]:
    """Start the service; when the context ends, stop it in reverse order with everything saved.

    `clock` and `fleet_loader` replace the clock and the initial fleet that the settings name.
    A `rehearsal` calls nothing real.
    The `observer` gets every guest request. Faults can be set only in the emulator.
    `load_player` returns what plays scenarios in it.
    """
    async with AsyncExitStack() as stack:
        tls = operators.create_tls_context(settings.tls)
        directory, store, lease = await stack.enter_async_context(open_store(settings, environ))
        claim_directory(directory, preset, reporter)
        is_single = settings.role is RoleName.SINGLE
        if is_single:
            local_service.ensure_token(directory)
        if is_single and local_service.is_readable_by_others(directory / local_service.TOKEN_FILE):
            reporter.report(f"{directory / local_service.TOKEN_FILE} is readable by others: run chmod 600 on it.")
        listener = stack.enter_context(operators.bind_listener(settings.operator))
        clock = clock or await _create_clock(settings, store, reporter)
        hosts = HostSet()
        speed_setting = settings.speed if preset.simulated_time else None
        speed = settings.speed if speed_setting is None else await speed_at_start(store, setting=speed_setting)
        at_speed = msgspec.structs.replace(settings, speed=speed)
        adapters = create_adapters(at_speed, clock, hosts, directory, rehearsal)
        fleet = await stack.enter_async_context(
            _run_fleet(at_speed, store, lease, clock, adapters, hosts, speed_setting)
        )
        if is_single:
            await adopt_token(fleet, directory, by="first start")
            await fill_if_empty(fleet, settings, reporter, fleet_loader)
        elif settings.fleet is not None:
            await fill_cell(fleet, settings, reporter)
        faults = Faults(fleet) if preset is EMULATOR else None
        limits = operators.operator_limits(settings)
        guests: GuestListeners | RemoteGuests
        if settings.role is RoleName.CONTROL:
            guests = await stack.enter_async_context(_serve_hosts(fleet, store))
        else:
            guests = await stack.enter_async_context(
                serve_guests(
                    settings,
                    fleet,
                    reporter,
                    operator_port=listener.getsockname()[1],
                    operator_connections=limits.total,
                    faults=faults,
                    observer=observer,
                    recorder=RequestRecorder(keeps_bytes=preset is EMULATOR),
                    socket_directory=_socket_directory(directory, preset),
                )
            )
        server = await stack.enter_async_context(
            operators.serve_operators(
                fleet,
                guests,
                listener,
                tls,
                limits=limits,
                imports=settings.imports,
                hosts=settings.operator_hosts,
                certificate=settings.tls.certificate,
                load_player=load_player,
                report_directory=directory / REPORT_DIRECTORY,
            )
        )
        stack.callback(fleet.journal.close)  # do not wait for clients that follow the journal
        stack.callback(fleet.cancel_tasks)  # nor for clients that follow an import
        stack.push_async_callback(server.stop_scenarios)
        reloader = SettingsReloader(settings, directory, fleet=fleet, adapters=adapters, guests=guests, tls=tls)
        running = RunningService(
            fleet=fleet,
            directory=directory,
            operator_url=operators.listener_url(listener, tls),
            link_local_url=guests.link_local_url,
            link_local_interface=", ".join(guests.networks.values()) or None,
            guest_url=guests.url,
            is_ephemeral=settings.ephemeral,
            reload=reloader.reload,
            faults=faults,
            create_code=server.create_code,
        )
        for problem in await fleet.health.problems():
            reporter.report(f"The service is not ready: {problem}.")
        stack.enter_context(_publish(running, reporter, certificate=settings.tls.certificate))
        yield running


@asynccontextmanager
async def _serve_hosts(fleet: Fleet, store: Store) -> AsyncIterator[RemoteGuests]:
    """Answer the commands of hosts, which have the guest endpoints."""
    from forewarn.compose.host_commands import serve_hosts  # it needs the extra [cluster]
    from forewarn.store.nats.store import NatsStore

    if not isinstance(store, NatsStore):
        raise TypeError("a control node needs the store nats")
    async with serve_hosts(fleet, store):
        yield RemoteGuests(fleet.cluster.hosts, Counters())


def _socket_directory(directory: Path, preset: Preset) -> Path | None:
    """Return the directory of the sockets that stand for VMs; None outside the emulator."""
    return directory / SOCKET_DIRECTORY if preset is EMULATOR and sys.platform != "win32" else None


async def _create_clock(settings: Settings, store: Store, reporter: StartupReporter) -> Clock:
    system = SystemClock()
    now = system.now()
    position = await manual_clock_start(store, now=now)
    if settings.manual_time:
        return ManualClock(position)
    if position > now:
        reporter.report(
            f"This data directory was last used with a manual clock at {position:%Y-%m-%d %H:%M:%SZ}, which is in the "
            "future. Scopes changed then do not advance until that time. Use --manual-time, or another --data."
        )
    return system


def _create_time_source(settings: Settings) -> TimeSource | None:
    """Return the servers whose time a clock is compared with; None for a store on this machine."""
    if settings.store is not StoreName.NATS:
        return None
    from forewarn.store.nats.server_time import ServerTime  # it needs the extra [cluster]

    return ServerTime(settings.nats)


@asynccontextmanager
async def _run_fleet(
    settings: Settings,
    store: Store,
    lease: Lease | None,
    clock: Clock,
    adapters: PlatformAdapters,
    hosts: HostSet,
    speed_setting: float | None,
) -> AsyncIterator[Fleet]:
    retention = Retention(age=settings.journal.age, rows=settings.journal.rows)
    async with Fleet.run(
        store=store,
        platform=adapters.platform,
        clock=clock,
        policy=create_policy(settings),
        speed_setting=speed_setting,
        retention=retention,
        checker=adapters.gates,
        notifier=adapters.webhooks,
        lease=lease,
        has_hosts=settings.role is RoleName.CONTROL,
        times=_create_time_source(settings),
    ) as fleet:
        for view in fleet.replica.views():
            if view.scope is not None:
                hosts.add(view.scope)
        fleet.scopes.roster_observers.append(hosts.observe)
        if isinstance(adapters.platform, SimulatedPlatform):
            fleet.emulator.speed.observers.append(adapters.platform.use_speed)
        yield fleet


@contextmanager
def _publish(running: RunningService, reporter: StartupReporter, *, certificate: Path | None) -> Iterator[None]:
    """Publish the service to programs on this machine while it runs."""
    service = local_service.LocalService(
        pid=os.getpid(),
        started_at=SystemClock().now(),
        version=__version__,
        operator_url=running.operator_url,
        link_local_url=running.link_local_url,
        certificate=str(certificate.absolute()) if certificate is not None else None,
    )
    with ExitStack() as stack:
        try:
            stack.enter_context(local_service.publish_service(running.directory, service))
        except OSError as error:  # such as a full or read-only disk: guests are served all the same
            reporter.report(
                f"Cannot write {running.directory / local_service.SERVICE_FILE} ({error.strerror}): commands on this "
                f"machine do not find the service by themselves; use --url {running.operator_url}."
            )
        yield
