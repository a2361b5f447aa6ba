"""Guest listeners: opens the ports, link-local addresses and sockets that the settings name."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from forewarn.compose.initial_fleet import StartupReporter
from forewarn.core.vm import Vm
from forewarn.fleet.guest_port import GuestFleet
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.limits import SPARE_FILES, Limits
from forewarn.guest.link_local import ADDRESS, PORT, link_local_address
from forewarn.guest.observer import Observer
from forewarn.guest.recorder import RequestRecorder
from forewarn.guest.server import GuestServer
from forewarn.guest.vm_listeners import ALL, ListenFailed, VmPortListeners, VmSocketListeners
from forewarn.settings.schema import Settings
from forewarn.settings.types import ListenAddress, local_address
from forewarn.wire.preview import ResponsePreview


class GuestListeners(msgspec.Struct, frozen=True, kw_only=True):
    """The guest listeners. `networks` has the interface of each network that uses 169.254.169.254."""

    server: GuestServer
    ports: VmPortListeners | None
    networks: Mapping[str, str]
    shared_url: str | None = None
    """The URL of the port that serves all VMs."""
    faults: Faults | None = None
    """The fault injection; None outside the emulator."""
    sockets: VmSocketListeners | None = None
    """The opener of sockets that stand for a VM; None outside the emulator."""
    recorder: RequestRecorder | None = None
    """The recorder of requests of single VMs."""

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL of a VM's endpoint, if it has one."""
        if self.ports is not None:
            return self.ports.url(scope, vm.name)
        if self.shared_url is not None:
            return f"{self.shared_url}{self.server.vm_path(scope, vm.name)}"
        is_known = any(address.network in self.networks for address in vm.addresses)
        return self.link_local_url if is_known else None

    def preview(self, scope: str, vm: Vm) -> ResponsePreview | None:
        """Return what the VM gets if it polls now; None if it has no endpoint."""
        name = f"{scope}/{vm.name}"
        if self.ports is not None:
            return None if self.ports.url(scope, vm.name) is None else self.server.preview(name)
        address = next((address for address in vm.addresses if address.network in self.networks), None)
        if address is not None:
            return self.server.preview(name, address=address)
        return None if self.shared_url is None else self.server.preview(name)

    def problem(self) -> str | None:
        """Return a known problem of the guest endpoint; None if there is none."""
        if not self.server.is_listening:
            return "the guest endpoint has stopped listening: restart the service"
        return None

    def limitation(self) -> str | None:
        """Return a problem of single VMs. Callers need no token to read it, so it names none of them."""
        if self.ports is None or not self.ports.failures:
            return None
        number = len(self.ports.failures)
        have = "1 guest port" if number == 1 else f"{number} guest ports"
        return f"{have} cannot be opened, retrying: see the service's log, or run `forewarn doctor VM`"

    def port_problem(self, scope: str, vm: Vm) -> str | None:
        """Return why a VM has no port of its own; None if no reason is known."""
        if self.ports is None:
            return None
        return self.ports.failures.get(f"{scope}/{vm.name}", self.ports.failures.get(ALL))

    @property
    def counters(self) -> Counters:
        """The counters of the endpoint."""
        return self.server.counters

    @property
    def link_local_url(self) -> str | None:
        """The URL that all those networks share."""
        return f"http://{ADDRESS}" if self.networks else None


@asynccontextmanager
async def serve_guests(
    settings: Settings,
    fleet: GuestFleet,
    reporter: StartupReporter,
    *,
    operator_port: int,
    operator_connections: int = 0,
    faults: Faults | None = None,
    observer: Observer | None = None,
    recorder: RequestRecorder | None = None,
    socket_directory: Path | None = None,
    host: str | None = None,
) -> AsyncIterator[GuestListeners]:
    """Listen for guests as the settings define, and in a socket directory if there is one.

    With a `host`, only its VMs have ports.
    """
    server = GuestServer(
        fleet,
        limits=Limits(
            requests_per_second=settings.guest.requests_per_second, reserved_files=SPARE_FILES + operator_connections
        ),
        unsupported_version_status=settings.guest.unsupported_version_status,
        enable_delay=settings.guest.enable_delay,
        faults=faults,
        observer=observer,
        recorder=recorder,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        ports = None
        if settings.listen is not None:
            _report_kept_ports(fleet, settings.listen, reporter)
            address = settings.listen
            ports = VmPortListeners(fleet, server, address.host, address.port, operator_port, vms_on=host)
            await stack.enter_async_context(ports.serve())
        shared_url = None
        if settings.listen_shared is not None:
            shared_url = await _listen_shared(server, settings.listen_shared)
        networks: dict[str, str] = {}
        for where in settings.listen_link_local:
            network = where.network or settings.network
            await stack.enter_async_context(link_local_address(where.interface))
            await _listen_link_local(server, network, where.interface)
            networks[network] = where.interface
        sockets = None
        if socket_directory is not None:
            sockets = VmSocketListeners(fleet.replica, server, socket_directory)
            await sockets.reopen()
        if ports is None and shared_url is None and not networks:
            reporter.report("No VM can reach the endpoint: set listen_link_local to the VMs' interface, or set listen.")
        guests = GuestListeners(
            server=server,
            ports=ports,
            networks=networks,
            shared_url=shared_url,
            faults=faults,
            sockets=sockets,
            recorder=recorder,
        )
        fleet.health.add_check(guests.problem)
        fleet.health.add_limitation(guests.limitation)
        yield guests


def _report_kept_ports(fleet: GuestFleet, listen: ListenAddress, reporter: StartupReporter) -> None:
    first = min(fleet.ports.assigned.values(), default=0)
    if first and listen.port not in (0, first):
        reporter.report(f"Existing VMs keep their ports, from {first} on; {listen} applies to new VMs.")


async def _listen_shared(server: GuestServer, where: ListenAddress) -> str:
    """Listen on one port for all VMs, and return its URL on this machine."""
    try:
        port = await server.listen_for_all(where.host, where.port)
    except OSError as error:
        advice = "choose another address with --listen-shared HOST:PORT (port 0: any free port)"
        raise ListenFailed(where.host, where.port, "all VMs", error, advice) from error
    return f"http://{local_address(where.host, port)}"


async def _listen_link_local(server: GuestServer, network: str, interface: str) -> None:
    try:
        await server.listen_by_address(network, ADDRESS, PORT, interface=interface)
    except OSError as error:
        advice = "omit --listen-link-local"
        raise ListenFailed(ADDRESS, PORT, f"the VMs of network {network}", error, advice) from error
