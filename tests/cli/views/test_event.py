"""Event views: what an event waits for, and lines of the journal."""

from datetime import UTC, datetime
from typing import Any

from forewarn.api import v1
from forewarn.cli.views.event import (
    EVENT_COLUMNS,
    blockers_text,
    entry_location,
    entry_reason,
    event_row,
    hold_cell,
    hold_column,
    hold_text,
    journal_row,
)
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.explain import BlockerCode
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
ID = "602D9444-D2CD-49C7-8624-8643E7171297"
HOLD = v1.Hold(scope="web", created_by="ann", created_at=TEN, reason="audit")


def an_event(**fields: Any) -> v1.Event:
    values: dict[str, Any] = {
        "id": ID,
        "scope": "web",
        "type": EventType.REBOOT,
        "status": "Scheduled",
        "source": Source.PLATFORM,
        "cause": Cause.MAINTENANCE,
        "vms": ("web-0", "web-1"),
        "update_domain": 0,
        "host": None,
        "created_at": TEN,
        "not_before": TEN,
        "started_at": None,
        "duration": None,
        "description": "",
        "created_by": "ann",
        "reason": "",
        "announced": True,
        "approvals": (),
        "impacts": (),
        "explanation": (),
    }
    return v1.Event(**values | fields)


def an_impact(vm: str, state: ImpactState, **fields: Any) -> v1.Impact:
    values: dict[str, Any] = {"attempt": 1, "begun_at": TEN, "retry_at": None, "reason": ""}
    return v1.Impact(vm=vm, state=state, **values | fields)


def test_row_has_id_status_type_scope_vms_and_start() -> None:
    row = event_row(an_event(explanation=("held",)))
    assert (row[0], row[1], row[2], row[3], row[4], row[6]) == (
        ID,
        "Scheduled",
        "Reboot",
        "web",
        "web-0, web-1",
        "held",
    )


def test_event_waits_for_its_blockers_or_for_its_work() -> None:
    assert blockers_text(an_event(explanation=("a", "b"))) == "a; and b"
    assert blockers_text(an_event(explanation=("a",), announced=False)) == "a; unannounced"
    begun = [an_impact(vm, ImpactState.BEGUN) for vm in ("web-0", "web-1")]
    assert blockers_text(an_event(impacts=begun)) == "the work on web-0, web-1, begun"
    put_off = an_impact("web-0", ImpactState.RETRY, retry_at=TEN, reason="busy")
    assert blockers_text(an_event(impacts=[put_off])).endswith(": busy")


def test_stuck_work_is_shown_with_the_command_that_retries_it() -> None:
    impacts = [an_impact("web-0", ImpactState.FAILED), an_impact("web-1", ImpactState.DONE)]
    event = an_event(explanation=("failed",), impacts=impacts)
    assert event.stuck_vms == ["web-0"]
    text = blockers_text(event)
    assert f"`forewarn event retry {ID[:8]}`" in text


def test_only_an_event_that_waits_for_its_campaign_names_the_command_that_shows_why() -> None:
    busy = v1.Blocker(code=BlockerCode.UPDATE_DOMAIN_BUSY, text="busy", event=ID)
    pending = v1.Blocker(code=BlockerCode.CAMPAIGN, text="not cleared")
    texts = [
        blockers_text(
            an_event(campaign=ID, created_by="campaign:kernel", explanation=(blocker.text,), blockers=[blocker])
        )
        for blocker in (busy, pending)
    ]
    assert texts == ["busy", "not cleared (`forewarn campaign show kernel` shows why)"]


def an_entry(**fields: Any) -> v1.JournalEntry:
    values: dict[str, Any] = {
        "position": 1,
        "record_kind": "scope",
        "record_id": "web",
        "at": TEN,
        "action": EntryKind.STARTED,
        "actor": "clock",
        "reason": "due",
        "event": ID,
        "vms": ("a", "b", "c"),
        "incarnation": 3,
        "facts": {},
    }
    return v1.JournalEntry(**values | fields)


def test_line_of_the_journal_names_two_vms_and_the_short_id() -> None:
    row = journal_row(an_entry())
    assert row[1:] == ("started", "web", "a, b and 1 more", ID[:8], "clock", "due")


def test_reason_has_the_facts_that_matter_to_people() -> None:
    facts = {"late": "0.250s", "key": "k", "digest": "d", "not_before": "10:15", "output": "due"}
    assert entry_reason(an_entry(facts=facts)) == "due; not before: 10:15"
    assert entry_reason(an_entry(reason="", facts={"late": "7.000s"})) == "late: 7.000s"


def test_line_of_a_campaign_is_where_its_wave_is() -> None:
    wave = an_entry(record_kind="campaign", record_id="c1", facts={"scope": "web", "wave": "2"})
    assert (entry_location(wave), entry_reason(wave)) == ("web, wave 2", "due")
    assert entry_location(an_entry(record_kind="campaign", facts={})) == "campaign"


def test_hold_is_shown_with_actor_and_reason_and_has_a_column() -> None:
    assert hold_text(HOLD).startswith("Scope web is held by ann")
    assert hold_text(v1.Hold(scope=None, created_by="ann", created_at=TEN, reason="audit")).endswith(": audit")
    columns = hold_column([None, HOLD])
    assert (hold_cell(HOLD, columns), hold_cell(None, columns)) == (("held by ann: audit",), ("",))
    assert (hold_column([None]), hold_cell(HOLD, ())) == ((), ())


def test_times_in_a_journal_line_have_one_format() -> None:
    entry = an_entry(reason="not before 2026-03-02 10:15:00Z", facts={"not_before": "2026-03-02T10:15:00.5Z"})
    assert entry_reason(entry) == "not before 2026-03-02 10:15:00Z; not before: 2026-03-02 10:15:00Z"


def test_start_of_an_event_is_the_last_column_to_be_dropped() -> None:
    droppable = [column for column in EVENT_COLUMNS if column.drop_order]
    assert [column.title for column in sorted(droppable, key=lambda column: -column.drop_order)] == [
        "SCOPE",
        "NOT BEFORE",
    ]
