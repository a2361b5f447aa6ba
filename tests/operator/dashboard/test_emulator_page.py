"""Emulator page: time, speed, faults and scenarios with the permissions of the API, only where time is virtual."""

from datetime import timedelta
from functools import partial

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.clock import SystemClock
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from tests.operator.dashboard.signed_in import sign_in
from tests.operator.running_api import TEN, run_api


async def test_clock_is_advanced_by_a_duration_and_to_the_next_change() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0"])))
        browser = await sign_in(service)
        assert "Manual clock" in await browser.text("/ui/emulator")
        answer = await browser.post("/ui/emulator/advance", {"duration": "1m"})
        assert (answer.status, answer.body, answer.headers["hx-trigger"]) == (200, b"No event has changed.", "changed")
        answer = await browser.post("/ui/emulator/advance", {"to_next_change": "true"})
        assert (answer.status, answer.body.startswith(b"1 change of events")) == (200, True)
        assert service.fleet.clock.now() == TEN + timedelta(minutes=15)
        for form in ({}, {"duration": "soon"}, {"duration": "1m", "to_next_change": "true"}):
            assert (await browser.post("/ui/emulator/advance", form)).status in (400, 422)
        assert service.fleet.clock.now() == TEN + timedelta(minutes=15)


async def test_speed_is_set() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert (await browser.post("/ui/emulator/speed", {"speed": "60"})).status == 200
        assert "Speed 60" in await browser.text("/ui/emulator")
        for speed in ("0", "fast", ""):
            assert (await browser.post("/ui/emulator/speed", {"speed": speed})).status == 400
        assert service.fleet.emulator.speed.current == 60


async def test_faults_are_set_listed_with_hits_and_cleared() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        form = {"kind": "slow", "vm": "web-0", "times": "4", "amount": "2s", "duration": "", "reason": "<b>why</b>"}
        assert (await browser.post("/ui/emulator/faults", form)).status == 204
        page = (await browser.get("/ui/emulator")).body.decode()
        assert '<a href="/ui/vms/web/web-0/guest"' in page
        assert ("&lt;b&gt;why" in page, "<b>why" in page) == (True, False)  # in the journal
        assert "slow 2s F1" in " ".join((await browser.text("/ui/emulator")).split())
        assert (await browser.post("/ui/emulator/faults", form | {"kind": "none"})).status == 400
        assert (await browser.post("/ui/emulator/faults/F1/clear")).status == 204
        assert "VMs get correct answers" in await browser.text("/ui/emulator")
        assert (await browser.post("/ui/emulator/faults/F1/clear")).status == 404


async def test_limited_operator_sees_and_changes_only_faults_of_its_vms() -> None:
    async with run_api() as service:
        for vm in ("web/web-0", "shop/FrontEnd_IN_0", None):
            fault = v1.SetFault(kind=FaultKind.HANG, vm=vm)
            await service.client(partial(ApiClient.set_fault, request=fault))
        browser = await sign_in(service, await service.token("team", Role.OPERATOR, "web"))
        text = await browser.text("/ui/emulator")
        assert ("web/web-0" in text, "FrontEnd_IN_0" in text, "all VMs" in text) == (True, False, True)
        page = (await browser.get("/ui/emulator")).body.decode()
        hidden = ("clear-F3", "/advance", "/play", "Reports")
        assert ("clear-F1" in page, [part for part in hidden if part in page]) == (True, [])
        for path, form in (
            ("advance", {"duration": "1m"}),
            ("speed", {"speed": "2"}),
            ("play", {"name": "user-restart"}),
            ("runs/S1/cancel", {}),
            ("faults", {"kind": "hang"}),
            ("faults/F3/clear", {}),
        ):
            assert (await browser.post(f"/ui/emulator/{path}", form)).status == 403, path
        assert (await browser.post("/ui/emulator/faults/F2/clear")).status == 404
        assert (await browser.post("/ui/emulator/faults/F1/clear")).status == 204


async def test_viewer_gets_no_action() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("eve", Role.VIEWER))
        page = (await browser.get("/ui/emulator")).body.decode()
        assert [part in page for part in ("/ui/emulator/advance", 'data-dialog="fault"', "/play")] == [False] * 3
        assert (await browser.post("/ui/emulator/advance", {"duration": "1m"})).status == 403


async def test_page_exists_only_where_time_is_virtual() -> None:
    async with run_api(clock=SystemClock()) as service:
        browser = await sign_in(service)
        answer = await browser.get("/ui/emulator")
        assert (answer.status, "/ui/emulator" in (await browser.get("/ui")).body.decode()) == (409, False)
        await service.client(lambda api: api.set_speed(v1.SetSpeed(speed=60)))
        assert "Real time" in await browser.text("/ui/emulator")
        assert 'href="/ui/emulator"' in (await browser.get("/ui")).body.decode()
    async with run_api(emulates=False) as service:
        browser = await sign_in(service)
        assert (await browser.get("/ui/emulator")).status == 409
        assert "/ui/emulator" not in (await browser.get("/ui")).body.decode()


async def test_unknown_run_is_not_found() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        assert (await browser.get("/ui/emulator/runs/S1")).status == 404
        assert (await browser.post("/ui/emulator/runs/S1/cancel")).status == 404
        # This service has no player.
        assert (await browser.post("/ui/emulator/play", {"name": "user-restart"})).status == 409
