"""Guest page: exchanges of a VM, the newest first; only for those who may see the VM, and only if it is looked at."""

import pytest

from forewarn.core.access import Role
from forewarn.guest.observer import Observed
from forewarn.guest.recorder import WATCH_TICKS, RequestRecorder
from forewarn.operator.dashboard.guest_page import show_bytes, show_exchange
from forewarn.wire.exchange import Exchange
from tests.operator.dashboard.signed_in import page_text, sign_in
from tests.operator.running_api import TEN, FakeGuests, run_api, schedule_event

PATH = "/ui/vms/web/web-0/guest"
TARGET = "/metadata/scheduledevents?api-version=2020-07-01"

DOCUMENT = b"""{"DocumentIncarnation":4,"Events":[
{"EventId":"x","EventType":"Reboot","EventStatus":"Scheduled","Resources":["a","b"]}]}"""


def poll(number: int, answer: bytes, status: int = 200, **fields: object) -> Observed:
    values = {"number": number, "vm": "web/web-0", "at": 0.0, "wall": TEN, "method": "GET", "target": TARGET}
    return Observed(**(values | {"status": status, "answer": answer} | fields))  # type: ignore[arg-type]  # given above


async def test_page_watches_the_vm_and_shows_its_exchanges() -> None:
    guests = FakeGuests()
    recorder = guests.recorder = RequestRecorder(keeps_bytes=True)
    async with run_api(guests=guests) as service:
        browser = await sign_in(service)
        text = await browser.text(PATH)
        assert "No request has arrived since this page was opened. Point a handler at http://web.web-0" in text
        recorder.record(poll(1, b'{"DocumentIncarnation":1,"Events":[]}'), b"GET <b> HTTP/1.1\r\n", b"x")
        recorder.record(poll(2, b'{"DocumentIncarnation":1,"Events":[]}'), b"GET <b> HTTP/1.1\r\n", b"x")
        recorder.record(poll(3, b"<html>", 410))
        page = (await browser.get(PATH)).body.decode()
        text = page_text(page)
        assert text.index("410 <html>") < text.index("200 incarnation 1: no events")
        assert "×2" in text
        assert "GET &lt;b&gt; HTTP/1.1" in page
        assert service.fleet.replica.scope("web").enabled is False


async def test_list_is_sent_again_only_if_it_has_changed() -> None:
    guests = FakeGuests()
    recorder = guests.recorder = RequestRecorder()
    async with run_api(guests=guests) as service:
        browser = await sign_in(service)
        await browser.get(PATH)
        assert (await browser.get(f"{PATH}/exchanges?seen=0")).status == 204
        recorder.record(poll(1, b"{}"))
        answer = await browser.get(f"{PATH}/exchanges?seen=0")
        assert (answer.status, b'value="1"' in answer.body) == (200, True)
        assert (await browser.get(f"{PATH}/exchanges?seen=1")).status == 204
        await service.request("POST", "/v1/faults", {"kind": "status-410", "vm": "web/web-0"})
        await service.request("POST", "/v1/faults", {"kind": "slow", "vm": "web/web-1"})
        answer = await browser.get(f"{PATH}/exchanges?seen=1")
        assert b"status-410" in answer.body
        assert b"slow" not in answer.body


async def test_paused_page_keeps_its_list_and_its_vm_is_still_recorded() -> None:
    guests = FakeGuests()
    recorder = guests.recorder = RequestRecorder()
    async with run_api(guests=guests) as service:
        browser = await sign_in(service)
        await browser.get(PATH)
        for _ in range(WATCH_TICKS):
            recorder.tick()
        assert (await browser.get(f"{PATH}/exchanges?seen=0&paused=true")).status == 204
        recorder.tick()
        recorder.record(poll(1, b"{}"))
        assert (await browser.get(f"{PATH}/exchanges?seen=0&paused=true")).status == 204
        assert b'value="1"' in (await browser.get(f"{PATH}/exchanges?seen=0")).body


async def test_approval_leads_to_its_event() -> None:
    guests = FakeGuests()
    recorder = guests.recorder = RequestRecorder()
    async with run_api(guests=guests) as service:
        browser = await sign_in(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await browser.get(PATH)
        recorder.record(poll(1, b"", method="POST", approved=(event,), body=b"{}"))
        page = (await browser.get(PATH)).body.decode()
        assert "200 Approved" in page
        assert f'href="/ui/events/{event}"' in page


async def test_other_vms_are_refused_and_not_watched() -> None:
    guests = FakeGuests()
    recorder = guests.recorder = RequestRecorder()
    async with run_api(guests=guests) as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "shop"))
        for path, status in ((PATH, 403), (f"{PATH}/exchanges", 403), ("/ui/vms/shop/nothing/guest", 404)):
            assert (await browser.get(path)).status == status
        assert not recorder.is_active


async def test_control_node_says_that_the_host_has_the_endpoint() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert "The VM has its endpoint on its host" in await browser.text(PATH)


@pytest.mark.parametrize(
    ("status", "target", "answer", "shown"),
    [
        (None, TARGET, b"", ("silent", "No response", "The connection waits, or was reset.")),
        (200, TARGET, b"", ("done", "200", "an empty body")),
        (200, TARGET, b"<html>", ("done", "200", "no valid document: the body is not JSON: ")),
        (304, TARGET, b"", ("done", "304", "not modified: the VM has the current document")),
        (429, TARGET, b"{}", ("failed", "429", "{}")),
        (200, "/metadata/versions", b"[]", ("done", "200", "2 bytes")),
        (
            200,
            TARGET,
            DOCUMENT,
            ("done", "200", "incarnation 4: Reboot scheduled for a, b"),
        ),
    ],
)
def test_exchange_is_summarised(status: int | None, target: str, answer: bytes, shown: tuple[str, str, str]) -> None:
    row = show_exchange(
        Exchange(id=1, number=1, first_at=TEN, at=TEN, method="GET", target=target, status=status, answer=answer)
    )
    assert (row.mark, row.status, row.summary[: len(shown[2])]) == shown


def test_bytes_without_a_character_are_shown_as_numbers() -> None:
    assert show_bytes(b"a\r\nb\x00\xff<") == "a\nb\\x00\\xff<"
