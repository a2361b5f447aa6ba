"""The dashboard: time and size of pages of a large fleet, how soon a change is in the stream, and what streams cost."""

import http.client
import json
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from statistics import median
from threading import Event, Thread
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from bench import guest_client, nginx, wrk
from bench.figures import format_number, percentile, ratio_of_rounds, rounded
from bench.fleets import Shape, address_of, vm_name
from bench.guest_client import QUERY, TARGET
from bench.process import TIMEOUT, cpu_seconds
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import UNREACHED, ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_SECONDS = 0.3
TARGET_KILOBYTES = 300
TARGET_MILLISECONDS = 200.0
TARGET_RATIO = 0.9
TARGET_TIMELINE_SECONDS = 0.5
TARGET_TIMELINE_KILOBYTES = 2_000

EVENTS_PER_REQUEST = 500

PAGES = ("/ui/fleet", "/ui/fleet?view=hosts", "/ui/fleet?state=scheduled", "/ui/fleet?q=set-04999", "/ui")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet, number of requests of each page, and number of changes."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    requests: int = 20
    changes: int = 200


FULL = Size()
QUICK = Size(fleet=Shape(scopes=50, vms_each=20), requests=2, changes=5)


class TimelineSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of scopes, each with an event, and number of requests."""

    events: int = 5_000
    requests: int = 10


FULL_TIMELINE = TimelineSize()
QUICK_TIMELINE = TimelineSize(events=100, requests=2)


class StreamsSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of streams, and how long to measure."""

    streams: int = 50
    rounds: int = 5
    seconds: int = 3
    connections: int = 32
    seconds_per_change: float = 0.1


FULL_STREAMS = StreamsSize()
QUICK_STREAMS = StreamsSize(streams=5, rounds=1, seconds=1)


def measure_pages(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Request the largest pages, one after the other, of a fleet that polls and has events."""
    seconds: list[float] = []
    kilobytes: list[float] = []
    events = min(EVENTS_PER_REQUEST, size.fleet.scopes)
    with run_service_process(Task(data=str(workspace.fleet(size.fleet)))) as served:
        cookie = _sign_in(served)
        for scope in range(size.fleet.scopes):  # the state of each VM of a scope is computed once one has polled
            with closing(guest_client.connect(served.port, address_of(size.fleet, scope))) as guest:
                guest_client.send_request(guest, guest_client.CLOSING_QUERY)
        with closing(_connect(served)) as connection:
            _schedule(connection, served, [vm_name(number, 0) for number in range(events)])
            for page in PAGES:
                for _ in range(size.requests):
                    began_at = time.monotonic()
                    body = _get(connection, page, cookie)
                    seconds.append(time.monotonic() - began_at)
                    kilobytes.append(len(body) / 1000)
    worst, largest = max(seconds), max(kilobytes)
    return BenchmarkResult(
        what=f"a page of the dashboard, {size.fleet.vms:,} VMs",
        measured=f"{median(seconds) * 1e3:.0f} ms, {largest:.0f} kB (worst: {worst * 1e3:.0f} ms)",
        target=f"≤ {TARGET_SECONDS:g} s, ≤ {TARGET_KILOBYTES} kB",
        met=worst <= TARGET_SECONDS and largest <= TARGET_KILOBYTES,
        figures={"seconds": rounded(seconds, 4), "kilobytes": rounded(kilobytes, 1)},
        note=(
            f"{size.requests} requests each of {', '.join(PAGES)}; the first part of the fleet page; "
            f"a VM of each scope has polled, {events} events are open"
        ),
    )


def measure_timeline(workspace: Workspace, size: TimelineSize = FULL_TIMELINE) -> BenchmarkResult:
    """Request the timeline with an event in every scope; the browser test reports the times of its frames."""
    seconds: list[float] = []
    kilobytes: list[float] = []
    data = workspace.fleet(Shape(scopes=size.events, vms_each=1))
    with run_service_process(Task(data=str(data))) as served, closing(_connect(served)) as connection:
        for first in range(0, size.events, EVENTS_PER_REQUEST):
            numbers = range(first, min(first + EVENTS_PER_REQUEST, size.events))
            _schedule(connection, served, [vm_name(number, 0) for number in numbers])
        cookie = _sign_in(served)
        for _ in range(size.requests):
            began_at = time.monotonic()
            body = _get(connection, "/ui/timeline", cookie)
            seconds.append(time.monotonic() - began_at)
            kilobytes.append(len(body) / 1000)
    worst, largest = max(seconds), max(kilobytes)
    return BenchmarkResult(
        what=f"the timeline of the dashboard, {size.events:,} events",
        measured=f"{median(seconds) * 1e3:.0f} ms, {largest:.0f} kB (worst: {worst * 1e3:.0f} ms)",
        target=f"≤ {TARGET_TIMELINE_SECONDS:g} s, ≤ {TARGET_TIMELINE_KILOBYTES:,} kB",
        met=worst <= TARGET_TIMELINE_SECONDS and largest <= TARGET_TIMELINE_KILOBYTES,
        figures={"seconds": rounded(seconds, 4), "kilobytes": rounded(kilobytes, 1)},
        note=f"{size.requests} requests; an event in each of {size.events:,} scopes; SQLite on disk",
    )


def _schedule(connection: http.client.HTTPConnection, served: ServiceProcess, vms: list[str]) -> None:
    """Schedule an event of each VM."""
    body = json.dumps({"type": "Reboot", "vms": vms, "notice": "1h", "unannounced": True})
    connection.request("POST", "/v1/events", body, {"Authorization": f"Bearer {served.token}"})
    response = connection.getresponse()
    if (response.read(), response.status)[1] != http.client.CREATED:
        raise ValueError(f"the operator API has refused the events: {response.status}")


def measure_stream(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Schedule events one after the other, and measure the time until each is in the stream of a browser."""
    milliseconds: list[float] = []
    with run_service_process(Task(data=str(workspace.fleet(size.fleet)))) as served:
        cookie = _sign_in(served)
        with closing(_connect(served)) as following, closing(_connect(served)) as operator:
            following.request("GET", "/ui/stream", headers={"Cookie": cookie})
            stream = following.getresponse()
            for number in range(size.changes):
                body = json.dumps({"type": "Reboot", "vms": [vm_name(number, 0)], "notice": "1h", "unannounced": True})
                began_at = time.monotonic()
                operator.request("POST", "/v1/events", body, {"Authorization": f"Bearer {served.token}"})
                while b'"action":"scheduled"' not in stream.readline():
                    pass
                milliseconds.append((time.monotonic() - began_at) * 1e3)
                response = operator.getresponse()
                if (response.read(), response.status)[1] != http.client.CREATED:
                    raise ValueError(f"the operator API has refused the event: {response.status}")
    p99 = percentile(milliseconds, 99)
    return BenchmarkResult(
        what=f"`POST /v1/events` sent → entry in the dashboard's stream, {size.fleet.vms:,} VMs",
        measured=f"p99 {p99:.1f} ms (median {median(milliseconds):.1f} ms)",
        target=f"p99 ≤ {TARGET_MILLISECONDS:.0f} ms",
        met=p99 <= TARGET_MILLISECONDS,
        figures={"p99_ms": round(p99, 2), "ms": rounded(milliseconds, 2)},
        note=f"{size.changes} events one after the other, each in a scope of its own; SQLite on disk",
    )


def measure_open_streams(workspace: Workspace, size: StreamsSize = FULL_STREAMS) -> BenchmarkResult:
    """Measure guests without and with open streams in turn, while an operator holds and releases the fleet."""
    alone: list[GuestRun] = []
    beside: list[GuestRun] = []
    task = Task(data=str(workspace.fleet(Shape(scopes=1, vms_each=1))), requests_per_second=UNREACHED)
    with run_service_process(task) as served:
        cookie = _sign_in(served)
        answer_bytes = nginx.sample(served.port, QUERY).size
        for _ in range(size.rounds):
            with _change(served, size.seconds_per_change):
                alone.append(_poll(served, size, answer_bytes))
            with _change(served, size.seconds_per_change), _follow(served, cookie, size.streams) as received:
                beside.append(_poll(served, size, answer_bytes))
            if min(received) == 0:
                raise ValueError("a stream has received nothing")
    rates = [[run.per_second for run in runs] for runs in (beside, alone)]
    costs = [[run.microseconds_each for run in runs] for runs in (beside, alone)]
    ratio = ratio_of_rounds(*rates)
    return BenchmarkResult(
        what=f"GET/s beside {size.streams} open streams of the dashboard, against GET/s without",
        measured=f"{ratio:.2f} × ({format_number(median(rates[0]))}/s : {format_number(median(rates[1]))}/s)",
        target=f"≥ {TARGET_RATIO} ×",
        met=ratio >= TARGET_RATIO,
        figures={
            "ratio": round(ratio, 3),
            "beside_per_second": rounded(rates[0]),
            "alone_per_second": rounded(rates[1]),
            "beside_processor_microseconds": rounded(costs[0], 2),
            "alone_processor_microseconds": rounded(costs[1], 2),
        },
        note=(
            f"wrk -t1 -c{size.connections} -d{size.seconds}s with and without streams in turn, median of {size.rounds} "
            f"rounds' ratios; an entry of the journal every {size.seconds_per_change:g} s, in every stream"
        ),
    )


class GuestRun(NamedTuple):
    """One run of wrk: responses per second, and processor time of the service per response, with all that it did."""

    per_second: float
    microseconds_each: float


def _poll(served: ServiceProcess, size: StreamsSize, answer_bytes: int) -> GuestRun:
    before = cpu_seconds(served.pid)
    command = wrk.command(served.port, connections=size.connections, seconds=size.seconds, target=TARGET)
    summary = wrk.run(command)
    wrk.check(summary, answer_bytes=answer_bytes, connections=size.connections)
    return GuestRun(summary.per_second, (cpu_seconds(served.pid) - before) / summary.requests * 1e6)


@contextmanager
def _change(served: ServiceProcess, seconds: float) -> Iterator[None]:
    """Hold and release the fleet again and again: entries of the journal that guests do not see."""
    ended = Event()

    def run() -> None:
        with closing(_connect(served)) as operator:
            path = "/v1/holds"
            while not ended.wait(seconds):
                body = json.dumps({"reason": "bench"})
                operator.request("POST", path, body, {"Authorization": f"Bearer {served.token}"})
                operator.getresponse().read()
                path = "/v1/holds/release" if path == "/v1/holds" else "/v1/holds"

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _follow(served: ServiceProcess, cookie: str, count: int) -> Iterator[list[int]]:
    """Open streams and read them in a thread; yield how many bytes each has received so far."""
    received = [0] * count
    ended = Event()
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(_connect(served))) for _ in range(count)]
        sockets = {}
        for place, connection in enumerate(connections):
            connection.request("GET", "/ui/stream", headers={"Cookie": cookie})
            sockets[connection.sock] = place
            if (status := connection.getresponse().status) != http.client.OK:
                raise ValueError(f"stream {place} was answered with {status}")

        def run() -> None:
            while not ended.is_set():
                for ready in select.select(sockets, [], [], 0.1)[0]:
                    some = ready.recv(65536)
                    received[sockets[ready]] += len(some)
                    if not some:
                        del sockets[ready]  # the service has closed the stream

        thread = Thread(target=run)
        thread.start()
        try:
            yield received
        finally:
            ended.set()
            thread.join()


def _connect(served: ServiceProcess) -> http.client.HTTPConnection:
    address = urlsplit(served.operator_url)
    return http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT)


def _sign_in(served: ServiceProcess) -> str:
    """Sign in with the token of the service, and return the cookie."""
    with closing(_connect(served)) as connection:
        connection.request("POST", "/ui/sign-in", urlencode({"token": served.token}))
        response = connection.getresponse()
        response.read()
        return (response.getheader("set-cookie") or "").partition(";")[0]


def _get(connection: http.client.HTTPConnection, page: str, cookie: str) -> bytes:
    connection.request("GET", page, headers={"Cookie": cookie})
    response = connection.getresponse()
    body = response.read()
    if response.status != http.client.OK:
        raise ValueError(f"{page} was answered with {response.status}")
    return body
