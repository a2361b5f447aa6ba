"""Holds of the whole fleet and of scopes."""

from datetime import timedelta

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.operator.running_api import TEN, run_api

FREEZE = v1.ScheduleEvents(type=EventType.FREEZE, vms=["web-0", "db-0"])


async def test_fleet_hold_stops_planned_maintenance() -> None:
    async with run_api() as service:
        held = await service.client(lambda api: api.hold(v1.CreateHold(reason="audit")))
        assert held == v1.Holds(holds=[v1.Hold(scope=None, created_by="admin", created_at=TEN, reason="audit")])
        await service.client(lambda api: api.schedule(FREEZE))
        await service.client(lambda api: api.fail(v1.Fail(vms=["web-1"])))
        await service.fleet.time.advance(timedelta(minutes=20))
        waiting = await service.client(lambda api: list(api.events()))
        assert [(event.status, event.explanation) for event in waiting] == [
            ("Scheduled", ["all maintenance is held by admin: audit"])
        ] * 2
        released = await service.client(lambda api: api.release(v1.ReleaseHold(reason="done")))
        assert released == v1.Holds(holds=[])
        await service.fleet.time.advance(timedelta(seconds=1))
        assert {event.status for event in await service.client(lambda api: list(api.events()))} == {"Started"}
        notes = await service.client(lambda api: [entry for entry in api.journal() if entry.record_kind == "fleet"])
    assert [(note.action, note.actor, note.reason) for note in notes if note.action is not EntryKind.CLOCK_MOVED] == [
        (EntryKind.HELD, "admin", "audit"),
        (EntryKind.RELEASED, "admin", "done"),
    ]


async def test_hold_of_a_scope_survives_the_release_of_the_fleet() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(FREEZE))
        await service.client(lambda api: api.hold(v1.CreateHold(reason="audit")))
        held = await service.client(lambda api: api.hold(v1.CreateHold(reason="closing", scope="web")))
        assert [hold.scope for hold in held.holds] == [None, "web"]
        await service.client(lambda api: api.release(v1.ReleaseHold()))
        await service.fleet.time.advance(timedelta(minutes=16))
        waiting = await service.client(lambda api: list(api.events()))
        assert [(event.scope, event.explanation) for event in waiting] == [
            ("web", ["the scope is held by admin: closing"])
        ]
        assert waiting[0].hold == v1.Hold(scope="web", created_by="admin", created_at=TEN, reason="closing")
        listed = await service.client(lambda api: api.holds())
        assert listed.holds == [waiting[0].hold]
        await service.client(lambda api: api.release(v1.ReleaseHold(scope="web")))
        (started,) = await service.client(lambda api: list(api.events()))
    assert (started.status, started.hold) == ("Started", None)


async def test_existing_hold_gets_the_new_reason() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.hold(v1.CreateHold(reason="audit")))
        held = await service.client(lambda api: api.hold(v1.CreateHold(reason="audit, until Friday")))
    assert held.fleet is not None
    assert held.fleet.reason == "audit, until Friday"


async def test_release_without_a_hold_does_nothing() -> None:
    async with run_api() as service:
        kept = await service.stored_state()
        assert await service.client(lambda api: api.holds()) == v1.Holds(holds=[])
        for body in ({}, {"scope": "web"}):
            assert (await service.request("POST", "/v1/holds/release", body)).status == 200
        assert await service.stored_state() == kept


async def test_repeated_hold_and_release_have_no_effect() -> None:
    async with run_api() as service:
        for scope in (None, "web"):
            body = {"reason": "audit", "scope": scope}
            for path, key, ask in [("", f"h{scope}", body), ("/release", f"r{scope}", {"scope": scope})]:
                first = await service.request("POST", f"/v1/holds{path}", ask, Idempotency_Key=key)
                kept = await service.stored_state()
                again = await service.request("POST", f"/v1/holds{path}", ask, Idempotency_Key=key)
                assert (first.status, again.status, again.json) == (200, 200, first.json)
                assert await service.stored_state() == kept
            # Repeating the hold after the release has no effect.
            late = await service.request("POST", "/v1/holds", body, Idempotency_Key=f"h{scope}")
            assert late.json["holds"] == []


async def test_impossible_holds_are_refused_and_change_nothing() -> None:
    async with run_api() as service:
        kept = await service.stored_state()
        for path, body, expected in [
            ("", {}, (400, "invalid-request")),
            ("", {"reason": ""}, (400, "invalid-request")),
            ("", {"reason": "  "}, (422, "invalid-value")),
            ("", {"reason": "x", "scope": "nowhere"}, (404, "scope-not-found")),
            ("/release", {"scope": "nowhere"}, (404, "scope-not-found")),
            ("/release", {"why": "x"}, (400, "invalid-request")),
        ]:
            reply = await service.request("POST", f"/v1/holds{path}", body)
            assert (reply.status, reply.code) == expected, (path, body)
        assert await service.stored_state() == kept


async def test_token_of_one_scope_can_hold_only_that_scope() -> None:
    async with run_api() as service:
        web = await service.token("web-only", Role.OPERATOR, "web")
        await service.client(lambda api: api.hold(v1.CreateHold(reason="audit", scope="db-0")))
        for path, body in [("", {"reason": "x"}), ("/release", {})]:
            reply = await service.request("POST", f"/v1/holds{path}", body, token=web)
            assert (reply.status, reply.code) == (403, "forbidden")
        other = await service.request("POST", "/v1/holds", {"reason": "x", "scope": "db-0"}, token=web)
        assert (other.status, other.code) == (403, "scope-forbidden")
        own = await service.request("POST", "/v1/holds", {"reason": "closing", "scope": "web"}, token=web)
    assert (own.status, [hold["scope"] for hold in own.json["holds"]]) == (200, ["web"])
