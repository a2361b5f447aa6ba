"""Scopes: how rules are applied to them, and what their changes rest on."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.core.approval import approve
from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.operations import hold
from forewarn.core.policy import EMULATOR, PRODUCTION, RuleContext
from forewarn.core.scope import Hold, ScopeKind
from forewarn.fleet.errors import ScopeNotFound
from forewarn.fleet.event_loop import SLICE_ITEMS
from forewarn.fleet.hold_record import FLEET_HOLD
from forewarn.fleet.main_loop import RecordChange
from forewarn.fleet.scopes import ScopeChange, guarded
from forewarn.store.memory import MemoryStore
from forewarn.store.port import NO_GUARDS, Guards, RecordKey, RecordKind
from forewarn.wire.document import encode_document
from forewarn.wire.protocol import PREVIEW_VERSION
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import CallbackObserver, run_fleet, until

HOUR = timedelta(hours=1)


class RecordingStore(MemoryStore):
    """Records the entry kinds and guards of each save of a scope."""

    def __init__(self) -> None:
        super().__init__()
        self.scope_saves: list[tuple[list[EntryKind], Guards]] = []

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Record the save, then save."""
        if key.kind is RecordKind.SCOPE:
            self.scope_saves.append(([entry.kind for entry in entries], guards))
        return await super().save(key, value, entries, expected=expected, guards=guards)


async def test_event_saved_by_an_older_version_is_shown_unchanged() -> None:
    """Then an event did not say which of its VMs are role instances: it was read from the VMs."""
    store = MemoryStore()
    instance = msgspec.structs.replace(vm("Front_IN_0"), role_instance=True)
    service = scope("service", instance, vm("web_0"), kind=ScopeKind.CLOUD_SERVICE)
    async with run_fleet(service, store=store) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "Front_IN_0", "web_0", notice=HOUR))
        shown = encode_document(fleet.replica.scope("service"), PREVIEW_VERSION)
    key = RecordKey(RecordKind.SCOPE, "service")
    record = await store.load(key)
    assert record is not None
    saved = msgspec.json.decode(record.value)
    for event in saved["events"]:
        del event["role_instances"]
    await store.save(key, msgspec.json.encode(saved), [], expected=record.revision)
    async with run_fleet(store=store) as fleet:
        assert encode_document(fleet.replica.scope("service"), PREVIEW_VERSION) == shown
        assert b'"Front_IN_0"' in shown
        assert b'"_web_0"' in shown


async def test_rule_for_a_scope_that_does_not_exist_is_refused() -> None:
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(ScopeNotFound) as refused:
            await fleet.scopes.apply("db", lambda value: Change(value, (), None))
        assert refused.value.scope == "db"


async def test_result_of_a_rule_is_returned_when_its_change_is_saved() -> None:
    async with run_fleet(web_scope()) as fleet:
        assert await fleet.scopes.apply("web", lambda value: Change(value, (), value.id)) == "web"
        await fleet.scopes.apply("web", lambda value: hold(value, by="ann", reason="audit", now=TEN))
        assert fleet.replica.scope("web").hold == Hold(by="ann", at=TEN, reason="audit")


async def test_start_of_an_event_rests_on_the_hold_of_the_fleet() -> None:
    """Other changes do not: a hold must not make them be decided again."""
    store = RecordingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        store.scope_saves.clear()
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
    assert store.scope_saves[:2] == [
        ([EntryKind.SCHEDULED], {}),
        ([EntryKind.APPROVED, EntryKind.STARTED], {FLEET_HOLD: None}),
    ]


async def test_decision_of_a_rule_names_its_guards_and_a_start_adds_the_hold() -> None:
    store = RecordingStore()
    async with run_fleet(web_scope(), scope("db", vm("db-0")), store=store) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.scope_saves.clear()
        on_web: Guards = {RecordKey(RecordKind.SCOPE, "web"): fleet.replica.newest("web")[1]}
        await fleet.scopes.apply("db", lambda value: guarded(hold(value, by="ann", reason="audit", now=TEN), on_web))
        on_db: Guards = {RecordKey(RecordKind.SCOPE, "db"): fleet.replica.newest("db")[1]}
        await fleet.scopes.apply(
            "web", lambda value: guarded(approve(value, "web-0", [id_], fleet.scopes.rule_context, now=TEN), on_db)
        )
    assert store.scope_saves[:2] == [
        ([EntryKind.HELD], on_web),
        ([EntryKind.APPROVED, EntryKind.STARTED], {**on_db, FLEET_HOLD: None}),
    ]


async def test_context_of_rules_has_policy_and_hold_and_is_the_same_until_one_changes() -> None:
    async with run_fleet(web_scope()) as fleet:
        context = fleet.scopes.rule_context
        assert context == RuleContext(policy=EMULATOR)
        assert fleet.scopes.rule_context is context
        await fleet.holds.set(by="ann", reason="audit")
        assert fleet.scopes.rule_context == RuleContext(policy=EMULATOR, hold=Hold(by="ann", at=TEN, reason="audit"))
        fleet.use_policy(PRODUCTION)
        assert fleet.scopes.rule_context.policy == PRODUCTION


async def test_scope_in_which_only_time_has_passed_is_shown_to_observers() -> None:
    changes: list[ScopeChange] = []
    async with run_fleet(web_scope()) as fleet:
        CallbackObserver(fleet, changes.append)
        view = fleet.replica.view("web")
        fleet.scopes.notify(view)
        assert changes == [RecordChange("web", view.scope, view.scope)]


async def test_manual_clock_makes_turns_of_equal_length() -> None:
    """So everything happens in the same order on every machine."""
    async with run_fleet() as manual, run_fleet(clock=SystemClock()) as real:
        assert (manual.scopes.new_fair_share()._max_items, real.scopes.new_fair_share()._max_items) == (
            SLICE_ITEMS,
            None,
        )


async def test_roster_observers_get_changes_of_vms_and_existence_and_not_of_events() -> None:
    seen: list[tuple[bool, bool]] = []
    async with run_fleet() as fleet:
        fleet.scopes.roster_observers.append(
            lambda change: seen.append((change.before is not None, change.after is not None))
        )
        await fleet.inventory.add_scope(web_scope(), by="t")
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        fleet.scopes.notify(fleet.replica.view("web"))
        assert seen == [(False, True)]
        await fleet.inventory.add_vm("web", vm("web-6"), by="t")
        await fleet.inventory.remove_scope("web", by="t", force=True)
        assert seen == [(False, True), (True, True), (True, False)]


async def test_roster_observers_get_no_changes_of_events_that_another_process_saves() -> None:
    store, seen = MemoryStore(), list[tuple[bool, bool]]()
    async with run_fleet(store=store) as other, run_fleet(store=store) as fleet:
        fleet.scopes.roster_observers.append(
            lambda change: seen.append((change.before is not None, change.after is not None))
        )
        await other.inventory.add_scope(web_scope(), by="t")
        await other.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await until(lambda: (found := fleet.replica.newest("web")[0]) is not None and len(found.events) == 1)
        assert seen == [(False, True)]
        await other.inventory.add_vm("web", vm("web-6"), by="t")
        await other.inventory.remove_scope("web", by="t", force=True)
        await until(lambda: fleet.replica.newest("web")[0] is None)
        assert seen == [(False, True), (True, True), (True, False)]


async def test_added_observers_get_a_change_before_roster_observers_and_long_polls() -> None:
    seen: list[str] = []
    async with run_fleet(web_scope()) as fleet:
        fleet.replica.view("web").wait_for_change(lambda: seen.append("long poll"))
        fleet.scopes.roster_observers.append(lambda _: seen.append("roster"))
        fleet.scopes.add_observers(lambda _: seen.append("first"))
        fleet.scopes.add_observers(lambda _: seen.append("second"))
        await fleet.inventory.remove_scope("web", by="t")
        assert seen == ["first", "second", "roster", "long poll"]
