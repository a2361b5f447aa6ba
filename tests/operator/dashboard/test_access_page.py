"""Access page: sessions, and tokens for admins without a limit to scopes."""

import re

from forewarn.core.access import Role
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
