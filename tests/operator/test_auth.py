"""Every request needs a token, and each token is limited to its role and scopes."""

import asyncio
import base64
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from litestar import Litestar, get
from litestar.exceptions import ImproperlyConfiguredException
from litestar.routes import HTTPRoute

from forewarn.core.access import Role
from forewarn.operator import limits
from forewarn.operator.app import litestar_app
from forewarn.operator.auth import Permission, check_permissions_declared
from forewarn.operator.dashboard.session_middleware import is_dashboard_path
from tests.operator.running_api import GUARD, TOKEN, RunningApi, run_api

HEADERS = {
    "none": ({}, "token-required"),
    "wrong": ({"Authorization": "Bearer wrong"}, "invalid-token"),
    "not ASCII": ({"Authorization": "Bearer \xe9"}, "invalid-token"),
    "empty": ({"Authorization": "Bearer"}, "token-required"),
    "blank": ({"Authorization": ""}, "token-required"),
    "other scheme": ({"Authorization": f"Token {TOKEN}"}, "token-required"),
    "no password": ({"Authorization": "Basic " + base64.b64encode(b"admin").decode()}, "token-required"),
    "invalid base64": ({"Authorization": f"Basic {TOKEN}"}, "token-required"),
    "wrong password": ({"Authorization": "Basic " + base64.b64encode(b"admin:wrong").decode()}, "invalid-token"),
    "token as user": ({"Authorization": "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode()}, "token-required"),
}


@pytest.mark.parametrize("case", HEADERS)
async def test_request_without_a_valid_token_is_refused(case: str) -> None:
    headers, code = HEADERS[case]
    paths = ("/v1/vms", "/v1/clock", "/metrics", "/openapi.json", "/docs", "/nothing", "/healthz/", "/readyz/..")
    async with run_api() as service:
        replies = {path: await service.request("GET", path, token=None, **headers) for path in paths}
    assert {path: (reply.status, reply.code) for path, reply in replies.items()} == dict.fromkeys(paths, (401, code))


async def test_token_is_accepted_as_password_of_any_user() -> None:
    password = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    async with run_api() as service:
        reply = await service.request("GET", "/v1/me", token=None, Authorization=f"Basic {password}")
        asked = await service.raw(b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (reply.status, reply.json) == (200, {"name": "admin", "role": "admin", "scopes": []})
    assert b'www-authenticate: Basic realm="Forewarn' in asked


async def test_password_cannot_change_anything() -> None:
    """A browser sends stored passwords also with requests of foreign pages (CSRF)."""
    password = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    changes = [
        ("POST", "/v1/holds", {"reason": "x"}),
        ("PATCH", "/v1/vms/web-0", {}),
        ("DELETE", "/v1/vms/web-0", None),
    ]
    async with run_api() as service:
        before = await service.stored_state()
        replies = [
            await service.request(method, path, body, token=None, Authorization=f"Basic {password}")
            for method, path, body in changes
        ]
        after = await service.stored_state()
    answers = {(reply.status, reply.code, reply.headers["www-authenticate"]) for reply in replies}
    assert (answers, after == before) == ({(401, "token-required", "Bearer")}, True)


async def test_two_authorization_headers_are_refused() -> None:
    async with run_api() as service:
        raw = b"GET /v1/clock HTTP/1.1\r\nHost: x\r\n" + 2 * b"Authorization: Bearer a-token-for-tests\r\n" + b"\r\n"
        assert (await service.raw(raw)).startswith(b"HTTP/1.1 401 ")


async def test_health_needs_no_token() -> None:
    async with run_api() as service:
        replies = [await service.request("GET", path, token=None) for path in ("/healthz", "/readyz")]
    assert [reply.status for reply in replies] == [200, 200]
    assert (replies[0].json["status"], replies[1].json) == (
        "ok",
        {"ready": True, "problems": [], "clock_offset_seconds": None},
    )


async def test_health_supports_head() -> None:
    head = "{} /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with run_api() as service:
        whole, bare = [await _all_of(service.port, head.format(method).encode()) for method in ("GET", "HEAD")]
    assert bare.startswith(b"HTTP/1.1 200 ")
    assert (whole.count(b'"status":"ok"'), bare.endswith(b"\r\n\r\n")) == (1, True)


async def _all_of(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_revoked_and_expired_tokens_are_refused() -> None:
    async with run_api() as service:
        long_valid = await service.token("long", Role.VIEWER, expires_at=datetime.now(UTC) + timedelta(hours=1))
        revoked = await service.token("revoked", Role.VIEWER)
        before = await service.request("GET", "/v1/me", token=revoked)
        (id_,) = (token.id for token in service.fleet.tokens.all() if token.name == "revoked")
        await service.fleet.tokens.revoke(id_, by="test")
        after = await service.request("GET", "/v1/me", token=revoked)
        still = await service.request("GET", "/v1/me", token=long_valid)
    assert (before.status, after.status, after.code, still.status) == (200, 401, "invalid-token", 200)


ROLES: dict[str, tuple[Role | None, tuple[str, ...]]] = {
    "nobody": (None, ()),
    "viewer": (Role.VIEWER, ()),
    "operator": (Role.OPERATOR, ()),
    "admin": (Role.ADMIN, ()),
    "operator of web": (Role.OPERATOR, ("web",)),
    "admin of web": (Role.ADMIN, ("web", "we*")),
}

BODIES: dict[str, dict[str, object]] = {
    "/v1/scopes": {"id": "web", "kind": "standalone"},
    "/v1/vms": {"name": "!", "scope": "web"},
    "/v1/tokens": {"name": "!", "role": "viewer"},
    "/v1/clock/advance": {},
}
"""Request bodies that are refused only after the permission check."""


async def test_every_path_enforces_its_declared_role() -> None:
    """Check every path and method with every kind of token."""
    async with run_api() as service:
        tokens = {
            name: None if role is None else await service.token("a-" + name.replace(" ", "-"), role, *scopes)
            for name, (role, scopes) in ROLES.items()
        }
        wrong = []
        for path, method, need in declared():
            for name, token in tokens.items():
                role, scopes = ROLES[name]
                expected = _expected(need, role, scopes)
                seen = await _refusal(service, method, path, token)
                if (seen in (401, 403)) is not (expected in (401, 403)) or (
                    expected in (401, 403) and seen != expected
                ):
                    wrong.append((method, path, name, expected, seen))
    assert wrong == []


def declared() -> list[tuple[str, str, Permission]]:
    """Return every path of the API; tests/operator/dashboard has those of the dashboard."""
    api = (route for route in litestar_app().routes if not is_dashboard_path(route.path))
    routes = (route for route in api if isinstance(route, HTTPRoute))
    return [
        (route.path_format, method, handler.opt.get("need", Permission(Role.VIEWER)))
        for route in routes
        for handler in route.route_handlers
        for method in handler.http_methods
    ]


def _expected(need: Permission, role: Role | None, scopes: tuple[str, ...]) -> int:
    if need.role is None:
        return 200
    if role is None:
        return 401
    return 200 if role.includes(need.role) and not (need.all_scopes and scopes) else 403


async def _refusal(service: RunningApi, method: str, path: str, token: str | None) -> int:
    """Send a request for the scope `web` or for something that does not exist, and return the status."""
    filled = path.replace("{scope_id}", "web").replace("{vm}", "web/nothing").replace("{host}", "nowhere")
    filled = filled.replace("{token_id}", "nothing").replace("{event}", "nothing").replace("/{path}", "")
    body = b"" if method in ("GET", "DELETE", "OPTIONS") else msgspec.json.encode(BODIES.get(path, {"!": "!"}))
    head = f"{method} {filled} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    head += "" if token is None else f"Authorization: Bearer {token}\r\n"
    answer = await service.raw(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return int(answer.split(b" ", 2)[1])


async def test_every_handler_declares_its_permission() -> None:
    """A handler without a declared permission must not be accessible."""

    @get("/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(ImproperlyConfiguredException, match="does not declare the role"):
        check_permissions_declared(Litestar([forgotten], openapi_config=None).routes)


SCOPED: dict[str, tuple[str, str, object, int, str]] = {
    "own scope": ("GET", "/v1/scopes/web", None, 200, ""),
    "other scope": ("GET", "/v1/scopes/shop", None, 403, "scope-forbidden"),
    "scope that does not exist": ("GET", "/v1/scopes/nowhere", None, 403, "scope-forbidden"),
    "own VM": ("GET", "/v1/vms/web-0", None, 200, ""),
    "other VM": ("GET", "/v1/vms/shop/FrontEnd_IN_0", None, 403, "scope-forbidden"),
    "other VM by its bare name": ("GET", "/v1/vms/FrontEnd_IN_0", None, 404, "vm-not-found"),
    "VM that does not exist": ("GET", "/v1/vms/shop/nothing", None, 403, "scope-forbidden"),
    "VMs of another scope": ("GET", "/v1/vms?scope=shop", None, 403, "scope-forbidden"),
    "host of other scopes": ("GET", "/v1/hosts/hv-9", None, 404, "host-not-found"),
    "VM for another scope": ("POST", "/v1/vms", {"name": "x", "scope": "shop"}, 403, "scope-forbidden"),
    "standalone VM": ("POST", "/v1/vms", {"name": "x"}, 403, "scope-forbidden"),
    "standalone VM within the scopes": ("POST", "/v1/vms", {"name": "web-alone"}, 201, ""),
    "scope": ("POST", "/v1/scopes", {"id": "x", "kind": "standalone"}, 403, "scope-forbidden"),
    "change of another VM": ("PATCH", "/v1/vms/db-0/db-0", {"host": "hv-1"}, 403, "scope-forbidden"),
    "change of another scope": ("PATCH", "/v1/scopes/shop", {}, 403, "scope-forbidden"),
    "removal of another VM": ("DELETE", "/v1/vms/db-0/db-0", None, 403, "scope-forbidden"),
    "removal of another scope": ("DELETE", "/v1/scopes/shop", None, 403, "scope-forbidden"),
    "own change": ("PATCH", "/v1/vms/web-0", {"host": "hv-1"}, 200, ""),
    "doctor of another VM": ("GET", "/v1/diagnosis?vm=db-0/db-0", None, 403, "scope-forbidden"),
    "export": ("GET", "/v1/fleet", None, 403, "forbidden"),
    "import": ("POST", "/v1/fleet/import", b"", 403, "forbidden"),
    "tokens": ("GET", "/v1/tokens", None, 403, "forbidden"),
    "clock": ("POST", "/v1/clock/advance", {"by": "1m"}, 403, "forbidden"),
}


async def test_token_is_limited_to_its_scopes() -> None:
    answers = {}
    async with run_api() as service:
        token = await service.token("web-team", Role.OPERATOR, "web", "web-*")
        for case, (method, path, body, _, _) in SCOPED.items():
            before = await service.stored_state()
            reply = await service.request(method, path, body, token=token)
            answers[case] = (reply.status, reply.code if reply.status >= 400 else "")
            if method == "GET" or reply.status >= 400:
                assert await service.stored_state() == before, case
    assert answers == {case: (status, code) for case, (_, _, _, status, code) in SCOPED.items()}


async def test_lists_have_only_the_tokens_scopes() -> None:
    async with run_api() as service:
        token = await service.token("web-team", Role.VIEWER, "web")
        seen: dict[str, Any] = {
            what: (await service.request("GET", f"/v1/{what}", token=token)).json[what]
            for what in ("scopes", "vms", "hosts")
        }
        hosts = {vm.host for vm in service.fleet.replica.scope("web").roster}
    assert [scope["id"] for scope in seen["scopes"]] == ["web"]
    assert {vm["scope"] for vm in seen["vms"]} == {"web"}
    assert {host["name"] for host in seen["hosts"]} == hosts
    assert {scope for host in seen["hosts"] for scope in host["scopes"]} == {"web"}


async def test_tokens_appear_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_api() as service:
        secret = await service.token("secret", Role.ADMIN)
        service.fleet.replica.newest = None  # type: ignore[method-assign,assignment]
        reply = await service.request("GET", "/v1/vms", token=secret)
        await service.request("GET", "/v1/vms", token="fw_not_a_token")
        await service.request("POST", "/v1/tokens", {"name": "other", "role": "viewer"}, token=secret)
        kept = repr(await service.stored_state())
    assert reply.status == 500
    assert "failed" in caplog.text
    assert not {secret, secret.removeprefix("fw_"), "fw_not_a_token", TOKEN} & set(caplog.text.split())
    assert secret not in caplog.text
    assert secret not in kept


async def test_many_wrong_tokens_are_429_and_a_valid_one_still_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a proxy all callers have one address: one of them must not lock out the others."""
    monkeypatch.setattr(limits, "LOG_INTERVAL", 100 * GUARD)
    async with run_api() as service:
        replies = [await service.request("GET", "/v1/me", token="wrong") for _ in range(limits.WRONG_TOKENS + 3)]
        missing = await service.request("GET", "/v1/me", token=None)
        valid = await service.request("GET", "/v1/me")
        metrics = (await service.request("GET", "/metrics")).body.decode()
    assert [reply.status for reply in replies] == [401] * limits.WRONG_TOKENS + [429] * 3
    last = replies[-1]
    assert (last.code, last.headers["connection"]) == ("too-many-wrong-tokens", "close")
    assert 0 < int(last.headers["retry-after"]) <= 100 * GUARD
    assert (missing.status, valid.status) == (401, 200)
    assert f"forewarn_operator_wrong_tokens_total {limits.WRONG_TOKENS + 3}.0" in metrics
    assert caplog.messages == ["127.0.0.1: more than 30 requests with a wrong token in a minute"]
