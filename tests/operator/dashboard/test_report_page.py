"""Report page: problems, results and findings, with the texts of users escaped."""

from forewarn.core.access import Role
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import run_api
from tests.operator.sample_report import HOSTILE, sample_report


async def test_page_has_everything_of_the_report() -> None:
    async with run_api() as service:
        report = await service.client(lambda api: api.add_report(sample_report(f"./handler {HOSTILE}")))
        browser = await sign_in(service)
        page = (await browser.get(f"/ui/emulator/reports/{report.id}")).body.decode()
        listed = (await browser.get("/ui/emulator")).body.decode()
    text = page_text(page)
    for part in (
        "2 scenarios: 1 passed, 1 failed.",
        "Expected it approves E1 Seen it never approved",
        "At handler.py:12 in poll Advice approve the event of your VM In user-restart",
        "Traceback <script>",
        "eviction-30s A VM is evicted 1 0 0 0 1.5 s",
        "Broken approves-E1 user-restart it approves E1.",
        "1 exchange GET / → 200",
    ):
        assert part in text, part
    assert (HOSTILE in page, HOSTILE in listed, f"/ui/emulator/reports/{report.id}" in listed) == (False, False, True)


async def test_report_needs_permission_for_all_scopes_and_must_exist() -> None:
    async with run_api() as service:
        report = await service.client(lambda api: api.add_report(sample_report()))
        team = await sign_in(service, await service.token("team", Role.OPERATOR, "web"))
        assert (await team.get(f"/ui/emulator/reports/{report.id}")).status == 403
        assert (await (await sign_in(service)).get("/ui/emulator/reports/R0")).status == 404
