"""Protection of the dashboard: sessions, origin and CSRF token of changes, headers, and the way to the sign-in page."""

from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.operator.dashboard.session_middleware import (
    is_dashboard_path,
    is_same_origin,
    session_cookie,
)
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import TOKEN, run_api


def http_scope(**headers: str) -> Any:
    pairs = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return {"headers": pairs, "server": ("127.0.0.1", 8170), "scheme": "http"}


def test_cookie_is_for_this_port_and_not_for_scripts_or_other_sites() -> None:
    scope = http_scope()
    assert session_cookie(scope, "s3") == "forewarn_session_8170=s3; Path=/ui; HttpOnly; SameSite=Strict"
    assert session_cookie(scope, None).endswith("SameSite=Strict; Max-Age=0")
    assert session_cookie(scope | {"scheme": "https"}, "s3").endswith("; HttpOnly; SameSite=Strict; Secure")


@pytest.mark.parametrize(
    ("headers", "is_same"),
    [
        ({"Sec_Fetch_Site": "same-origin", "Origin": "https://proxy"}, True),
        ({"Sec_Fetch_Site": "none"}, True),
        ({"Sec_Fetch_Site": "same-site"}, False),
        ({"Sec_Fetch_Site": "cross-site", "Origin": "http://a:8170"}, False),
        ({"Origin": "http://a:8170"}, True),
        ({"Origin": "http://a:8171"}, False),
        ({"Origin": "null"}, False),
        ({}, True),
    ],
)
def test_origin_of_a_request(headers: dict[str, str], is_same: bool) -> None:
    assert is_same_origin(http_scope(Host="a:8170", **headers)) is is_same


@pytest.mark.parametrize(("path", "is_ours"), [("/", True), ("/ui", True), ("/ui/x", True), ("/uix", False)])
def test_paths_of_the_dashboard(path: str, is_ours: bool) -> None:
    assert is_dashboard_path(path) is is_ours


async def test_browser_without_a_session_is_led_to_the_sign_in_page_and_back() -> None:
    async with run_api() as service:
        found = []
        for path in ("/", "/ui", "/ui/events/E%201?a=b&c=d"):
            answer = await service.request("GET", path, token=None, Accept="text/html")
            found.append((answer.status, answer.headers["location"]))
        assert found == [
            (303, "/ui"),
            (303, "/ui/sign-in"),
            (303, "/ui/sign-in?next=/ui/events/E%25201%3Fa%3Db%26c%3Dd"),
        ]


async def test_ended_session_of_an_open_page_leads_to_the_sign_in_page() -> None:
    async with run_api() as service:
        part = await service.request("GET", "/ui", token=None, HX_Request="true", HX_Current_URL="http://a/ui/events/E")
        assert (part.status, part.headers["hx-redirect"]) == (401, "/ui/sign-in?next=/ui/events/E")
        stream = await service.request("GET", "/ui/stream", token=None, Accept="text/event-stream")
        assert (stream.status, "location" in stream.headers) == (401, False)


async def test_link_on_another_site_works_although_the_browser_keeps_the_cookie_back() -> None:
    """The first response loads the page again, from the same site and so with the cookie."""
    async with run_api() as service:
        answer = await service.request("GET", "/ui", token=None, Sec_Fetch_Site="cross-site")
        assert (answer.status, b'http-equiv="refresh" content="0"' in answer.body) == (200, True)


async def test_token_does_not_open_the_dashboard_and_a_cookie_does_not_open_the_api() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert (await service.request("GET", "/ui", token=TOKEN)).status == 303
        assert (await browser.get("/v1/me")).status == 401
        assert (await browser.get("/ui")).status == 200


async def test_session_ends_when_its_token_is_revoked() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER))
        assert (await browser.get("/ui")).status == 200
        (eve,) = (token for token in service.fleet.tokens.all() if token.name == "eve")
        await service.fleet.tokens.revoke(eve.id, by="test")
        assert (await browser.get("/ui")).status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"forewarn_csrf": ""},
        {"forewarn_csrf": "wrong"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_change_that_does_not_come_from_a_page_of_the_service_is_refused(headers: dict[str, str]) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert (await browser.post("/ui/sign-out", **headers)).status == 403
        assert (await browser.get("/ui")).status == 200


async def test_csrf_token_of_another_session_is_refused() -> None:
    async with run_api() as service:
        browser, other = await sign_in(service), await sign_in(service)
        await other.get("/ui")
        assert other.csrf
        assert (await browser.post("/ui/sign-out", forewarn_csrf=other.csrf)).status == 403


@pytest.mark.parametrize("path", ["/ui/sign-in", "/ui", "/ui/nothing", "/"])
async def test_every_response_has_the_security_headers(path: str) -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        headers = (await browser.get(path)).headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


async def test_head_request_is_answered_like_get_without_a_body() -> None:
    async with run_api() as service:
        answer = await service.request("HEAD", "/ui/sign-in", token=None)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["content-length"]) > 500
        browser = await sign_in(service)
        endless = await service.request("HEAD", "/ui/stream", token=None, Cookie=browser.cookie)
        assert endless.status == 405


async def test_malformed_cookies_are_ignored() -> None:
    async with run_api() as service:
        for cookie in ('"', "a=b; forewarn_session_" + str(service.port) + "=%00", ";;;=", "\xff"):
            assert (await service.request("GET", "/ui", token=None, Cookie=cookie)).status == 303
