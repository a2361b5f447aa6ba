"""API views of events: open events with their blockers, filters, and the detail of an event from the journal."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.api import v1
from forewarn.core.event import Event, EventType, Source
from forewarn.core.explain import BlockerCode
from forewarn.core.impact import Failed
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from forewarn.core.scope import ApprovalRule, EventOutcome, Scope
from forewarn.operator.errors import JournalEventNotFound
from forewarn.operator.views import events
from forewarn.operator.views.events import EventFilter, show_event, show_event_detail
from tests.core.sample_scopes import schedule_request, web_scope
from tests.fleet.fleets import run_fleet
from tests.operator.running_api import TEN, event_detail, run_api, schedule_event, timeline_lines

NEVER = "11111111-2222-3333-4444-555555555555"


def scope_with_an_event() -> tuple[Scope, Event]:
    request = schedule_request(EventType.REBOOT, "web-0", why="ticket 7", duration=timedelta(seconds=90))
    changed = schedule(web_scope(), request, RuleContext(policy=EMULATOR), now=TEN).scope
    assert changed is not None
    (event,) = changed.events
    return changed, event


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EventFilter(), True),
        (EventFilter(type=EventType.REBOOT, status="Scheduled", source=Source.PLATFORM), True),
        (EventFilter(type=EventType.FREEZE), False),
        (EventFilter(status="Started"), False),
        (EventFilter(source=Source.USER), False),
        (EventFilter(host="hv-9"), False),
        (EventFilter(type=EventType.REBOOT, source=Source.USER), False),
    ],
)
def test_event_must_match_every_field_of_a_filter(wanted: EventFilter, expected: bool) -> None:
    _, event = scope_with_an_event()
    assert wanted.matches(event) == expected


async def test_open_event_is_shown_with_its_blockers() -> None:
    scope, event = scope_with_an_event()
    not_before = TEN + timedelta(minutes=15)
    async with run_fleet(web_scope()) as fleet:
        shown = show_event(fleet, scope, event, now=TEN)
    assert shown == v1.Event(
        id=event.id,
        scope="web",
        type=EventType.REBOOT,
        status="Scheduled",
        source=Source.PLATFORM,
        cause=event.cause,
        vms=("web-0",),
        update_domain=event.update_domain,
        host=event.host,
        created_at=TEN,
        not_before=not_before,
        started_at=None,
        duration="1m30s",
        description=event.description,
        created_by="operator:test",
        reason="ticket 7",
        announced=True,
        approvals=(),
        impacts=(),
        explanation=("not before 2026-03-02 10:15:00Z, or earlier if any VM of the scope approves",),
        blockers=(
            v1.Blocker(code=BlockerCode.NOT_BEFORE, text="not before 2026-03-02 10:15:00Z", until=not_before),
            v1.Blocker(
                code=BlockerCode.APPROVAL_REQUIRED,
                text="it starts earlier if any VM of the scope approves",
                until=not_before,
            ),
        ),
        is_stuck=False,
        hold=None,
        campaign=None,
    )


async def test_blocker_names_the_vms_that_must_all_approve() -> None:
    scope, event = scope_with_an_event()
    everyone = msgspec.structs.replace(scope, approval=ApprovalRule.ALL)
    async with run_fleet(web_scope()) as fleet:
        blockers = show_event(fleet, everyone, event, now=TEN).blockers
    assert [(blocker.code, blocker.vms) for blocker in blockers] == [
        (BlockerCode.NOT_BEFORE, ()),
        (BlockerCode.APPROVAL_REQUIRED, ("web-0",)),
    ]


async def test_event_that_never_existed_has_no_detail() -> None:
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(JournalEventNotFound):
            await show_event_detail(fleet, NEVER)


async def test_every_listing_shows_the_holds() -> None:
    async with run_api() as service:
        event = await schedule_event(service, "Freeze", "web-0")
        await service.client(lambda api: api.hold(v1.CreateHold(reason="audit")))
        await service.client(lambda api: api.hold(v1.CreateHold(reason="closing", scope="web")))
        page = (await service.request("GET", "/v1/events")).json
        shown = (await event_detail(service, event)).event
    assert (page["fleet_hold"]["reason"], page["events"][0]["hold"]["reason"]) == ("audit", "closing")
    assert shown is not None
    assert shown.hold == v1.Hold(scope="web", created_by="admin", created_at=TEN, reason="closing")
    assert shown.explanation == [
        "all maintenance is held by admin: audit",
        "the scope is held by admin: closing",
        "not before 2026-03-02 10:15:00Z, or earlier if any VM of the scope approves",
    ]
    assert (shown.is_stuck, list(shown.blockers[:2])) == (
        True,
        [
            v1.Blocker(
                code=BlockerCode.HOLD,
                text="all maintenance is held by admin: audit",
                hold=v1.Hold(scope=None, created_by="admin", created_at=TEN, reason="audit"),
                vms=[],
            ),
            v1.Blocker(code=BlockerCode.HOLD, text="the scope is held by admin: closing", hold=shown.hold, vms=[]),
        ],
    )


async def test_event_that_waits_for_a_stuck_one_names_it() -> None:
    async with run_api() as service:
        service.platform.set_outcomes("web/web-0", Failed("no power"))
        first = await schedule_event(service, "Reboot", "web-0")
        second = await schedule_event(service, "Reboot", "web-1")
        await service.fleet.time.advance(timedelta(hours=1))
        failed, waiting = [(await event_detail(service, id_)).event for id_ in (first, second)]
    assert failed is not None
    assert waiting is not None
    assert (failed.is_stuck, failed.blockers) == (
        True,
        [v1.Blocker(code=BlockerCode.IMPACT_STUCK, text="the work on web-0 has failed: no power", vms=["web-0"])],
    )
    assert failed.stuck_vms == ["web-0"]
    turn = f"update domain 0 has its turn: event {first}"
    assert (waiting.is_stuck, waiting.blockers, waiting.explanation) == (
        True,
        [v1.Blocker(code=BlockerCode.UPDATE_DOMAIN_BUSY, text=turn, event=first, vms=[])],
        [turn],
    )


async def test_detail_of_an_open_event_has_the_event_and_its_timeline() -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0", reason="ticket 7")
        (listed,) = await service.client(lambda api: list(api.events()))
        shown = await event_detail(service, id_.lower())
    (entry,) = shown.journal
    assert shown == v1.EventDetail(
        id=id_,
        scope="web",
        type=EventType.REBOOT,
        vms=["web-0"],
        event=listed,
        outcome=None,
        ended_at=None,
        journal=[
            v1.JournalEntry(
                position=entry.position,
                record_kind="scope",
                record_id="web",
                at=TEN,
                action=EntryKind.SCHEDULED,
                actor="admin",
                reason="ticket 7",
                event=id_,
                vms=["web-0"],
                incarnation=2,
                facts={"not_before": "2026-03-02T10:15:00Z", "type": "Reboot", "source": "Platform"},
            )
        ],
    )


async def test_detail_of_an_ended_event_comes_from_the_journal() -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Redeploy", "web-0")
        await service.fleet.events.approve("web", "web-3", [id_])
        await service.fleet.time.advance(timedelta(hours=1))
        shown = await event_detail(service, id_)
    assert (shown.scope, shown.type, shown.vms, shown.event) == ("web", EventType.REDEPLOY, ["web-0"], None)
    assert (shown.outcome, shown.ended_at) == (EventOutcome.COMPLETED, shown.journal[-1].at)
    assert timeline_lines(list(shown.journal)) == [
        (EntryKind.SCHEDULED, "admin"),
        (EntryKind.APPROVED, "vm:web-3"),
        (EntryKind.STARTED, "vm:web-3"),
        (EntryKind.IMPACT_BEGUN, "platform"),
        (EntryKind.IMPACT_DONE, "platform"),
        (EntryKind.COMPLETED, "platform"),
    ]


async def test_very_long_event_detail_has_the_newest_entries_and_its_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_TIMELINE", 2)
    async with run_api() as service:
        id_ = await schedule_event(service, "Reboot", "web-0")
        await service.fleet.time.advance(timedelta(hours=1))
        shown = await event_detail(service, id_)
    assert (shown.type, shown.vms, shown.outcome) == (EventType.REBOOT, ["web-0"], EventOutcome.COMPLETED)
    assert timeline_lines(list(shown.journal)) == [
        (EntryKind.IMPACT_DONE, "platform"),
        (EntryKind.COMPLETED, "platform"),
    ]


async def test_event_detail_outlives_the_scope() -> None:
    async with run_api() as service:
        id_ = await schedule_event(service, "Freeze", "db-0")
        await service.client(lambda api: api.remove_scope("db-0", force=True, reason="not needed"))
        shown = await event_detail(service, id_)
    assert (shown.scope, shown.event, shown.outcome) == ("db-0", None, EventOutcome.CANCELED)
