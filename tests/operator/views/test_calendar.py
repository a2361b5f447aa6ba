"""Entries of the calendar: those that start first, with a limited number of names."""

from datetime import timedelta

import pytest

from forewarn.core.access import Role
from forewarn.operator.auth import Caller
from forewarn.operator.icalendar import CalendarEntry
from forewarn.operator.views import calendar
from forewarn.operator.views.calendar import list_entries
from tests.operator.running_api import TEN, RunningApi, run_api, schedule_event
from tests.operator.sample_campaign import asked, start

FREEZE = "The VM is paused for a moment while its host is maintained."

ADMIN = Caller(token="t", name="admin", role=Role.ADMIN)


async def listed(service: RunningApi) -> list[CalendarEntry]:
    return await list_entries(service.fleet, ADMIN, scope=None, dashboard_url="https://x/ui")


async def test_event_is_an_entry_at_its_time_with_what_its_readers_need() -> None:
    async with run_api() as service:
        event = await schedule_event(
            service, "Freeze", "web/web-0", notice="15m", unannounced=True, duration="9s", reason="new switch"
        )
        assert await listed(service) == [
            CalendarEntry(
                uid=f"event-{event.lower()}@forewarn",
                changed_at=TEN,
                sequence=0,
                starts_at=TEN + timedelta(minutes=15),
                duration=timedelta(seconds=9),
                is_tentative=False,
                summary="Freeze of 1 VM in web",
                description=f"{FREEZE}\nVMs: web-0\nReason: new switch",
                location="web",
                url=f"https://x/ui/events/{event}",
            )
        ]


async def test_planned_wave_is_a_tentative_entry() -> None:
    async with run_api() as service:
        await service.request("POST", "/v1/holds", {"reason": "freeze"})
        campaign = await start(service, asked("kernel", "db-0"))
        (entry,) = await listed(service)
        assert (entry.is_tentative, entry.starts_at, entry.duration, entry.summary, entry.url) == (
            True,
            TEN + timedelta(minutes=15),
            timedelta(minutes=1),
            "Reboot of 1 VM in db-0 (planned by kernel)",
            f"https://x/ui/campaigns/{campaign.id}",
        )
        assert entry.description == "Wave 1 of campaign kernel: update domain 0. Not announced yet."


async def test_entries_that_start_first_are_kept_and_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendar, "MAX_ENTRIES", 2)
    monkeypatch.setattr(calendar, "MAX_NAMES", 1)
    async with run_api() as service:
        for vm, notice in (("db-0/db-0", "3h"), ("batch/batch_0", "1h")):
            await schedule_event(service, "Reboot", vm, notice=notice, unannounced=True)
        await schedule_event(service, "Reboot", "web/web-0", "web/web-3", notice="2h", unannounced=True)
        entries = await listed(service)
        assert [entry.location for entry in entries] == ["batch", "web"]
        assert entries[1].description.endswith("VMs: web-0 and more")
