"""Settings in, running service out: the only place that names concrete parts."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from forewarn import __version__
from forewarn.api import local
from forewarn.api.fleet_file import DEMONSTRATION, Birth, demonstration_fleet, read_fleet_file
from forewarn.api.written import FleetFileError
from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.core.conditions import Policy
from forewarn.core.event import EventType
from forewarn.core.scope import Scope
from forewarn.core.vm import Vm
from forewarn.fleet.filling import fill
from forewarn.fleet.ledger import manual_start
from forewarn.fleet.replica import View
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import Limits
from forewarn.guest.link_local import ADDRESS, PORT, link_local_address
from forewarn.guest.ports import CannotListen, PortPerVm
from forewarn.guest.server import GuestServer
from forewarn.operator.app import operator_app
from forewarn.operator.server import serving
from forewarn.operator.showing import GuestUrl
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings import Endpoint, Settings, user_data_directory
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Store, StoreInUse
from forewarn.store.sqlite import SqliteStore

OTHER_OPERATOR = "choose another one with --operator HOST:PORT (port 0: any free one)"
LARGEST_FLEET_FILE = 64 * 1024 * 1024


class AlreadyRuns(Exception):
    """Another service runs on the same data."""

    def __init__(self, directory: Path, service: local.Service | None, pid: int | None) -> None:
        self.directory, self.service, self.pid = directory, service, pid
        where = f" at {service.operator_url}" if service is not None else ""
        super().__init__(
            f"a service runs on {directory} already{where} (process {pid or 'unknown'}): "
            "use that one, end it, or choose another --data"
        )


class NotADirectory(Exception):
    """What was given as data directory is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is a file, not a directory: choose another --data")


class Talk(Protocol):
    """Where the service says what it does while it starts."""

    def say(self, sentence: str) -> None:
        """Say something that the user should know."""
        ...

    def filling(self, done: int, total: int) -> None:
        """Tell how many scopes of the fleet file are saved."""
        ...


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A service that runs."""

    fleet: Fleet
    directory: Path
    operator_url: str
    link_local_url: str | None
    link_local_interface: str | None
    guest_url: GuestUrl
    is_ephemeral: bool


@asynccontextmanager
async def running_service(settings: Settings, *, environ: Mapping[str, str], talk: Talk) -> AsyncIterator[Running]:
    """Start the service; when the context ends, end it, in reverse order and with everything saved."""
    async with AsyncExitStack() as stack:
        directory, store = await stack.enter_async_context(_storage(settings, environ))
        token = local.ensure_token(directory)
        if local.is_readable_by_others(directory / local.TOKEN_FILE):
            talk.say(f"Others can read {directory / local.TOKEN_FILE}: close it with chmod 600.")
        listener = stack.enter_context(_bound(settings.operator))
        clock = await _clock(settings, store)
        fleet = await stack.enter_async_context(_fleet(settings, store, clock))
        await _fill(fleet, settings, directory, talk)
        guests = await stack.enter_async_context(_guests(settings, fleet, talk))
        app = operator_app(fleet, token=token, guest_url=guests.url)
        await stack.enter_async_context(serving(app, listener))
        running = Running(
            fleet=fleet,
            directory=directory,
            operator_url=_url(listener),
            link_local_url=guests.link_local_url,
            link_local_interface=settings.listen_link_local,
            guest_url=guests.url,
            is_ephemeral=settings.ephemeral,
        )
        stack.enter_context(_known_as(running))
        yield running


@asynccontextmanager
async def _storage(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[tuple[Path, Store]]:
    """Give the data directory and the store. A service that keeps nothing has a directory too, for who looks for it."""
    if settings.ephemeral:
        root = local.ephemeral_root(environ)
        directory = local.make_ephemeral(root)
        try:
            yield directory, MemoryStore()
        finally:
            shutil.rmtree(directory)
        return
    directory = (settings.data or user_data_directory(environ)).absolute()
    if directory.is_file():
        raise NotADirectory(directory)
    try:
        store = await SqliteStore.open(directory)
    except StoreInUse as error:
        raise AlreadyRuns(directory, local.read_service(directory), error.pid) from error
    try:
        yield directory, store
    finally:
        await store.aclose()


async def _clock(settings: Settings, store: Store) -> Clock:
    system = SystemClock()
    return ManualClock(await manual_start(store, now=system.now())) if settings.manual_time else system


@asynccontextmanager
async def _fleet(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Fleet]:
    hosts = _Hosts()
    simulated = settings.simulated
    platform = SimulatedPlatform(
        clock,
        hosts=hosts,
        durations={
            EventType.FREEZE: simulated.freeze,
            EventType.REBOOT: simulated.reboot,
            EventType.REDEPLOY: simulated.redeploy,
            EventType.PREEMPT: simulated.preempt,
            EventType.TERMINATE: simulated.terminate,
        },
        speed=settings.speed,
    )
    async with Fleet.run(store=store, platform=platform, clock=clock, policy=_policy(settings)) as fleet:
        for view in fleet.replica.views():
            hosts.note(view)
        fleet.on_change(hosts.note)
        yield fleet


class _Hosts:
    """Every host on which a VM was seen: one that has become empty is still there to move to."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, view: View) -> None:
        self._seen.update(vm.host for vm in view.roster or () if vm.host is not None)

    def __call__(self) -> tuple[str, ...]:
        return tuple(self._seen)


def _policy(settings: Settings) -> Policy:
    policy = settings.policy
    return Policy(
        announce=policy.announce,
        enforce_notice=policy.enforce_notice,
        idle_after=policy.idle_after,
        user_operations=policy.user_operations,
        speed=settings.speed,
    )


async def _fill(fleet: Fleet, settings: Settings, directory: Path, talk: Talk) -> None:
    """Take the fleet file if there is no fleet yet, or go on with it where a crash has interrupted that."""
    if fleet.is_filled:
        if settings.fleet is not None:
            talk.say(
                f"There is a fleet already: {settings.fleet} is not read. To begin with it, use another --data DIR, "
                f"or --ephemeral, or remove {directory} while no service runs on it."
            )
        return
    birth = Birth(fleet.clock.now(), fleet.new_epoch)
    scopes = await asyncio.to_thread(_read_fleet, settings.fleet, birth)
    by = str(settings.fleet or DEMONSTRATION)
    await fill(fleet, scopes, by=by, on_saved=lambda done: talk.filling(done, len(scopes)))


def _read_fleet(path: Path | None, birth: Birth) -> tuple[Scope, ...]:
    if path is None:
        return demonstration_fleet(birth)
    try:
        if path.stat().st_size > LARGEST_FLEET_FILE:
            raise FleetFileError(str(path), "", f"a fleet file has at most {LARGEST_FLEET_FILE >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FleetFileError(str(path), "", f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FleetFileError(str(path), "", "this is not TOML: it is not even UTF-8") from error
    return read_fleet_file(text, file=str(path), birth=birth)


class _Guests(msgspec.Struct, frozen=True, kw_only=True):
    """Where VMs find their endpoint."""

    ports: PortPerVm | None
    network: str
    link_local_url: str | None

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL of a VM's endpoint, if it can reach one."""
        if self.ports is not None:
            return self.ports.url(scope, vm.name)
        is_known = any(address.network == self.network for address in vm.addresses)
        return self.link_local_url if is_known else None


@asynccontextmanager
async def _guests(settings: Settings, fleet: Fleet, talk: Talk) -> AsyncIterator[_Guests]:
    server = GuestServer(
        fleet,
        limits=Limits(requests_per_second=settings.guest.requests_per_second),
        unsupported_version_status=settings.guest.unsupported_version_status,
        enable_delay=settings.guest.enable_delay,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        ports = link_local_url = None
        if settings.listen is not None:
            _say_kept_ports(fleet, settings.listen, talk)
            ports = PortPerVm(fleet, server, settings.listen.host, settings.listen.port)
            await stack.enter_async_context(ports.listening())
        if settings.listen_link_local is not None:
            await stack.enter_async_context(link_local_address(settings.listen_link_local))
            await _listen_link_local(server, settings.network, settings.listen_link_local)
            link_local_url = f"http://{ADDRESS}"
        yield _Guests(ports=ports, network=settings.network, link_local_url=link_local_url)


def _say_kept_ports(fleet: Fleet, listen: Endpoint, talk: Talk) -> None:
    first = min(fleet.ports.values(), default=0)
    if first and listen.port not in (0, first):
        talk.say(f"VMs keep the ports that they were given, from {first} on; {listen} is for new ones.")


async def _listen_link_local(server: GuestServer, network: str, interface: str) -> None:
    try:
        await server.listen_by_address(network, ADDRESS, PORT, interface=interface)
    except OSError as error:
        advice = "leave --listen-link-local out"
        raise CannotListen(ADDRESS, PORT, f"the VMs of network {network}", error, advice) from error


@contextmanager
def _bound(endpoint: Endpoint) -> Iterator[socket.socket]:
    """Take the operators' port before anything else happens, so that a busy one is found out early."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((endpoint.host, endpoint.port))
            listener.listen()
        except OSError as error:
            raise CannotListen(endpoint.host, endpoint.port, "the operator API", error, OTHER_OPERATOR) from error
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{Endpoint(host, port)}"


@contextmanager
def _known_as(running: Running) -> Iterator[None]:
    """Let programs on this machine find the service while it runs."""
    service = local.Service(
        pid=os.getpid(),
        started_at=SystemClock().now(),
        version=__version__,
        operator_url=running.operator_url,
        link_local_url=running.link_local_url,
    )
    with local.announced(running.directory, service):
        yield
