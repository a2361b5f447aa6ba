"""The changes between two documents."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client import Appeared, Change, Changed, Ending, Event, Gone, Started
from forewarn.client.changes import compare_events
from tests.support.examples import examples


def make(id_: str = "E1", status: str = "Scheduled", *, type_: str = "Reboot", **more: Any) -> Event:
    return Event(id=id_, status=status, type=type_, resources=more.pop("resources", ("a",)), **more)


E1, E2 = make(), make("E2")
E1_STARTED = make(status="Started")
E1_ODD = make(status="Paused")
E1_MOVED = make(resources=("a", "b"))


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param((), (E1,), (Appeared(E1),), id="appears"),
        pytest.param((), (E1_STARTED,), (Appeared(E1_STARTED), Started(E1_STARTED, E1_STARTED)), id="appears-started"),
        pytest.param((), (E1_ODD,), (Appeared(E1_ODD),), id="appears-in-an-unknown-state"),
        pytest.param((E1,), (E1,), (), id="nothing"),
        pytest.param((E1,), (E1_STARTED,), (Started(E1_STARTED, E1),), id="starts"),
        pytest.param((E1_ODD,), (E1_STARTED,), (Started(E1_STARTED, E1_ODD),), id="starts-from-an-unknown-state"),
        pytest.param((E1,), (E1_MOVED,), (Changed(E1_MOVED, E1),), id="changes"),
        pytest.param((E1,), (E1_ODD,), (Changed(E1_ODD, E1),), id="changes-to-an-unknown-state"),
        pytest.param((E1_STARTED,), (E1,), (Changed(E1, E1_STARTED),), id="goes-back"),
        pytest.param((E1,), (), (Gone(E1, Ending.WITHDRAWN),), id="is-withdrawn"),
        pytest.param((E1_STARTED,), (), (Gone(E1_STARTED, Ending.FINISHED),), id="finishes"),
        pytest.param((E1_ODD,), (), (Gone(E1_ODD, Ending.FINISHED),), id="goes-from-an-unknown-state"),
        pytest.param((E1,), (E2,), (Appeared(E2), Gone(E1, Ending.WITHDRAWN)), id="one-replaces-another"),
        pytest.param((E1, E2), (E2, E1), (), id="order-means-nothing"),
    ],
)
def test_changes_between_documents(
    before: tuple[Event, ...], after: tuple[Event, ...], changes: tuple[Change, ...]
) -> None:
    assert compare_events(before, after) == changes


def test_changes_support_positional_matching() -> None:
    match compare_events((E1_STARTED,), ())[0]:
        case Gone(event, Ending.FINISHED):
            assert event == E1_STARTED
        case _:
            pytest.fail("not matched")


EVENTS = st.builds(
    make,
    st.sampled_from(["E1", "e1", "E2", "E3"]),
    st.sampled_from(["Scheduled", "Started", "Paused", ""]),
    type_=st.sampled_from(["Reboot", "Freeze"]),
    resources=st.sampled_from([(), ("a",), ("a", "b"), ("_A",)]),
)
DOCUMENTS = st.lists(EVENTS, max_size=4, unique_by=lambda event: event.id.upper()).map(tuple)


def fold(changes: list[Change]) -> dict[str, Event]:
    """Return the events that a caller knows after these changes; fail on an impossible order."""
    known: dict[str, Event] = {}
    for change in changes:
        id_ = change.event.id.upper()
        match change:
            case Appeared(event):
                assert id_ not in known, "appeared twice"
                known[id_] = event
            case Changed(event, before):
                assert known[id_] == before != event
                known[id_] = event
            case Started(event, before):
                assert known[id_] == before
                assert event.is_started
                known[id_] = event
            case Gone(event, how):
                assert known.pop(id_) == event, "Gone has another event"
                assert (how is Ending.WITHDRAWN) == (event.status == "Scheduled")
    return known


@given(st.lists(DOCUMENTS, max_size=8))
@settings(max_examples=examples(200))
def test_folded_changes_are_the_last_document(documents: list[tuple[Event, ...]]) -> None:
    changes = [change for before, after in pairwise([(), *documents]) for change in compare_events(before, after)]
    last = documents[-1] if documents else ()
    assert fold(changes) == {event.id.upper(): event for event in last}


@given(DOCUMENTS, DOCUMENTS)
@settings(max_examples=examples(200))
def test_every_difference_is_reported_once_and_nothing_else(
    before: tuple[Event, ...], after: tuple[Event, ...]
) -> None:
    old, new = ({event.id.upper(): event for event in events} for events in (before, after))
    told = [(change.event.id.upper(), type(change)) for change in compare_events(before, after)]
    assert len(told) == len(set(told))
    assert {id_ for id_, _ in told} == {id_ for id_ in old | new if old.get(id_) != new.get(id_)}
