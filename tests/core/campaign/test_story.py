"""What the journal of a scope says of a campaign."""

from datetime import timedelta

from forewarn.core.campaign.actions import Differences
from forewarn.core.campaign.story import READ, Story, read
from forewarn.core.journal import Did, Entry
from forewarn.core.scope import Outcome
from tests.fleet.stage import TEN

KERNEL = "kernel"


def journal(*lines: tuple[Did, str | None, tuple[str, ...], dict[str, str]]) -> list[Entry]:
    """Write a journal, a line a minute."""
    return [
        Entry(n=n, at=TEN + timedelta(minutes=n), did=did, by="x", event=event, vms=vms, facts=facts)
        for n, (did, event, vms, facts) in enumerate(lines, 1)
    ]


def made(
    event: str, *vms: str, wave: int = 1, campaign: str = KERNEL
) -> tuple[Did, str, tuple[str, ...], dict[str, str]]:
    return Did.SCHEDULED, event, vms, {"campaign": campaign, "wave": str(wave)}


def test_empty_journal_says_nothing() -> None:
    assert read([], KERNEL, seen=7) == Story(frozenset(), frozenset(), frozenset(), {}, Differences(), 7)


def test_vms_are_done_when_their_work_is_and_only_in_events_of_the_campaign() -> None:
    story = read(
        journal(
            made("E1", "a", "b"),
            (Did.SCHEDULED, "E2", ("c",), {}),
            made("E3", "d", campaign="other"),
            (Did.IMPACT_DONE, "E1", ("a",), {}),
            (Did.IMPACT_DONE, "E2", ("c",), {}),
            (Did.IMPACT_DONE, "E3", ("d",), {}),
            (Did.FAILED, "E1", ("a", "b"), {}),
        ),
        KERNEL,
    )
    assert (story.done, story.touched) == (frozenset({"a"}), frozenset({"a", "b"}))
    assert story.outcomes == {1: (Outcome.FAILED,)}


def test_of_a_wave_that_was_asked_for_again_the_last_time_counts() -> None:
    story = read(
        journal(
            made("E1", "a"),
            made("E2", "b"),
            (Did.COMPLETED, "E1", ("a",), {}),
            (Did.FAILED, "E2", ("b",), {}),
            made("E3", "b"),
            (Did.COMPLETED, "E3", ("b",), {}),
        ),
        KERNEL,
    )
    assert story.outcomes == {1: (Outcome.COMPLETED,)}


def test_vm_that_left_its_event_by_moving_is_not_done_with() -> None:
    story = read(journal(made("E1", "a"), (Did.CANCELED, "E1", ("a",), {"dropped": "a"})), KERNEL)
    assert (story.touched, story.dropped) == (frozenset(), frozenset({"a"}))
    assert story.outcomes == {1: (Outcome.CANCELED,)}


def test_event_that_was_split_off_belongs_to_the_wave() -> None:
    story = read(
        journal(
            made("E1", "a", "b", wave=2),
            (Did.SCHEDULED, "E2", ("b",), {"campaign": KERNEL}),
            (Did.COMPLETED, "E1", ("a",), {}),
            (Did.COMPLETED, "E2", ("b",), {}),
        ),
        KERNEL,
    )
    assert story.outcomes == {2: (Outcome.COMPLETED, Outcome.COMPLETED)}


def test_differences_are_told_once_and_not_of_vms_that_are_done() -> None:
    entries = journal(
        (Did.VM_ADDED, None, ("known",), {}),
        (Did.VM_ADDED, None, ("new", "passing"), {}),
        (Did.VM_REMOVED, None, ("passing",), {}),
        (Did.VM_REMOVED, None, ("gone",), {}),
        made("E1", "done"),
        (Did.IMPACT_DONE, "E1", ("done",), {}),
        (Did.VM_MOVED, None, ("done",), {}),
        (Did.VM_MOVED, None, ("elsewhere",), {}),
        (Did.VM_CHANGED, None, ("other",), {}),
    )
    story = read(entries, KERNEL, seen=1)
    assert story.differences == Differences(came=("new",), went=("gone",), moved=("elsewhere",), changed=("other",))
    assert read(entries, KERNEL, seen=story.seen).differences == Differences()


def test_every_line_that_is_asked_for_is_understood() -> None:
    entries = journal(*((did, None, ("a",), {}) for did in READ), *((did, "E1", ("a",), {}) for did in READ))
    assert read(entries, KERNEL).seen == 2 * len(READ)
