"""Message templates: the facts they can contain, and how each is escaped."""

from datetime import timedelta

import pytest

from forewarn.agent.handlers.base import Phase
from forewarn.agent.handlers.templates import escape_for, fill_template, template_facts
from forewarn.agent.settings import TEMPLATE_FIELDS
from forewarn.client.document import Event, Status
from tests.agent.handlers.handler_contexts import EVENT, NOW, handler_context

BARE = Event(id="E1", status=Status.STARTED, type="Hibernate", resources=())


def test_facts_are_those_that_settings_may_name() -> None:
    facts = template_facts(handler_context(attempt=2), NOW + timedelta(minutes=14))
    assert tuple(facts) == TEMPLATE_FIELDS
    assert facts == {
        "id": EVENT.id,
        "type": "Reboot",
        "status": "Scheduled",
        "source": "Platform",
        "description": EVENT.description,
        "not_before": "2026-11-16T10:15:00Z",
        "duration": 9,
        "resources": ["web_0", "web_1"],
        "name": "web_0",
        "phase": "prepare",
        "attempt": 2,
        "seconds_left": 60,
        "leader": True,
    }


def test_unknown_fact_is_none_and_written_as_unknown() -> None:
    facts = template_facts(handler_context(Phase.RECOVER, event=BARE, deadline=None, is_leader=False), NOW)
    assert [name for name, fact in facts.items() if fact is None] == [
        "source",
        "description",
        "not_before",
        "duration",
        "seconds_left",
    ]
    assert fill_template("$source $leader ${resources}|", facts) == "unknown no |"


def test_template_keeps_what_is_no_fact() -> None:
    assert fill_template("$type of $name costs $$5 and $nothing", {"type": "Reboot", "name": "web_0"}) == (
        "Reboot of web_0 costs $5 and $nothing"
    )


@pytest.mark.parametrize(
    ("content_type", "written"),
    [
        ("application/json", r"a\"b & c\nü"),
        ("application/vnd.api+json; charset=utf-8", r"a\"b & c\nü"),
        ("Application/X-WWW-Form-Urlencoded", "a%22b%20%26%20c%0A%C3%BC"),
        ("text/plain", 'a"b & c\nü'),
    ],
)
def test_fact_cannot_break_out_of_its_place(content_type: str, written: str) -> None:
    assert fill_template("<$x>", {"x": 'a"b & c\nü'}, escape_for(content_type)) == f"<{written}>"
