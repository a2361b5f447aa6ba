"""Malicious and malformed requests are refused with a stable code."""

import asyncio

import pytest

from forewarn.operator.limits import ConnectionLimits
from tests.operator.running_api import TOKEN, run_api

BODIES = {
    "deeply nested list": b'{"type":' + b"[" * 100_000,
    "deeply nested object": b'{"type":' * 50_000,
    "deeply nested in an untyped field": b'{"tags":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    "invalid UTF-8": b'{"type":"\xff\xfe"}',
    "half a character": b'{"type":"Reboot","vms":["\\ud800"]}',
    "not JSON": b"type=Reboot",
    "number out of range": b'{"type":"Reboot","scope":"web","update_domain":1e400}',
    "null": b"null",
    "nothing": b"",
}


@pytest.mark.parametrize("case", BODIES)
async def test_undecodable_body_is_refused(case: str) -> None:
    async with run_api() as service:
        replies = [
            await service.request("POST", "/v1/events", BODIES[case]),
            await service.request("PATCH", "/v1/scopes/web", BODIES[case]),
        ]
    assert [(reply.status, reply.code) for reply in replies] == [(400, "invalid-request")] * 2


async def test_missing_body_is_reported() -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", b"")
    assert reply.json["error"]["message"] == "the request has no body; send JSON (see /openapi.json)"


DURATIONS = {
    '{"type":"Reboot","scope":"web","notice":"soon"}': "notice: 'soon' is not a duration: write it like",
    '{"type":"Reboot","scope":"web","notice":""}': "notice: '' is not a duration: write it like",
}
POLICIES = {
    '{"gap":"soon"}': "policy.gap: 'soon' is not a duration: write it like",
    '{"gap":"1"}': "policy.gap: '1' is not a duration: write it like",
    '{"gate":{"url":"http://h/","pause":"soon"}}': "policy.gate.pause: 'soon' is not a duration: write it like",
    '{"gap":90}': "Expected `str`, got `int` - at `$.policy.gap`",
    '{"windows":[{"start":"25:00","end":"04:00"}]}': "Expected `str` matching regex",
}


async def test_error_names_the_path_of_an_invalid_duration() -> None:
    campaign = '{"name":"k","type":"Reboot","selection":{"all":true},"policy":%s}'
    cases = [("/v1/events", body, message) for body, message in DURATIONS.items()]
    cases += [("/v1/campaigns/plan", campaign % body, message) for body, message in POLICIES.items()]
    async with run_api() as service:
        for path, body, message in cases:
            reply = await service.request("POST", path, body.encode())
            assert (reply.status, reply.code) == (400, "invalid-request")
            assert reply.json["error"]["message"].startswith(message)


async def test_error_names_the_path_of_an_invalid_campaign_value() -> None:
    body = b'{"name":"k","type":"Reboot","selection":{"all":true},"policy":{"gap":"40d"}}'
    async with run_api() as service:
        reply = await service.request("POST", "/v1/campaigns/plan", body)
    assert (reply.status, reply.code) == (422, "invalid-value")
    assert reply.json["error"]["message"] == "policy.gap: must be 0s to 30d, got 40d"


@pytest.mark.parametrize(
    ("host", "status"), [("a:b:c", b"400"), ("[", b"400"), ("[::1", b"400"), ("x:99999999", b"200")]
)
async def test_invalid_host_header_is_refused_and_never_an_internal_error(host: str, status: bytes) -> None:
    """RFC 9112 section 3.2 demands 400; its grammar does not limit a port."""
    lines = f"Host: {host}", f"Authorization: Bearer {TOKEN}", "Idempotency-Key: k1", "Content-Length: 2", "", "{}"
    async with run_api() as service:
        answer = await service.raw("\r\n".join(("POST /v1/holds/release HTTP/1.1", *lines)).encode())
        lost = await service.raw("\r\n".join((f"GET /v1/vms?x=1 HTTP/1.1\r\nHost: {host}", lines[1], "", "")).encode())
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert lost.startswith(b"HTTP/1.1 400 ")


async def test_repeated_parameter_is_refused() -> None:
    """With two scopes only one of them would be used."""
    async with run_api() as service:
        twice = await service.request("GET", "/v1/vms?scope=web&scope=shop")
        several = await service.request("GET", "/v1/journal?action=scheduled&action=started")
    assert (twice.status, twice.code, several.status) == (400, "invalid-request", 200)
    assert twice.json["error"]["message"] == "query parameter scope given more than once"


NO_HTTP = {
    "TLS": b"\x16\x03\x01garbage\r\n\r\n",
    "two lengths": b"POST /v1/holds HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "blank in a name": b"GET /v1/me HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer x\r\n\r\n",
    "endless head": b"GET /v1/me HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000,
}


@pytest.mark.parametrize("case", NO_HTTP)
async def test_invalid_http_is_refused(case: str) -> None:
    async with run_api() as service:
        head = await service.raw(NO_HTTP[case])
    assert head.startswith(b"HTTP/1.1 431 " if case == "endless head" else b"HTTP/1.1 400 ")
    assert b"content-type: application/json\r\n" in head


async def test_too_many_connections_are_refused_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.operator.http_server.ConnectionLimits", lambda: ConnectionLimits(total=1))
    async with run_api() as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        refused = await service.request("GET", "/healthz")
        writer.close()
        await writer.wait_closed()
    assert (refused.status, refused.code) == (503, "too-many-connections")
