"""Time from an operator's `POST /v1/events` until the guest sees the event, in a large fleet."""

import json
import select
import time
from socket import socket
from statistics import median
from urllib.parse import urlsplit

import msgspec

from bench.figures import percentile, rounded
from bench.fleets import Shape, address_of, vm_name
from bench.guest_client import (
    HOST,
    RECEIVE_BYTES,
    connect,
    long_poll_query,
    parse_response,
    send_request,
)
from bench.process import TIMEOUT
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_MILLISECONDS = 10.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet, and number of events, each in a different scope."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    events: int = 500


FULL = Size()
QUICK = Size(fleet=Shape(scopes=50, vms_each=20), events=20)


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Start a long poll of a VM, schedule an event for it, and measure the time until the VM has read it."""
    with run_service_process(Task(data=str(workspace.fleet(size.fleet)))) as served:
        milliseconds = [_announce(served, size.fleet, scope) * 1e3 for scope in range(size.events)]
    p99 = percentile(milliseconds, 99)
    return BenchmarkResult(
        what=f"`POST /v1/events` sent → event visible to the guest, {size.fleet.vms:,} VMs",
        measured=f"p99 {p99:.1f} ms (median {median(milliseconds):.1f} ms)",
        target=f"p99 ≤ {TARGET_MILLISECONDS:.0f} ms",
        met=p99 <= TARGET_MILLISECONDS,
        figures={"p99_ms": round(p99, 2), "median_ms": round(median(milliseconds), 2), "ms": rounded(milliseconds, 2)},
        note=(
            f"{size.events} events one after the other, each in a scope of its own; the guest holds a `wait` request, "
            f"and the time ends when it has read the answer with the event; SQLite on disk, production limits"
        ),
    )


def _announce(served: ServiceProcess, fleet: Shape, scope: int) -> float:
    with connect(served.port, address_of(fleet, scope)) as guest, connect(_operator_port(served), HOST) as operator:
        etag = send_request(guest).header("etag")
        guest.sendall(long_poll_query(etag))
        served.wait_for_long_polls(1)
        request = _post_event(served, vm_name(scope, 0))
        sent_at = time.monotonic()
        operator.sendall(request)
        answer = _read_answer(guest)
        seen_at = time.monotonic()
        if b'"Reboot"' not in answer:
            raise ValueError(f"the guest got an unexpected response: {answer!r}")
        if not _read_answer(operator).startswith(b"HTTP/1.1 201"):
            raise ValueError("the operator API has refused the event")
    return seen_at - sent_at


def _operator_port(served: ServiceProcess) -> int:
    port = urlsplit(served.operator_url).port
    if port is None:
        raise ValueError(f"{served.operator_url} has no port")
    return port


def _post_event(served: ServiceProcess, vm: str) -> bytes:
    body = json.dumps({"type": "Reboot", "vms": [vm], "notice": "1h"}).encode()
    head = (
        f"POST /v1/events HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {served.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _read_answer(connection: socket) -> bytes:
    received = b""
    while parse_response(received) is None:
        readable, _, _ = select.select([connection], [], [], TIMEOUT)
        if not readable or not (some := connection.recv(RECEIVE_BYTES)):
            raise ConnectionError(f"no whole answer: {received!r}")
        received += some
    return received
