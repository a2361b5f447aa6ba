"""Holds page: hold and release with the permissions of the API."""

import pytest

from forewarn.core.access import Role
from forewarn.operator.dashboard import hold_page
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import RunningApi, run_api


def holds(service: RunningApi) -> list[tuple[str | None, str, str]]:
    return [(scope, hold.by, hold.reason) for scope, hold in service.fleet.holds.all()]


async def test_operator_holds_and_releases() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert "Nothing is held" in await browser.text("/ui/holds")
        assert (await browser.post("/ui/holds", {"scope": "", "reason": "freeze"})).status == 204
        assert (await browser.post("/ui/holds", {"scope": "web", "reason": "<b>quarter</b>"})).status == 204
        assert holds(service) == [(None, "admin", "freeze"), ("web", "admin", "<b>quarter</b>")]
        page = (await browser.get("/ui/holds")).body.decode()
        assert ("&lt;b&gt;quarter&lt;/b&gt;" in page, "<b>" in page) == (True, False)
        assert (await browser.post("/ui/holds/release", {"scope": "web"})).status == 204
        assert (await browser.post("/ui/holds/release", {"reason": "done"})).status == 204
        assert holds(service) == []


async def test_very_many_holds_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_page, "MAX_HOLDS", 1)
    async with run_api() as service:
        browser = await sign_in(service)
        for scope in ("shop", "web"):
            await service.fleet.holds.set(by="test", reason="quarter end", scope=scope)
        text = await browser.text("/ui/holds")
        assert ("Active holds 2" in text, "and 1 hold more" in text) == (True, True)


async def test_refused_holds_change_nothing() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.OPERATOR, "web"))
        for form, status in (({"scope": "web"}, 400), ({"reason": "x"}, 403), ({"scope": "shop", "reason": "x"}, 403)):
            assert (await browser.post("/ui/holds", form)).status == status
        assert (await browser.post("/ui/holds", {"scope": "web", "reason": "own"})).status == 204
        await service.fleet.holds.set(by="test", reason="hidden", scope="shop")
        text = await browser.text("/ui/holds")
        assert ("own" in text, "hidden" in text) == (True, False)


async def test_viewer_gets_no_action() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER))
        page = (await browser.get("/ui/holds")).body.decode()
        assert "data-dialog" not in page.replace('data-dialog="help"', "")
        assert (await browser.post("/ui/holds", {"reason": "x"})).status == 403
