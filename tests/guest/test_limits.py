"""Limits of the guest endpoint: sizes, connections, timeouts, and peers that do not read."""

import resource
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.guest.limits import SPARE_FILES, Limits, connection_limit
from forewarn.wire.error_responses import ErrorReason
from tests.fleet.fleets import until
from tests.guest.running_endpoint import EVENTS, GET, UNLIMITED, approval, request, run_endpoint

# Size.


async def test_headers_over_16_kib_are_431_then_closed() -> None:
    """Also while the peer is still sending."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(GET + b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000)
        assert (await peer.read_response()).status == 200
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert await peer.is_closed()
        assert endpoint.counters.refusals[ErrorReason.HEADER_TOO_LARGE] == 1


async def test_body_over_64_kib_is_413_before_it_is_sent() -> None:
    """Because of its Content-Length; with `Expect`, instead of `100 Continue`."""
    async with run_endpoint() as endpoint:
        for headers in ([], [("Expect", "100-continue")]):
            peer = await endpoint.connect()
            answer = await peer.request(request("POST", EVENTS, *headers, ("Content-Length", str(64 * 1024 + 1))))
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert await peer.is_closed()


async def test_chunked_body_over_64_kib_is_413_and_the_peer_can_read_it() -> None:
    """The peer is still sending when it is refused: closing immediately would destroy the response in transit."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        peer.send(request("POST", EVENTS, ("Transfer-Encoding", "chunked")))
        for _ in range(1000):
            peer.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        answer = await peer.read_response()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await peer.is_closed()


async def test_body_of_64_kib_is_read() -> None:
    """It is refused because of its content, not because of its size."""
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        answer = await peer.post(approval() + b" " * (64 * 1024 - len(approval())))
        assert answer.status == 200
        assert (await peer.request()).status == 200


# Connections.


async def test_connection_over_the_limit_of_a_vm_is_503() -> None:
    """The other connections of the VM stay open, and other VMs are served."""
    async with run_endpoint(limits=msgspec.structs.replace(UNLIMITED, connections_per_vm=3)) as endpoint:
        peers = [await endpoint.connect("web/web-0") for _ in range(3)]
        surplus = await endpoint.connect("web/web-0")
        answer = await surplus.read_response()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert await surplus.is_closed()
        assert [(await peer.request()).status for peer in peers] == [200] * 3
        assert (await (await endpoint.connect("web/web-1")).request()).status == 200
        await peers[0].close()
        await until(lambda: endpoint.counters.connections == 3)
        assert (await (await endpoint.connect("web/web-0")).request()).status == 200
        assert endpoint.counters.refusals[ErrorReason.CONNECTIONS] == 1


async def test_connection_over_the_total_limit_is_503() -> None:
    """For any VM."""
    async with run_endpoint(limits=msgspec.structs.replace(UNLIMITED, connections=2)) as endpoint:
        peers = [await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")]
        await until(lambda: endpoint.counters.connections == 2)
        assert (await (await endpoint.connect("web/web-1")).read_response()).status == 503
        assert [(await peer.request()).status for peer in peers] == [200] * 2


def test_connections_are_limited_by_the_open_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some open files are reserved for everything else."""
    unlimited = resource.RLIM_INFINITY
    for files, asked, expected in [(1024, 32_768, 876), (1024, 10, 10), (64, 10, 1), (unlimited, 32_768, 32_768)]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connection_limit(Limits(connections=asked), listening=20) == expected


def test_open_files_of_operators_are_not_for_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert connection_limit(Limits(reserved_files=SPARE_FILES + 200), listening=20) == 676


async def test_listeners_reduce_the_connection_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not use the open files that are reserved for the store."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (SPARE_FILES + 4, SPARE_FILES + 4))
    async with run_endpoint() as endpoint:
        peers = [await endpoint.connect("web/web-0"), await endpoint.connect("web/web-1")]
        assert [(await peer.request()).status for peer in peers] == [200] * 2
        assert (await (await endpoint.connect("web/web-0")).read_response()).status == 503
        endpoint.server.stop_listening("127.0.0.1", endpoint.ports["web/web-1"])
        await until(lambda: endpoint.counters.connections == 2)
        assert (await (await endpoint.connect("web/web-0")).request()).status == 200


# The limits themselves.


@pytest.mark.parametrize("wrong", [{"header_bytes": 0}, {"requests_per_second": 0}, {"idle_timeout": timedelta(0)}])
def test_non_positive_limits_are_refused(wrong: dict[str, object]) -> None:
    """With such limits, no request could be served."""
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type] # wrong on purpose
