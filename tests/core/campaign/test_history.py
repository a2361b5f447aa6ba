"""The history of a campaign in a scope's journal."""

from datetime import timedelta

from forewarn.core.campaign.actions import ScopeDiff
from forewarn.core.campaign.history import RELEVANT_KINDS, ScopeHistory, read_history
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import EventOutcome
from tests.core.sample_scopes import TEN

KERNEL = "kernel"


def journal(*lines: tuple[EntryKind, str | None, tuple[str, ...], dict[str, str]]) -> list[Entry]:
    """Return a journal with one row per minute."""
    return [
        Entry(n=n, at=TEN + timedelta(minutes=n), kind=did, by="x", event=event, vms=vms, facts=facts)
        for n, (did, event, vms, facts) in enumerate(lines, 1)
    ]


def made(
    event: str, *vms: str, wave: int = 1, campaign: str = KERNEL
) -> tuple[EntryKind, str, tuple[str, ...], dict[str, str]]:
    return EntryKind.SCHEDULED, event, vms, {"campaign": campaign, "wave": str(wave)}


def test_empty_journal_gives_an_empty_history() -> None:
    assert read_history([], KERNEL, seen=7) == ScopeHistory(frozenset(), frozenset(), frozenset(), {}, ScopeDiff(), 7)


def test_vms_are_done_when_their_impacts_of_the_campaign_are_done() -> None:
    history = read_history(
        journal(
            made("E1", "a", "b"),
            (EntryKind.SCHEDULED, "E2", ("c",), {}),
            made("E3", "d", campaign="other"),
            (EntryKind.IMPACT_DONE, "E1", ("a",), {}),
            (EntryKind.IMPACT_DONE, "E2", ("c",), {}),
            (EntryKind.IMPACT_DONE, "E3", ("d",), {}),
            (EntryKind.FAILED, "E1", ("a", "b"), {}),
        ),
        KERNEL,
    )
    assert (history.done, history.touched) == (frozenset({"a"}), frozenset({"a", "b"}))
    assert history.outcomes == {1: (EventOutcome.FAILED,)}


def test_last_attempt_of_a_wave_counts() -> None:
    history = read_history(
        journal(
            made("E1", "a"),
            made("E2", "b"),
            (EntryKind.COMPLETED, "E1", ("a",), {}),
            (EntryKind.FAILED, "E2", ("b",), {}),
            made("E3", "b"),
            (EntryKind.COMPLETED, "E3", ("b",), {}),
        ),
        KERNEL,
    )
    assert history.outcomes == {1: (EventOutcome.COMPLETED,)}


def test_vm_that_left_its_event_by_moving_is_not_done() -> None:
    history = read_history(journal(made("E1", "a"), (EntryKind.CANCELED, "E1", ("a",), {"dropped": "a"})), KERNEL)
    assert (history.touched, history.dropped) == (frozenset(), frozenset({"a"}))
    assert history.outcomes == {1: (EventOutcome.CANCELED,)}


def test_event_that_was_split_off_belongs_to_the_wave() -> None:
    history = read_history(
        journal(
            made("E1", "a", "b", wave=2),
            (EntryKind.SCHEDULED, "E2", ("b",), {"campaign": KERNEL}),
            (EntryKind.COMPLETED, "E1", ("a",), {}),
            (EntryKind.COMPLETED, "E2", ("b",), {}),
        ),
        KERNEL,
    )
    assert history.outcomes == {2: (EventOutcome.COMPLETED, EventOutcome.COMPLETED)}


def test_changes_are_reported_once_and_not_for_vms_that_are_done() -> None:
    entries = journal(
        (EntryKind.VM_ADDED, None, ("known",), {}),
        (EntryKind.VM_ADDED, None, ("new", "passing"), {}),
        (EntryKind.VM_REMOVED, None, ("passing",), {}),
        (EntryKind.VM_REMOVED, None, ("gone",), {}),
        made("E1", "done"),
        (EntryKind.IMPACT_DONE, "E1", ("done",), {}),
        (EntryKind.VM_MOVED, None, ("done",), {}),
        (EntryKind.VM_MOVED, None, ("elsewhere",), {}),
        (EntryKind.VM_CHANGED, None, ("other",), {}),
    )
    history = read_history(entries, KERNEL, seen=1)
    assert history.differences == ScopeDiff(came=("new",), went=("gone",), moved=("elsewhere",), changed=("other",))
    assert read_history(entries, KERNEL, seen=history.seen).differences == ScopeDiff()


def test_every_queried_entry_kind_is_handled() -> None:
    entries = journal(
        *((did, None, ("a",), {}) for did in RELEVANT_KINDS), *((did, "E1", ("a",), {}) for did in RELEVANT_KINDS)
    )
    assert read_history(entries, KERNEL).seen == 2 * len(RELEVANT_KINDS)
