"""A restored scope: guests see a new epoch beyond all they have seen, and no work is begun or repeated by itself."""

from datetime import timedelta

from forewarn.core.impact import Impact, ImpactState
from forewarn.core.impact_lifecycle import begin, impacts_to_begin, retry
from forewarn.core.journal import EntryKind
from forewarn.core.operations import restart
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.restore import INCARNATION_STEP, RestoreResult, restore
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from tests.core.builders import NOW, a_request, a_scope, a_vm, guid, saved_scope

LATER = NOW + timedelta(hours=1)
WHY = "restored from monday.db"


def working_scope() -> Scope:
    """Return a scope in which v0 is being rebooted, and v1 is about to be."""
    scope = a_scope([a_vm("v0"), a_vm("v1"), a_vm("v2")])
    scope = saved_scope(schedule(scope, a_request("v0", "v1", failure=True), RuleContext(policy=EMULATOR), now=NOW))
    (event,) = scope.events
    return saved_scope(begin(scope, event.id, "v0", now=NOW))


def test_restored_scope_begins_a_new_epoch_beyond_what_guests_have_seen() -> None:
    scope = a_scope([a_vm("v0")])
    for shown, known in ((0, scope.incarnation), (77, 77)):
        change = restore(scope, epoch="e2", shown=shown, why=WHY, now=LATER)
        restored = saved_scope(change)
        assert (restored.epoch, restored.incarnation) == ("e2", known + INCARNATION_STEP)
        assert [(entry.kind, entry.by, entry.why, entry.incarnation) for entry in change.entries] == [
            (EntryKind.RESTORED, "restore", WHY, restored.incarnation)
        ]


def test_work_that_had_not_ended_becomes_unknown_until_a_person_decides() -> None:
    scope = working_scope()
    (event,) = scope.events
    change = restore(scope, epoch="e2", shown=0, why=WHY, now=LATER)
    restored = saved_scope(change)
    entries = {vm: entry.n for entry in change.entries if entry.kind is EntryKind.IMPACT_UNKNOWN for vm in entry.vms}
    why = f"{WHY}; the work may have been done since"
    assert restored.events[0].impacts == (
        Impact(vm="v0", state=ImpactState.UNKNOWN, attempt=1, begun_at=NOW, why=why, stuck_entry=entries["v0"]),
        Impact(vm="v1", state=ImpactState.UNKNOWN, why=why, stuck_entry=entries["v1"]),
    )
    assert [(of.id, impact.vm) for of, impact in change.result.unknown] == [(event.id, "v0"), (event.id, "v1")]
    assert impacts_to_begin(restored, now=LATER) == ()
    assert list(entries) == ["v0", "v1"]
    again = saved_scope(retry(restored, event.id, "v1", by="ann", now=LATER))
    assert [impact.vm for _, impact in impacts_to_begin(again, now=LATER)] == ["v1"]


def test_second_restore_keeps_what_is_already_unknown() -> None:
    once = saved_scope(restore(working_scope(), epoch="e2", shown=0, why=WHY, now=LATER))
    twice = restore(once, epoch="e3", shown=0, why="restored from sunday.db", now=LATER)
    assert (twice.result, saved_scope(twice).events) == (RestoreResult((), ()), once.events)


def test_scheduled_events_that_a_hold_does_not_stop_are_canceled() -> None:
    """A restart that its owner asked for before the backup would happen a second time."""
    scope = a_scope([a_vm("v0"), a_vm("v1", update_domain=1)])
    for request in (
        restart("v0", request=guid("restart"), by="ann"),
        a_request("v1", id=guid("planned"), notice=timedelta(hours=1)),
    ):
        scope = saved_scope(schedule(scope, request, RuleContext(policy=EMULATOR), now=NOW))
    users, planned = sorted(scope.events, key=lambda event: event.is_planned)
    change = restore(scope, epoch="e2", shown=0, why=WHY, now=LATER)
    assert (change.result, saved_scope(change).events) == (RestoreResult((), (users,)), (planned,))
    assert [(entry.kind, entry.event) for entry in change.entries[1:]] == [(EntryKind.CANCELED, users.id)]
