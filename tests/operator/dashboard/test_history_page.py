"""History page: filters in the URL, pages, export, and what a limited token reads."""

import csv
import io
import re

from forewarn.core.access import Role
from forewarn.operator.dashboard.history_page import ENTRIES
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import run_api, schedule_event


async def test_filters_are_in_the_url_and_empty_ones_do_not_count() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True)
        shown = {}
        for query in (
            f"event={event}&scope=&vm=&action=&actor=&since=&until=&campaign=",
            "action=scheduled",
            "vm=web/web-0&action=scheduled",
            "scope=shop&action=scheduled",
            "since=2026-03-02T10:01",
            "until=2026-03-02T10:01&action=scheduled",
        ):
            shown[query] = (await browser.get(f"/ui/history?{query}")).body.decode().count('<strong class="action">')
        assert list(shown.values()) == [1, 1, 1, 0, 0, 1]


async def test_wrong_filters_are_explained() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for query in ("action=danced", "since=yesterday", "vm=no-such-vm", "campaign=none", "colour=red"):
            assert (await browser.get(f"/ui/history?{query}")).status in (400, 404), query


async def test_older_entries_are_on_further_pages() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        for n in range(ENTRIES):
            await service.fleet.holds.set(by="test", reason=f"r{n}", scope="web")
        first = (await browser.get("/ui/history?scope=web&action=held")).body.decode()
        assert 'class="more"' not in first
        await service.fleet.holds.set(by="test", reason="latest", scope="web")
        first = (await browser.get("/ui/history?scope=web&action=held")).body.decode()
        following = re.search(r'<p class="more"><a href="([^"]*)"', first)
        assert following is not None
        second = (await browser.get(following[1].replace("&amp;", "&"))).body.decode()
        assert ("latest" in first, ">r0<" in second, "latest" in second) == (True, True, False)


async def test_export_has_the_same_entries_as_csv_and_json() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await service.fleet.holds.set(by="test", reason='=HYPERLINK("http://x"),\n"quoted"', scope="web")
        answer = await browser.get("/ui/history/export?scope=web&action=held&format=csv")
        assert answer.headers["content-disposition"] == 'attachment; filename="forewarn-journal.csv"'
        (row,) = csv.DictReader(io.StringIO(answer.body.decode()))
        assert (row["action"], row["record_id"], row["at"]) == ("held", "web", "2026-03-02T10:00:00Z")
        assert row["reason"].startswith("'=HYPERLINK(")
        (entry,) = (await browser.get("/ui/history/export?scope=web&action=held&format=json")).json
        assert (entry["position"], entry["reason"]) == (int(row["position"]), row["reason"][1:])


async def test_limited_token_reads_only_its_scopes() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web"))
        exported = (await browser.get("/ui/history/export?format=json")).json
        assert {entry["record_id"] for entry in exported} == {"web"}
        assert (await browser.get("/ui/history?scope=shop")).status == 403


async def test_facts_that_identify_a_request_are_only_in_the_export() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        await service.request("POST", "/v1/scopes", {"id": "new", "kind": "standalone"}, Idempotency_Key="my-key")
        text = await browser.text("/ui/history?scope=new")
        assert ("kind standalone" in text, "my-key" in text) == (True, False)
        exported = (await browser.get("/ui/history/export?scope=new&format=json")).json
        assert exported[0]["facts"]["key"] == "my-key"
