"""Journal entries: their kinds, and how they are stored."""

import msgspec

from forewarn.core.event import TRANSITIONS
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS, EVENT_CHANGE_KINDS, Entry, EntryKind
from tests.core.builders import NOW, guid


def test_entry_is_decoded_as_it_was_encoded() -> None:
    entry = Entry(
        n=3,
        at=NOW,
        kind=EntryKind.STARTED,
        by="clock",
        why="due",
        event=guid("event"),
        vms=("v0",),
        incarnation=7,
        facts={"late": "0.000s"},
    )
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry


def test_entry_is_stored_without_the_fields_that_it_does_not_have() -> None:
    entry = Entry(n=1, at=NOW, kind=EntryKind.HELD, by="ann")
    assert msgspec.to_builtins(entry) == {"n": 1, "at": "2030-01-07T10:00:00Z", "did": "held", "by": "ann"}


def test_kinds_that_change_an_event_are_those_of_its_transitions_except_approval() -> None:
    kinds = {transition.entry_kind for transition in TRANSITIONS.values()}
    assert kinds - {EntryKind.APPROVED} == EVENT_CHANGE_KINDS


def test_kinds_of_campaigns_are_those_of_campaigns_waves_and_gates() -> None:
    assert {kind.name.partition("_")[0] for kind in CAMPAIGN_CHANGE_KINDS} == {"CAMPAIGN", "WAVE", "GATE"}
    others = set(EntryKind) - CAMPAIGN_CHANGE_KINDS
    assert not any(kind.name.startswith(("CAMPAIGN_", "WAVE_", "GATE_")) for kind in others)
