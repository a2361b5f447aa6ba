"""Calendar routes: the feed has what its token may see, and its address is a secret that can be revoked."""

import icalendar
import pytest

from forewarn.core.access import Role
from forewarn.operator.limits import WRONG_TOKENS
from tests.operator.running_api import TOKEN, ApiResponse, RunningApi, run_api, schedule_event
from tests.operator.sample_campaign import asked, start


async def create(service: RunningApi, token: str = TOKEN) -> str:
    """Create the address of a token's calendar."""
    answer = await service.request("POST", "/v1/calendar", token=token)
    assert answer.status == 201, answer.json
    path: str = answer.json["path"]
    return path


async def read(service: RunningApi, path: str) -> ApiResponse:
    return await service.request("GET", path, token=None)


def entries(answer: ApiResponse) -> list[dict[str, str]]:
    """Return the entries of a feed, as a real parser reads them."""
    assert answer.status == 200, answer.body
    found = icalendar.Calendar.from_ical(answer.body).walk("VEVENT")
    assert [each.subcomponents for each in found] == [[] for _ in found]
    return [{name.lower(): str(value) for name, value in each.items()} for each in found]


def summaries(answer: ApiResponse) -> list[str]:
    return [entry["summary"] for entry in entries(answer)]


async def test_feed_has_open_events_and_planned_waves_and_enables_nothing() -> None:
    async with run_api() as service:
        path = await create(service)
        event = await schedule_event(service, "Reboot", "web/web-0", notice="90m", unannounced=True, duration="9s")
        campaign = await start(service, asked("kernel", "batch"))
        answer = await read(service, path)
        assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert summaries(answer) == [
            "Reboot of 1 VM in batch",
            "Reboot of 1 VM in batch (planned by kernel)",
            "Reboot of 1 VM in web",
            "Reboot of 1 VM in batch (planned by kernel)",
            "Reboot of 1 VM in batch (planned by kernel)",
        ]
        shown = entries(answer)
        assert len({entry["uid"] for entry in shown}) == 5
        (own,) = (entry for entry in shown if entry["uid"] == f"event-{event.lower()}@forewarn")
        assert own["url"] == f"{service.url}/ui/events/{event}"
        assert {entry["url"] for entry in shown} > {f"{service.url}/ui/campaigns/{campaign.id}"}
        assert (await read(service, path)).body == answer.body
        assert summaries(await read(service, f"{path}?scope=web")) == ["Reboot of 1 VM in web"]
        assert service.fleet.replica.scope("web").enabled is False


async def test_started_event_has_a_higher_sequence_and_an_ended_one_is_gone() -> None:
    async with run_api() as service:
        path = await create(service)
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        (before,) = entries(await read(service, path))
        await service.request("POST", "/v1/clock/advance", {"duration": "15m"})
        (after,) = entries(await read(service, path))
        assert (before["uid"], before["sequence"], after["sequence"]) == (after["uid"], "0", "1")
        assert after["summary"] == "Reboot of 1 VM in web (started)"
        await service.request("POST", "/v1/clock/advance", {"duration": "15m"})
        assert summaries(await read(service, path)) == []


async def test_feed_of_a_limited_token_has_only_its_scopes() -> None:
    async with run_api() as service:
        await schedule_event(service, "Reboot", "web/web-0", notice="15m", unannounced=True)
        await schedule_event(service, "Reboot", "shop/FrontEnd_IN_0", notice="15m", unannounced=True)
        await start(service, asked("kernel", "batch"))
        path = await create(service, await service.token("team", Role.VIEWER, "shop"))
        assert summaries(await read(service, path)) == ["Reboot of 1 VM in shop"]
        hidden, missing = [await read(service, f"{path}?scope={name}") for name in ("web", "foo")]
        assert summaries(hidden) == []
        assert hidden.body.replace(b"web", b"foo") == missing.body


async def test_address_stops_working_when_it_is_replaced_or_revoked_or_its_token_is() -> None:
    async with run_api() as service:
        token = await service.token("team", Role.VIEWER)
        first = await create(service, token)
        second = await create(service, token)
        assert [(await read(service, path)).status for path in (first, second)] == [404, 200]
        assert (await service.request("DELETE", "/v1/calendar", token=token)).status == 204
        assert (await read(service, second)).status == 404
        third = await create(service, token)
        team = service.fleet.tokens.find(token)
        assert team is not None
        await service.fleet.tokens.revoke(team.id, by="test")
        assert (await read(service, third)).status == 404


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_address_needs_a_token(method: str) -> None:
    async with run_api() as service:
        assert (await service.request(method, "/v1/calendar", token=None)).status == 401


async def test_addresses_cannot_be_guessed_and_a_token_is_no_address() -> None:
    async with run_api() as service:
        wrong = [await read(service, f"/ui/calendar/{name}") for name in (f"{TOKEN}.ics", "x", f"fwc_{'x' * 43}.ics")]
        assert [answer.status for answer in wrong] == [404, 404, 404]
        *_, last = [await read(service, "/ui/calendar/wrong.ics") for _ in range(WRONG_TOKENS)]
        assert (last.status, "retry-after" in last.headers) == (429, True)
        path = await create(service)
        assert (await read(service, path)).status == 200


async def test_hostile_texts_stay_within_their_property() -> None:
    async with run_api() as service:
        path = await create(service)
        hostile = "x; y, z\\ END:VEVENT BEGIN:VALARM"
        await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True, description=hostile)
        (entry,) = entries(await read(service, path))
        assert entry["description"] == f"{hostile}\nVMs: web-0"


async def test_repeated_request_does_not_show_the_address_again() -> None:
    async with run_api() as service:
        first = await service.request("POST", "/v1/calendar", Idempotency_Key="k")
        again = await service.request("POST", "/v1/calendar", Idempotency_Key="k")
        assert (first.status, again.status, again.code) == (201, 409, "secret-already-shown")
        assert (await read(service, first.json["path"])).status == 200


async def test_client_creates_and_revokes_the_address() -> None:
    async with run_api() as service:
        made = await service.client(lambda api: api.create_calendar())
        assert (await read(service, made.path)).status == 200
        await service.client(lambda api: api.revoke_calendar())
        assert (await read(service, made.path)).status == 404
