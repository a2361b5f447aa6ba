"""A guest endpoint on a small fleet whose ticks the test triggers, and raw HTTP connections to it."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, NamedTuple, cast

import msgspec

from forewarn.clock import Clock
from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster, Vm
from forewarn.fleet.service import Fleet
from forewarn.guest.connection import Connection
from forewarn.guest.connection_state import ConnectionState
from forewarn.guest.faults import Faults
from forewarn.guest.limits import Limits
from forewarn.guest.observer import Observer
from forewarn.guest.recorder import RequestRecorder
from forewarn.guest.server import GuestServer
from forewarn.store.port import Store
from forewarn.wire.protocol import NEWEST_VERSION
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import run_fleet

EVENTS = f"/metadata/scheduledevents?api-version={NEWEST_VERSION}"
METADATA = ("Metadata", "true")
UNLIMITED = Limits(requests_per_second=None)
GUARD = 60
"""Seconds after which a hanging test fails. No test measures time with it."""


class Response(NamedTuple):
    """A received response."""

    status: int
    headers: dict[str, str]
    body: bytes
    version: str

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def request(
    method: str = "GET",
    target: str = EVENTS,
    *headers: tuple[str, str],
    body: bytes | None = None,
    version: str = "1.1",
    metadata: bool = True,
) -> bytes:
    """Return the bytes of a request; a body gets a Content-Length."""
    lines = [("Host", "169.254.169.254"), *([METADATA] if metadata else []), *headers]
    if body is not None:
        lines.append(("Content-Length", str(len(body))))
    head = f"{method} {target} HTTP/{version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines)
    return head.encode("latin-1") + b"\r\n" + (body or b"")


def approval(*ids: str) -> bytes:
    return json.dumps({"StartRequests": [{"EventId": id_} for id_ in ids]}).encode()


GET = request()
EMPTY = b'{"DocumentIncarnation":1,"Events":[]}'
"""The document of a scope in which nothing has happened."""


class Peer:
    """The guest's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def request(self, data: bytes = GET) -> Response:
        """Send a request and read its response."""
        self.send(data)
        return await self.read_response()

    async def get(self, *headers: tuple[str, str], target: str = EVENTS) -> Response:
        return await self.request(request("GET", target, *headers))

    async def post(self, body: bytes, *headers: tuple[str, str], target: str = EVENTS) -> Response:
        return await self.request(request("POST", target, *headers, body=body))

    async def read_response(self, *, to_head: bool = False) -> Response:
        """Read the next response to its end, and not a byte more."""
        async with asyncio.timeout(GUARD):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            version, status, _ = status_line.split(" ", 2)
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            assert len(headers) == len(lines), f"duplicate header: {lines}"
            length = 0 if to_head else int(headers.get("content-length", "0"))
            return Response(int(status), headers, await self.reader.readexactly(length), version)

    async def read_until_close(self) -> bytes:
        """Read until the server closes, and return everything received."""
        async with asyncio.timeout(GUARD):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def is_closed(self) -> bool:
        """Wait until the server closes, and return whether it sent nothing more."""
        return await self.read_until_close() == b""

    def reset(self) -> None:
        """Reset the connection, so that the server does not take it for half-closed."""
        self.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionResetError, BrokenPipeError):
            await self.writer.wait_closed()


class RunningEndpoint:
    """A running endpoint, and the ports of its VMs."""

    def __init__(self, fleet: Fleet, server: GuestServer, faults: Faults) -> None:
        self.fleet = fleet
        self.server = server
        self.faults = faults
        self.counters = server.counters
        self.ports: dict[str, int] = {}
        self.peers: list[Peer] = []

    async def connect(self, vm_: str = "web/web-0") -> Peer:
        """Connect to the port of a VM."""
        if vm_ not in self.ports:
            self.ports[vm_] = await self.server.listen_for_vm(vm_, "127.0.0.1", 0)
            self.stop_ticks()
        return await self.connect_to(self.ports[vm_])

    async def connect_to(self, port: int, source: str | None = None) -> Peer:
        """Connect to any port, from any address of the loopback network."""
        local = (source, 0) if source else None
        return self._add_peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=local))

    async def connect_unix(self, path: str) -> Peer:
        return self._add_peer(*await asyncio.open_unix_connection(path))

    def _add_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer:
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]

    def stop_ticks(self) -> None:
        """Stop the automatic ticks."""
        ticker = self.server._tick_timer
        assert ticker is not None
        ticker.cancel()

    def tick_seconds(self, seconds: float) -> None:
        """Advance the endpoint by this many ticks of one second."""
        for _ in range(int(seconds)):
            self.server._state.tick()

    def connections(self) -> list[Connection]:
        """Return the server's ends of the connections."""
        return [cast("Connection", connection) for connection in self.server._state.connections]

    def connection_states(self) -> list[ConnectionState]:
        """Return the states of the connections."""
        return [connection._state for connection in self.connections()]

    async def change_roster(self, scope_id: str, vms: Iterable[Vm]) -> None:
        """Replace the VMs of a scope, as a change of the inventory does."""
        new = Roster(tuple(vms))
        await self.fleet.scopes.apply(scope_id, lambda old: Change(msgspec.structs.replace(old, roster=new), (), None))


@asynccontextmanager
async def run_endpoint(
    *scopes: Scope,
    limits: Limits = UNLIMITED,
    policy: Policy = EMULATOR,
    store: Store | None = None,
    clock: Clock | None = None,
    enable_delay: timedelta = timedelta(0),
    unsupported_version_status: int = 404,
    observer: Observer | None = None,
    recorder: RequestRecorder | None = None,
) -> AsyncIterator[RunningEndpoint]:
    """Serve these scopes; by default `web` with its six VMs."""
    some = scopes or (default_scope(),)
    async with run_fleet(*some, policy=policy, store=store, clock=clock) as fleet:
        faults = Faults(fleet)
        server = GuestServer(
            fleet,
            limits=limits,
            unsupported_version_status=unsupported_version_status,
            enable_delay=enable_delay,
            faults=faults,
            observer=observer,
            recorder=recorder,
        )
        endpoint = RunningEndpoint(fleet, server, faults)
        try:
            yield endpoint
        finally:
            for peer in endpoint.peers:
                await peer.close()
            await server.aclose()


def default_scope() -> Scope:
    """Return a scope with two VMs in two update domains."""
    return scope("web", vm("web-0", domain=0, ip="127.0.0.1"), vm("web-1", domain=1, ip="127.0.0.2"))


async def is_well(endpoint: RunningEndpoint) -> bool:
    """Return whether the server still works correctly."""
    answer = await (await endpoint.connect("web/web-1")).request()
    return answer.status == 200 and answer.body == EMPTY


async def reboot(endpoint: RunningEndpoint) -> str:
    """Announce a reboot of web-0 and return its id."""
    ((_, event),) = await endpoint.fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
    return event
