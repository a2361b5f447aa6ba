"""The campaign editor: form, TOML and plan follow what is typed; start with consent; clone."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from forewarn.api.campaign_file import write_campaign
from forewarn.api.v1.campaign_spec import spec_from_request
from forewarn.core.access import Role
from forewarn.core.policy import PRODUCTION
from forewarn.operator import campaign_planner
from forewarn.operator.dashboard import campaign_editor
from tests.operator.dashboard.signed_in import SignedIn, sign_in
from tests.operator.running_api import GUARD, TEN, run_api
from tests.operator.sample_campaign import asked, shown, start

PATH = "/ui/campaigns/plan"
FORM = {
    "source": "form",
    "name": "kernel",
    "type": "Reboot",
    "selection.scopes": "web",
    "duration": "1m",
    "policy.gap": "1h",
    "policy.advance": "true",
}
TOML = """\
name = "kernel"
type = "Reboot"
duration = "1m"

[selection]
scopes = ["web"]

[policy]
gap = "1h"
"""


async def sent(browser: SignedIn, form: object) -> list[dict[str, Any]]:
    """Send what was typed, and return the lines of the response."""
    answer = await browser.post(PATH, form)
    assert answer.status == 200, answer.body.decode()
    return [msgspec.json.decode(line) for line in answer.body.splitlines()]


async def test_form_becomes_toml_and_plan() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        first, *_, last = await sent(browser, FORM)
        before = await service.stored_state()
        await sent(browser, FORM)
        assert await service.stored_state() == before  # nothing is announced
    assert (first["toml"], first["error"]) == (TOML, None)
    assert "3</dd>" in last["plan"]
    assert 'data-dialog="start"' in last["plan"]
    assert "at most 2" in last["plan"]


async def test_toml_becomes_form() -> None:
    async with run_api() as service:
        first, *_, last = await sent(await sign_in(service), {"toml": TOML.replace("\n", "\r\n")})
    assert {key: text for key, text in first["texts"].items() if text} == {
        key: text for key, text in FORM.items() if key != "source"
    }
    assert "plan" in last


async def test_wrong_input_is_kept_and_explained() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        (line,) = await sent(browser, FORM | {"policy.gap": "soon"})
        (syntax,) = await sent(browser, {"toml": "name = "})
        *_, zone = await sent(browser, FORM | {"policy.zone": "Europe/Atlantis"})
        *_, nothing = await sent(browser, FORM | {"selection.scopes": "no-such-*"})
    assert 'gap = "soon"' in line["toml"]
    assert (line["error"]["key"], line["error"]["line"]) == ("policy.gap", 9)
    assert (syntax["toml"], syntax["texts"], syntax["error"]["line"]) == ("name = ", None, 1)
    assert (zone["error"]["key"], zone["error"]["line"]) == ("policy.zone", 10)
    assert "matches no VM" in nothing["error"]["message"]


async def test_unplaced_vms_are_shown_with_their_key_and_cannot_be_started() -> None:
    async with run_api() as service:
        *_, last = await sent(await sign_in(service), FORM | {"policy.vms_at_once": "1"})
    assert "vms_at_once allows 1, and it has 2 VMs" in last["plan"]
    assert 'data-dialog="start" disabled' in last["plan"]


async def test_hostile_texts_are_escaped() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        toml = TOML.replace("[selection]", "description = '<script>alert(1)</script></textarea>'\n\n[selection]")
        *_, last = await sent(browser, {"toml": toml})
    assert "<script>" not in last["plan"]
    assert "&lt;/textarea&gt;" in last["plan"]


NESTED = "[" * 5_000
DEEP_KEY = "name" + ".deep" * 600

DEEP: dict[str, dict[str, str]] = {
    "list in the TOML": {"toml": f"name = {NESTED}"},
    "keys in the TOML": {"toml": f"{DEEP_KEY} = 1"},
    "TOML of the form": FORM | {"toml": f"name = {NESTED}"},
    "keys in the TOML of the form": FORM | {"toml": f"{DEEP_KEY} = 1"},
    "item of a list": FORM | {"policy.windows": "{ a = " * 3_000},
    "pair of a table": FORM | {"selection.tags": f'"a" = {NESTED}'},
}


@pytest.mark.parametrize("case", DEEP)
async def test_deep_nesting_is_a_mistake_of_the_user(caplog: pytest.LogCaptureFixture, case: str) -> None:
    async with run_api() as service:
        first, *_ = await sent(await sign_in(service), DEEP[case])
    assert first["error"] is not None or "TOML of the form" in case
    assert caplog.records == []


LARGE = FORM | {"toml": "# A long comment.\n" * 1_000}


async def test_large_input_is_read_in_a_separate_process_with_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could keep the event loop, and with it every guest, for minutes."""
    async with run_api() as service:
        browser = await sign_in(service)
        first, *_, last = await sent(browser, LARGE)
        assert (first["toml"].count("# A long comment."), first["error"], "plan" in last) == (1_000, None, True)
        assert (await browser.post(f"{PATH}/start", {"toml": TOML + LARGE["toml"]})).status == 204
        monkeypatch.setattr(campaign_editor, "READ_SECONDS", 0.0)
        (line,) = await sent(browser, LARGE)
        answer = await browser.post(f"{PATH}/start", {"toml": TOML + LARGE["toml"]})
    assert (line["toml"], line["texts"]) == (LARGE["toml"], {key: LARGE[key] for key in FORM if key != "source"})
    assert "it takes longer than" in line["error"]["message"]
    assert answer.status == 400


async def test_process_that_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(_: object) -> None:
        raise EOFError

    monkeypatch.setattr(campaign_planner, "run_in_process", end)
    async with run_api() as service:
        (line,) = await sent(await sign_in(service), LARGE)
    assert "could not be read" in line["error"]["message"]


async def test_large_plan_shows_progress_and_a_disconnect_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def endless(_: object, on_progress: Callable[[int, int], None]) -> campaign_planner.EncodedPlan:
        on_progress(3, 6)
        try:
            return await asyncio.Future()
        finally:
            ended.set()

    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
    monkeypatch.setattr(campaign_planner, "run_in_process", endless)
    async with run_api() as service, asyncio.timeout(GUARD):
        browser = await sign_in(service)
        await browser.get("/ui")
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        body = urlencode({"toml": TOML}).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nCookie: {browser.cookie}\r\nForewarn-Csrf: {browser.csrf}\r\n"
            f"Sec-Fetch-Site: same-origin\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b'{"done":3,"total":6}')
        writer.transport.abort()
        await ended.wait()


async def test_start_is_the_command_of_the_api_and_idempotent() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        form = {"toml": TOML, "reason": "new kernel"}
        first = await browser.post(f"{PATH}/start", form, Idempotency_Key="k1")
        again = await browser.post(f"{PATH}/start", form, Idempotency_Key="k1")
        other = await browser.post(f"{PATH}/start", form, Idempotency_Key="k2")
        campaign = await shown(service)
    assert (first.status, first.headers["hx-redirect"]) == (204, f"/ui/campaigns/{campaign.id}")
    assert again.headers["hx-redirect"] == first.headers["hx-redirect"]
    assert (other.status, "an open campaign kernel" in other.body.decode()) == (409, True)
    assert (campaign.reason, campaign.vm_count, campaign.spec.policy.gap) == ("new kernel", 6, "1h")


async def test_start_needs_consent_where_no_vm_polls() -> None:
    async with run_api(policy=PRODUCTION) as service:
        browser = await sign_in(service)
        *_, last = await sent(browser, {"toml": TOML})
        refused = await browser.post(f"{PATH}/start", {"toml": TOML})
        started = await browser.post(f"{PATH}/start", {"toml": TOML, "unannounced": "true"})
    assert "<strong>6 VMs</strong> in 1 scope will not hear of it" in last["plan"]
    assert 'name="unannounced" value="true" required' in last["plan"]
    assert (refused.status, "check “Go ahead even if" in refused.body.decode()) == (409, True)
    assert started.status == 204


async def test_wrong_file_is_not_started() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        wrong = await browser.post(f"{PATH}/start", {"toml": TOML.replace("1h", "soon")})
        assert (wrong.status, wrong.body.decode().startswith("line 9: policy.gap: ")) == (400, True)
        assert service.fleet.campaigns.all() == ()


async def test_viewer_plans_but_cannot_start_and_token_of_scopes_stays_in_them() -> None:
    async with run_api() as service:
        eve = await sign_in(service, await service.token("eve", Role.VIEWER))
        *_, last = await sent(eve, {"toml": TOML})
        assert 'data-dialog="start"' not in last["plan"]
        assert (await eve.post(f"{PATH}/start", {"toml": TOML})).status == 403
        team = await sign_in(service, await service.token("team", Role.OPERATOR, "shop"))
        *_, refused = await sent(team, {"toml": TOML})
        assert (refused["error"]["key"], refused["error"]["line"]) == ("selection.scopes", 6)
        assert (await team.post(f"{PATH}/start", {"toml": TOML})).status == 403
        page = (await team.get(PATH)).body.decode()
        hidden = re.findall(r'<div class="[^"]*" hidden>\s*<label[^>]* for="([^"]+)"', page)
        assert hidden == ["field-selection-hosts", "field-selection-tags", "field-selection-all"]


async def test_clone_has_the_same_spec_a_free_name_and_no_past_start() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        ask = msgspec.structs.replace(asked("kernel", "web", vms_at_once="50%"), start_at=TEN + timedelta(minutes=1))
        campaign = await start(service, ask)
        spec = spec_from_request(ask)
        assert await cloned(browser, campaign.id) == write_campaign(msgspec.structs.replace(spec, name="kernel-2"))
        await service.request("POST", "/v1/clock/advance", {"duration": "12h"})
        assert await cloned(browser, campaign.id) == write_campaign(msgspec.structs.replace(spec, start_at=None))
        assert (await browser.get(f"{PATH}?clone=nothing")).status == 404


async def cloned(browser: SignedIn, campaign: str) -> str:
    """Return the TOML of a clone, as the page shows it."""
    page = (await browser.get(f"{PATH}?clone={campaign}")).body.decode()
    return unescape(page.partition('id="toml"')[2].partition(">\n")[2].partition("</textarea>")[0])
