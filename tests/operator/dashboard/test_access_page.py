"""Access page: sessions, and tokens for admins without a limit to scopes."""

import re

from forewarn.core.access import Role
from forewarn.core.limits import MAX_TEXT_LENGTH
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import run_api


async def test_admin_creates_and_revokes_a_token() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        form = {"name": "ann", "role": "operator", "scopes": "web-*, shop"}
        answer = await browser.post("/ui/access/tokens", form)
        secret = re.search("fw_[^<]+", answer.body.decode())
        assert (answer.status, secret is not None) == (200, True)
        token = service.fleet.tokens.find(secret[0] if secret else "")
        assert token is not None
        assert (token.name, token.role, token.scopes) == ("ann", Role.OPERATOR, ("web-*", "shop"))
        ann = await sign_in(service, secret[0] if secret else "")
        text = await browser.text("/ui/access")
        assert "ann tk_" in text
        assert secret is not None
        assert secret[0] not in text
        assert (await browser.post(f"/ui/access/tokens/{token.id}/revoke", {"reason": "left"})).status == 204
        assert (await ann.get("/ui")).status == 303


async def test_too_long_reason_is_refused_and_the_token_stays() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await service.token("team", Role.VIEWER)
        (token,) = [each for each in service.fleet.tokens.all() if each.name == "team"]
        path = f"/ui/access/tokens/{token.id}/revoke"
        assert (await browser.post(path, {"reason": "x" * (MAX_TEXT_LENGTH + 1)})).status == 400
        assert token in service.fleet.tokens.all()


async def test_every_role_creates_and_revokes_the_address_of_its_calendar() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER, "web"))
        assert "Your calendar has no address yet." in await browser.text("/ui/access")
        answer = await browser.post("/ui/access/calendar")
        found = re.search(rf"{service.url}(/ui/calendar/fwc_[\w-]+\.ics)", answer.body.decode())
        assert (answer.status, found is not None) == (200, True)
        path = found[1] if found else ""
        assert (await service.request("GET", path, token=None)).status == 200
        text = await browser.text("/ui/access")
        assert ("Your calendar has a secret address." in text, "fwc_" in text) == (True, False)
        assert (await browser.post("/ui/access/calendar/revoke")).status == 204
        assert (await service.request("GET", path, token=None)).status == 404


async def test_last_admin_token_and_wrong_forms_are_refused() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        own = service.fleet.tokens.all()[0].id
        assert (await browser.post(f"/ui/access/tokens/{own}/revoke")).status == 409
        for form in (
            {},
            {"name": "x"},
            {"name": "x", "role": "king"},
            {"name": "x", "role": "viewer", "scopes": "a/b"},
        ):
            assert (await browser.post("/ui/access/tokens", form)).status in (400, 422)
        assert len(service.fleet.tokens.all()) == 1


async def test_user_sees_and_ends_only_own_sessions() -> None:
    async with run_api() as service:
        admin = await sign_in(service)
        secret = await service.token("eve", Role.VIEWER)
        first, second = await sign_in(service, secret), await sign_in(service, secret)
        page = (await first.get("/ui/access")).body.decode()
        assert "Your sessions 2" in page_text(page)
        assert "Create a token" not in page
        sessions = service.sessions.all()
        assert (await first.post(f"/ui/access/sessions/{sessions[0].id}/end")).status == 404
        assert (await first.post(f"/ui/access/sessions/{sessions[2].id}/end")).status == 204
        assert ((await second.get("/ui")).status, (await admin.get("/ui")).status) == (303, 200)


async def test_admin_ends_every_session() -> None:
    async with run_api() as service:
        admin = await sign_in(service)
        eve = await sign_in(service, await service.token("eve", Role.VIEWER))
        assert "Sessions 2" in await admin.text("/ui/access")
        assert (await admin.post(f"/ui/access/sessions/{service.sessions.all()[1].id}/end")).status == 204
        assert (await eve.get("/ui")).status == 303
