"""The operator API on a real socket, with the demonstration fleet and a manual clock."""

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.fleet_file import CreationContext, demonstration_fleet, read_fleet_file
from forewarn.clock import Clock, ManualClock
from forewarn.core.access import Role
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.vm import Vm
from forewarn.fleet.importer import fill_fleet
from forewarn.fleet.service import Fleet
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.recorder import RequestRecorder
from forewarn.operator.app import create_sessions, operator_app
from forewarn.operator.counters import Counters as OperatorCounters
from forewarn.operator.http_server import run_server
from forewarn.operator.sessions import Sessions
from forewarn.operator.state import SocketControl
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, JournalRow, SnapshotEnd, WatchItem
from forewarn.wire.preview import ResponsePreview

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
TOKEN = "a-token-for-tests"
GUARD = 60

T = TypeVar("T")


class ApiResponse(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The stable code of a refusal."""
        code: str = self.json["error"]["code"]
        return code


class RunningApi(msgspec.Struct, frozen=True):
    """A running operator API."""

    fleet: Fleet
    store: MemoryStore
    platform: SimulatedPlatform
    port: int
    sessions: Sessions

    @property
    def url(self) -> str:
        """The URL."""
        return f"http://127.0.0.1:{self.port}"

    async def stored_state(self) -> tuple[list[WatchItem], list[JournalRow]]:
        """Return the whole content of the store."""
        records: list[WatchItem] = []
        async with self.store.watch() as changes:
            async for change in changes:
                if isinstance(change, SnapshotEnd):
                    break
                records.append(change)
        return records, await self.store.journal(JournalQuery(limit=10_000))

    async def token(self, name: str, role: Role, *scopes: str, expires_at: datetime | None = None) -> str:
        """Create a token and return its secret."""
        _, secret = await self.fleet.tokens.create(name, role, scopes, by="test", expires_at=expires_at)
        return secret

    async def client(self, use: Callable[[ApiClient], T]) -> T:
        """Call the blocking client in a thread."""
        return await asyncio.to_thread(use, ApiClient(self.url, TOKEN))

    async def request(
        self, method: str, path: str, body: object = None, *, token: str | None = TOKEN, **headers: str
    ) -> ApiResponse:
        """Send a request; bytes are sent unchanged, other values as JSON."""
        content = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return await asyncio.to_thread(self._request, method, path, content, sent)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes, and return the response, or everything until the connection closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        async with asyncio.timeout(GUARD):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return head

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> ApiResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return ApiResponse(answer.status, names, answer.read())
        finally:
            connection.close()


class FakeGuests:
    """Guest endpoints with a host name per VM."""

    networks: Mapping[str, str] = {}
    ports: str | None = "a name for each"
    shared_url: str | None = None
    counters = Counters()
    faults: Faults | None = None
    sockets: SocketControl | None = None
    recorder: RequestRecorder | None = None

    response: ResponsePreview | None = None

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL."""
        return f"http://{scope}.{vm.name}"

    def preview(self, scope: str, vm: Vm) -> ResponsePreview | None:
        """Return the given response."""
        return self.response

    def port_problem(self, scope: str, vm: Vm) -> str | None:
        """Return that no reason is known."""
        del scope, vm
        return None


@asynccontextmanager
async def run_api(
    *,
    fleet_file: str | None = None,
    clock: Clock | None = None,
    policy: Policy = EMULATOR,
    store: MemoryStore | None = None,
    guests: FakeGuests | None = None,
    emulates: bool = True,
    port: int = 0,
) -> AsyncIterator[RunningApi]:
    """Serve the operator API while the context is open."""
    clock = clock or ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    birth = CreationContext(clock.now(), lambda: "e1")
    scopes = demonstration_fleet(birth) if fleet_file is None else read_fleet_file(fleet_file, file="", context=birth)
    store = store or MemoryStore()
    setting = policy.speed if emulates else None
    async with Fleet.run(store=store, platform=platform, clock=clock, policy=policy, speed_setting=setting) as fleet:
        await fill_fleet(fleet, scopes, by="test", on_saved=lambda _: None)
        with socket.create_server(("127.0.0.1", port)) as listener:
            await fleet.tokens.adopt(TOKEN, by="test")
            guests = guests or FakeGuests()
            guests.faults = Faults(fleet) if emulates else None
            counters = OperatorCounters()
            sessions = create_sessions(fleet)
            app = operator_app(fleet, guests=guests, counters=counters, sessions=sessions)
            async with run_server(app, listener, counters=counters):
                try:
                    yield RunningApi(fleet, store, platform, listener.getsockname()[1], sessions)
                finally:
                    fleet.journal.close()
                    fleet.cancel_tasks()


async def schedule_event(service: RunningApi, type_: str, *vms: str, **more: object) -> str:
    """Schedule one event and return its id."""
    reply = await service.request("POST", "/v1/events", {"type": type_, "vms": list(vms)} | more)
    assert reply.status == 201, reply.json
    (made,) = reply.json["created"]
    id_: str = made["id"]
    return id_


async def event_detail(service: RunningApi, event: str) -> v1.EventDetail:
    """Return the detail of an event."""
    return await service.client(lambda api: api.event(event))


def timeline_lines(timeline: list[v1.JournalEntry]) -> list[tuple[EntryKind, str]]:
    """Return action and actor of each entry."""
    return [(entry.action, entry.actor) for entry in timeline]
