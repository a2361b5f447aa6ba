"""The whole service, put together and started in order; it ends in reverse order, with everything saved."""

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from forewarn import __version__
from forewarn.api import local
from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.compose import operators
from forewarn.compose.belonging import claim
from forewarn.compose.filling import ReadFleet, Talk, fill_if_empty
from forewarn.compose.guests import serving_guests
from forewarn.compose.platforms import Hosts, Outside, make_outside
from forewarn.compose.policy import policy
from forewarn.compose.reloading import Reload, Reloading, adopt_token
from forewarn.compose.storing import opened_store
from forewarn.fleet.ledger import manual_start
from forewarn.fleet.service import Fleet
from forewarn.guest.faults import Faults
from forewarn.guest.observing import Observer
from forewarn.operator.showing_inventory import GuestUrl
from forewarn.settings import EMULATOR, Preset, Settings
from forewarn.store.port import Retention, Store

SOCKETS = "sockets"
"""The directory of the sockets, within the data directory: one service has that at a time."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A service that runs."""

    fleet: Fleet
    directory: Path
    operator_url: str
    link_local_url: str | None
    link_local_interface: str | None
    guest_url: GuestUrl
    is_ephemeral: bool
    reload: Reload
    faults: Faults | None
    """What the endpoint does wrong on purpose; None: this is no emulator."""


@asynccontextmanager
async def running_service(
    settings: Settings,
    preset: Preset,
    *,
    environ: Mapping[str, str],
    talk: Talk,
    clock: Clock | None = None,
    scopes: ReadFleet | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[Running]:
    """Start the service; when the context ends, end it, in reverse order and with everything saved.

    With `clock`, time is that one's, whatever the settings say; with `scopes`, so is the fleet that it begins with.
    The `observer` is told of every request of a VM. Faults can be set in the emulator alone.
    """
    async with AsyncExitStack() as stack:
        tls = operators.tls_context(settings.tls)
        directory, store = await stack.enter_async_context(opened_store(settings, environ))
        claim(directory, preset, talk)
        local.ensure_token(directory)
        if local.is_readable_by_others(directory / local.TOKEN_FILE):
            talk.say(f"Others can read {directory / local.TOKEN_FILE}: close it with chmod 600.")
        listener = stack.enter_context(operators.bound(settings.operator))
        clock = clock or await _clock(settings, store, talk)
        hosts = Hosts()
        outside = make_outside(settings, clock, hosts, directory)
        fleet = await stack.enter_async_context(_fleet(settings, store, clock, outside, hosts))
        await adopt_token(fleet, directory, by="first start")
        await fill_if_empty(fleet, settings, talk, scopes)
        faults = Faults(fleet) if preset is EMULATOR else None
        guests = await stack.enter_async_context(
            serving_guests(
                settings,
                fleet,
                talk,
                faults=faults,
                observer=observer,
                socket_directory=_socket_directory(directory, preset),
            )
        )
        await stack.enter_async_context(operators.serving_operators(fleet, guests, listener, tls))
        stack.callback(fleet.feeds.end)  # who follows the journal must not be waited for
        stack.callback(fleet.break_off)  # nor who follows an import
        reloading = Reloading(settings, directory, fleet=fleet, outside=outside, guests=guests, tls=tls)
        running = Running(
            fleet=fleet,
            directory=directory,
            operator_url=operators.url(listener, tls),
            link_local_url=guests.link_local_url,
            link_local_interface=", ".join(guests.networks.values()) or None,
            guest_url=guests.url,
            is_ephemeral=settings.ephemeral,
            reload=reloading.take,
            faults=faults,
        )
        stack.enter_context(_known_as(running, certificate=settings.tls.certificate))
        yield running


def _socket_directory(directory: Path, preset: Preset) -> Path | None:
    """Return where programs on this machine are taken for VMs: nowhere but in the emulator."""
    return directory / SOCKETS if preset is EMULATOR and sys.platform != "win32" else None


async def _clock(settings: Settings, store: Store, talk: Talk) -> Clock:
    system = SystemClock()
    now = system.now()
    position = await manual_start(store, now=now)
    if settings.manual_time:
        return ManualClock(position)
    if position > now:
        talk.say(
            f"These data were at {position:%Y-%m-%d %H:%M:%SZ} by a manual clock, ahead of the real time: what "
            "was touched by then stands still until that time has come. Use --manual-time, or other data."
        )
    return system


@asynccontextmanager
async def _fleet(
    settings: Settings, store: Store, clock: Clock, outside: Outside, hosts: Hosts
) -> AsyncIterator[Fleet]:
    retention = Retention(age=settings.journal.age, rows=settings.journal.rows)
    async with Fleet.run(
        store=store,
        platform=outside.platform,
        clock=clock,
        policy=policy(settings),
        retention=retention,
        checker=outside.gates,
        messenger=outside.webhooks,
    ) as fleet:
        for view in fleet.replica.views():
            hosts.note(view)
        fleet.on_change(hosts.note)
        yield fleet


@contextmanager
def _known_as(running: Running, *, certificate: Path | None) -> Iterator[None]:
    """Let programs on this machine find the service while it runs."""
    service = local.Service(
        pid=os.getpid(),
        started_at=SystemClock().now(),
        version=__version__,
        operator_url=running.operator_url,
        link_local_url=running.link_local_url,
        certificate=str(certificate.absolute()) if certificate is not None else None,
    )
    with local.announced(running.directory, service):
        yield
