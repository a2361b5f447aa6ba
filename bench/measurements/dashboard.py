"""The dashboard in a large fleet: time and size of the fleet page, and how soon a change is in the event stream."""

import http.client
import json
import time
from contextlib import closing
from statistics import median
from urllib.parse import urlencode, urlsplit

import msgspec

from bench.figures import percentile, rounded
from bench.fleets import Shape, vm_name
from bench.process import TIMEOUT
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_SECONDS = 0.3
TARGET_KILOBYTES = 300
TARGET_MILLISECONDS = 200.0

PAGES = ("/ui/fleet", "/ui/fleet?view=hosts", "/ui/fleet?state=scheduled", "/ui")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet, number of requests of each page, and number of changes."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    requests: int = 20
    changes: int = 200


FULL = Size()
QUICK = Size(fleet=Shape(scopes=50, vms_each=20), requests=2, changes=5)


def measure_pages(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Request the largest pages, one after the other."""
    seconds: list[float] = []
    kilobytes: list[float] = []
    with run_service_process(Task(data=str(workspace.fleet(size.fleet)))) as served:
        cookie = _sign_in(served)
        with closing(_connect(served)) as connection:
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
        note=f"{size.requests} requests each of {', '.join(PAGES)}; the first part of the fleet page",
    )


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
