"""How fast a change reaches guests of other processes in a cluster, and how fast the cluster goes on after a crash."""

import asyncio
import json
import re
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from socket import create_connection, socket
from statistics import median
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench.cluster import run_processes, settings_of
from bench.figures import percentile, rounded
from bench.guest_client import RECEIVE_BYTES, long_poll_query, parse_response, post, send_request
from bench.modes import ModeResults
from bench.process import TIMEOUT
from bench.result import BenchmarkResult
from bench.workspace import Workspace
from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.core.event import EventType
from forewarn.store.nats.connection import NatsConnection, NatsError
from forewarn.store.nats.message import TTL
from forewarn.store.nats.stream import CellStream
from tests.support.cluster import ClusterNode, ClusterProcesses

VISIBLE_MILLISECONDS = 30.0
STARTED_MILLISECONDS = 60.0
TAKEOVER_SECONDS = 13.0
AFTER_ELECTION_SECONDS = 1.0
PAUSE_SECONDS = 0.02
"""The pause between two attempts after a crash."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How many events, each in a scope of its own."""

    events: int = 300


class CrashSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many crashes."""

    rounds: int = 5


FULL, QUICK = Size(), Size(events=20)
FULL_CRASHES, QUICK_CRASHES = CrashSize(), CrashSize(rounds=1)


def measure_schedule(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure from the request of an operator until a guest of another process has read the event."""
    found = ModeResults(lambda mode: _run_events(workspace, size.events, mode, _announce))
    return _latency_result(
        "cluster: `POST /v1/events` sent → event visible to a guest of another process",
        found,
        VISIBLE_MILLISECONDS,
        f"{size.events} events one after the other; the guest holds a `wait` request at its host",
    )


def measure_approval(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure from the approval of a guest until a guest of another host has read that the event has started."""
    found = ModeResults(lambda mode: _run_events(workspace, size.events, mode, _approve))
    return _latency_result(
        "cluster: approval sent → Started visible to a guest of another host",
        found,
        STARTED_MILLISECONDS,
        f"{size.events} events one after the other, each in a scope with a VM on both hosts",
    )


def _latency_result(what: str, found: ModeResults[list[float]], target: float, note: str) -> BenchmarkResult:
    return BenchmarkResult(
        what=what,
        measured=found.describe(lambda values: f"p99 {percentile(values, 99):.1f} ms (median {median(values):.1f} ms)"),
        target=f"p99 ≤ {target:.0f} ms",
        met=found.all(lambda values: percentile(values, 99) <= target),
        figures=found.figures(
            ms=lambda values: rounded(values, 2), p99_ms=lambda values: round(percentile(values, 99), 2)
        ),
        note=f"{note}; three NATS servers, two control nodes and two hosts here; synced: `sync_interval: always`",
    )


def _fleet(scopes: int) -> str:
    """Return scopes with a VM on each of two hosts."""
    vms = '[{{ name = "s{n}-0", host = "hv-0" }}, {{ name = "s{n}-1", host = "hv-1", update_domain = 1 }}]'
    return "".join(
        f'[[scopes]]\nname = "s{n}"\nkind = "availability-set"\nvms = {vms.format(n=n)}\n' for n in range(scopes)
    )


T = TypeVar("T")
Step = Callable[[ApiClient, int, dict[str, str]], float]


def _run_events(workspace: Workspace, events: int, mode: str, step: Step) -> list[float]:
    """Return the milliseconds of each event."""
    with run_processes(workspace, _fleet(events), mode=mode) as cluster:
        api = cluster.api(cluster.controls[0])
        urls = _guest_urls(api, 2 * events)
        milliseconds = [step(api, number, urls) * 1e3 for number in range(events)]
    workspace.log(f"    {mode}: median {median(milliseconds):.1f} ms")
    return milliseconds


def _guest_urls(api: ApiClient, count: int) -> dict[str, str]:
    """Return the URL of each VM, when all are known."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        urls = {vm.name: vm.guest_url for vm in api.vms() if vm.guest_url is not None}
        if len(urls) == count:
            return urls
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(urls)} of {count} VMs have an endpoint")
        time.sleep(PAUSE_SECONDS)


def _connect(url: str) -> socket:
    parts = urlsplit(url)
    return create_connection((parts.hostname or "", parts.port or 0), TIMEOUT)


def _request(vm: str, notice: str = "1h") -> v1.ScheduleEvents:
    return v1.ScheduleEvents(type=EventType.REBOOT, vms=(vm,), notice=notice)


def _announce(api: ApiClient, number: int, urls: dict[str, str]) -> float:
    with _connect(urls[f"s{number}-1"]) as guest:
        _begin_waiting(guest)
        sent_at = time.monotonic()
        api.schedule(_request(f"s{number}/s{number}-0"))
        return _read(guest, b'"Scheduled"') - sent_at


def _approve(api: ApiClient, number: int, urls: dict[str, str]) -> float:
    with _connect(urls[f"s{number}-0"]) as approver, _connect(urls[f"s{number}-1"]) as guest:
        event = api.schedule(_request(f"s{number}/s{number}-0")).events[0].id
        for one in (approver, guest):
            _wait_for_event(one, event)
        _begin_waiting(guest)
        sent_at = time.monotonic()
        approver.sendall(post(json.dumps({"StartRequests": [{"EventId": event}]}).encode()))
        return _read(guest, b'"Started"') - sent_at


def _wait_for_event(guest: socket, event: str) -> None:
    while event.encode() not in send_request(guest).body:
        time.sleep(PAUSE_SECONDS)


def _begin_waiting(guest: socket) -> None:
    """Send a long poll. The pause lets the host begin to hold it, and is not measured."""
    guest.sendall(long_poll_query(send_request(guest).header("etag")))
    time.sleep(PAUSE_SECONDS)


def _read(guest: socket, expected: bytes) -> float:
    """Return when the response has arrived, which must have a text."""
    received = b""
    while parse_response(received) is None:
        readable, _, _ = select.select([guest], [], [], TIMEOUT)
        if not readable or not (some := guest.recv(RECEIVE_BYTES)):
            raise ConnectionError(f"no whole answer: {received!r}")
        received += some
    if expected not in received:
        raise ValueError(f"the guest got an unexpected response: {received!r}")
    return time.monotonic()


def measure_takeover(workspace: Workspace, size: CrashSize = FULL_CRASHES) -> BenchmarkResult:
    """Kill the control node that holds the lease, and measure until an event that is due has started."""
    found = ModeResults(lambda mode: _run_crashes(workspace, size, mode, _take_over))
    return BenchmarkResult(
        what="cluster: lease holder killed → a due event has started",
        measured=found.describe(lambda seconds: f"{median(seconds):.1f} s (worst {max(seconds):.1f} s)"),
        target=f"≤ {TAKEOVER_SECONDS:.0f} s",
        met=found.all(lambda seconds: max(seconds) <= TAKEOVER_SECONDS),
        figures=found.figures(seconds=lambda seconds: rounded(seconds, 2)),
        note=f"{size.rounds} kills with SIGKILL in each mode; the event becomes due a second after the kill",
    )


def _run_crashes(
    workspace: Workspace, size: CrashSize, mode: str, crash: Callable[[Workspace, ClusterProcesses, int], T]
) -> list[T]:
    """Return what was found at each crash."""
    with run_processes(workspace, _fleet(size.rounds), mode=mode) as cluster:
        return [crash(workspace, cluster, number) for number in range(size.rounds)]


def _take_over(workspace: Workspace, cluster: ClusterProcesses, number: int) -> float:
    holder = max(cluster.controls, key=_term)
    other = next(node for node in cluster.controls if node is not holder)
    api = cluster.api(other)
    event = api.schedule(_request(f"s{number}/s{number}-0", "2s")).events[0].id
    time.sleep(1)  # so that the event is due after the kill, and not before it
    holder.process.process.kill()
    killed_at = time.monotonic()
    deadline = killed_at + TIMEOUT
    while (found := api.event(event).event) is not None and found.started_at is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"event {event} has not started")
        time.sleep(PAUSE_SECONDS)
    seconds = time.monotonic() - killed_at
    workspace.log(f"    {seconds:.1f} s")
    holder.process.wait_for_exit()
    holder.start()
    return seconds


def _term(node: ClusterNode) -> int:
    """Return the last term of the clock that a process has had, by its log."""
    found = re.findall(r"this process holds the lease clock, term (\d+)", node.process.text)
    return max(map(int, found), default=0)


class Election(NamedTuple):
    """How many seconds after the kill NATS accepts a write, and an operator's change is accepted."""

    write: float
    change: float

    @property
    def difference(self) -> float:
        """How much later the operator's change is."""
        return self.change - self.write


def measure_election(workspace: Workspace, size: CrashSize = FULL_CRASHES) -> BenchmarkResult:
    """Kill the stream's leader, and compare the first write that NATS accepts with the first change of an operator."""
    found = ModeResults(lambda mode: _run_crashes(workspace, size, mode, _elect))
    return BenchmarkResult(
        what="cluster: stream leader killed → first change, after NATS's own election",
        measured=found.describe(_describe_elections),
        target=f"≤ {AFTER_ELECTION_SECONDS:.0f} s",
        met=found.all(lambda runs: max(run.difference for run in runs) <= AFTER_ELECTION_SECONDS),
        figures=found.figures(
            seconds=lambda runs: rounded((run.difference for run in runs), 3),
            election_seconds=lambda runs: rounded((run.write for run in runs), 2),
        ),
        note=(
            f"{size.rounds} kills in each mode; a plain client writes to the stream every {PAUSE_SECONDS * 1e3:.0f} ms "
            f"and an operator schedules an event at the same time; both count from the kill"
        ),
    )


def _describe_elections(runs: list[Election]) -> str:
    later = [run.difference for run in runs]
    return f"{median(later):+.2f} s (worst {max(later):+.2f}; election {median(run.write for run in runs):.1f} s)"


def _elect(workspace: Workspace, cluster: ClusterProcesses, number: int) -> Election:
    api = cluster.api(cluster.controls[0])
    name = cluster.leader()
    leader = next(server for server in cluster.nats.servers if server.name == name)
    is_connected = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        killed_at: list[float] = []
        probing = pool.submit(lambda: uvloop.run(_probe(cluster, is_connected, killed_at)))
        is_connected.wait(TIMEOUT)
        leader.kill()
        killed_at.append(time.monotonic())
        key = f"election-{number}"
        while True:
            try:
                api.schedule(_request(f"s{number}/s{number}-0"), key=key)
                break
            except ApiError:
                if time.monotonic() > killed_at[0] + TIMEOUT:
                    raise
                time.sleep(PAUSE_SECONDS)
        change = time.monotonic() - killed_at[0]
        election = probing.result(TIMEOUT)
    workspace.log(f"    election {election:.2f} s, first change {change:.2f} s")
    cluster.nats.start(leader)
    _wait_until_current(cluster)
    return Election(election, change)


async def _probe(cluster: ClusterProcesses, is_connected: threading.Event, killed_at: list[float]) -> float:
    """Write to the stream until the first write after the kill is accepted; return the seconds since the kill."""
    settings = settings_of(cluster, cluster.controls[0])
    connection = await NatsConnection.open(settings)
    stream = CellStream(connection, settings.cell)
    try:
        is_connected.set()
        while True:
            sent_at = time.monotonic()
            with suppress(NatsError, TimeoutError):
                async with asyncio.timeout(0.25):
                    await stream.publish(stream.subjects.guards, b"", {TTL: "1s"})
                if killed_at and sent_at > killed_at[0]:
                    return time.monotonic() - killed_at[0]
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await connection.aclose()


def _wait_until_current(cluster: ClusterProcesses) -> None:
    """Return when all servers have everything."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        status = json.loads(cluster.run(cluster.controls[0], "cluster", "status", "-o", "json"))
        if len(status["replicas"]) == len(cluster.nats.servers) and all(
            replica["is_current"] for replica in status["replicas"]
        ):
            return
        if time.monotonic() > deadline:
            raise TimeoutError("a server did not catch up")
        time.sleep(PAUSE_SECONDS)
