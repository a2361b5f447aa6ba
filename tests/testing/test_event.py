"""Events of the in-test service: identity, and state as the API tells it."""

from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.core.scope import EventOutcome
from forewarn.testing.event import Event
from tests.core.sample_scopes import TEN


class FakeApi:
    """The details of one event."""

    def __init__(self, open_event: object | None, outcome: EventOutcome | None = None) -> None:
        self._detail = SimpleNamespace(event=open_event, outcome=outcome)

    def event(self, id_: str) -> object:
        assert id_ == "E1"
        return self._detail


def an_event(open_event: object | None = None, outcome: EventOutcome | None = None, id_: str = "E1") -> Event:
    api: Any = FakeApi(open_event, outcome)
    return Event(api, id_, "web")


def test_open_event_has_status_start_and_explanation() -> None:
    event = an_event(SimpleNamespace(status="Scheduled", not_before=TEN, explanation=["not before 10:00"]))
    assert (event.state, event.is_open, event.not_before, event.explanation) == (
        "Scheduled",
        True,
        TEN,
        ("not before 10:00",),
    )


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(EventOutcome.COMPLETED, "completed"), (EventOutcome.CANCELED, "canceled"), (None, "unknown")],
)
def test_ended_event_has_its_outcome_and_nothing_else(outcome: EventOutcome | None, state: str) -> None:
    event = an_event(None, outcome)
    assert (event.state, event.is_open, event.not_before, event.explanation) == (state, False, None, ())


def test_events_are_equal_by_id_in_any_case() -> None:
    event = an_event()
    assert event == an_event(id_="e1")
    assert event == "e1"
    assert event != "E2"
    assert event != 1
    assert len({event, an_event(id_="e1")}) == 1
    assert (str(event), repr(event)) == ("E1", "<Event E1 in web>")
