"""Signing in with a token or with a one-time code, and signing out."""

from urllib.parse import urlencode

import pytest

from forewarn.operator.limits import WRONG_TOKENS
from tests.operator.dashboard.signed_in import ORIGIN, page_text, send_token, sign_in
from tests.operator.running_api import TOKEN, run_api


async def test_token_signs_in_and_leads_to_the_wanted_page() -> None:
    async with run_api() as service:
        answer = await send_token(service, f" {TOKEN} ", next="/ui/events/E1?a=b%20c")
        assert (answer.status, answer.headers["location"]) == (303, "/ui/events/E1?a=b%20c")
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        assert TOKEN not in str(answer.headers)


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "/v1/me", "/ui\r\nX: y", "/uievil", ""])
async def test_sign_in_never_leads_elsewhere(wanted: str) -> None:
    async with run_api() as service:
        answer = await send_token(service, TOKEN, next=wanted)
        assert (answer.status, answer.headers["location"]) == (303, "/ui")


async def test_wrong_token_is_refused_on_the_page_and_limited_like_those_of_the_api() -> None:
    async with run_api() as service:
        answer = await send_token(service, "wrong")
        assert (answer.status, "set-cookie" in answer.headers) == (401, False)
        assert "This token is wrong, expired or revoked." in page_text(answer.body.decode())
        for _ in range(WRONG_TOKENS - 1):
            await service.request("GET", "/v1/me", token="wrong")
        limited = await send_token(service, "wrong")
        assert (limited.status, "retry-after" in limited.headers) == (429, True)
        assert (await send_token(service, TOKEN)).status == 303


async def test_missing_and_empty_tokens_are_refused() -> None:
    async with run_api() as service:
        for body in (b"", b"token=", b"next=/ui", b"\xff\xfe"):
            answer = await service.request("POST", "/ui/sign-in", body, token=None, **ORIGIN)
            assert answer.status in (400, 401), body


async def test_code_signs_in_once() -> None:
    async with run_api() as service:
        code = service.sessions.create_code(service.fleet.tokens.all()[0].id)
        body = urlencode({"code": code}).encode()
        answers = [await service.request("POST", "/ui/sign-in", body, token=None, **ORIGIN) for _ in range(2)]
        assert [answer.status for answer in answers] == [303, 401]
        assert "This link is no longer valid" in page_text(answers[1].body.decode())


async def test_sign_in_from_another_site_is_refused() -> None:
    """Else a page could sign a visitor in as somebody else, and watch what the visitor does there."""
    async with run_api() as service:
        body = urlencode({"token": TOKEN}).encode()
        answer = await service.request("POST", "/ui/sign-in", body, token=None, Sec_Fetch_Site="cross-site")
        assert (answer.status, "set-cookie" in answer.headers) == (403, False)


async def test_sign_out_ends_the_session_and_deletes_the_cookie() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        answer = await browser.post("/ui/sign-out")
        assert (answer.status, answer.headers["hx-redirect"]) == (204, "/ui/sign-in")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert ((await browser.get("/ui")).status, service.sessions.all()) == (303, ())


async def test_signing_in_again_ends_the_former_session() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        body = urlencode({"token": TOKEN}).encode()
        await service.request("POST", "/ui/sign-in", body, token=None, Cookie=browser.cookie, **ORIGIN)
        assert ((await browser.get("/ui")).status, len(service.sessions.all())) == (303, 1)


async def test_signed_in_user_can_continue_from_the_sign_in_page() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert "You are signed in as admin. Continue" in await browser.text("/ui/sign-in?next=/ui/x")
