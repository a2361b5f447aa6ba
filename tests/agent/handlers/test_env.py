"""Variables and JSON that programs of handlers get."""

from datetime import timedelta

import msgspec

from forewarn.agent.handlers.base import Phase
from forewarn.agent.handlers.env import event_json, event_variables, inherited_variables
from forewarn.client.document import Event, Status
from tests.agent.handlers.handler_contexts import EVENT, NOW, handler_context

BARE = Event(id="E1", status=Status.STARTED, type="Hibernate", resources=())


def test_event_is_written_as_the_endpoint_writes_it() -> None:
    assert msgspec.json.decode(event_json(EVENT)) == {
        "EventId": EVENT.id,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0", "web_1"],
        "NotBefore": "Mon, 16 Nov 2026 10:15:00 GMT",
        "Description": EVENT.description,
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }


def test_unknown_fields_are_empty_or_minus_one() -> None:
    written = msgspec.json.decode(event_json(BARE))
    assert (written["NotBefore"], written["Description"], written["EventSource"]) == ("", "", "")
    assert (written["DurationInSeconds"], written["EventType"]) == (-1, "Hibernate")


def test_variables_have_the_event_and_the_time_that_is_left() -> None:
    variables = event_variables(handler_context(attempt=3), NOW + timedelta(minutes=14, seconds=0.5))
    assert variables == {
        "EVENT_ID": EVENT.id,
        "EVENT_TYPE": "Reboot",
        "EVENT_STATUS": "Scheduled",
        "EVENT_SOURCE": "Platform",
        "EVENT_NOTBEFORE": "Mon, 16 Nov 2026 10:15:00 GMT",
        "EVENT_RESOURCES": "web_0,web_1",
        "EVENT_RESOURCETYPE": "VirtualMachine",
        "EVENT_DESCRIPTION": 'Host "maintenance"; $(reboot) <now> & \\ ü',
        "EVENT_DURATION": "9",
        "FOREWARN_PHASE": "prepare",
        "FOREWARN_ATTEMPT": "3",
        "FOREWARN_DEADLINE": str(int((NOW + timedelta(minutes=15)).timestamp())),
        "FOREWARN_SECONDS_LEFT": "59",
        "FOREWARN_NAME": "web_0",
        "FOREWARN_LEADER": "yes",
    }


def test_event_without_a_deadline_leaves_no_time() -> None:
    variables = event_variables(handler_context(Phase.RECOVER, event=BARE, deadline=None, is_leader=False), NOW)
    assert (variables["FOREWARN_DEADLINE"], variables["FOREWARN_SECONDS_LEFT"]) == ("", "")
    assert variables["FOREWARN_LEADER"] == "no"


def test_variable_can_hold_what_no_variable_may_hold() -> None:
    event = msgspec.structs.replace(BARE, description="a\0b\nc\ud800")
    assert event_variables(handler_context(event=event), NOW)["EVENT_DESCRIPTION"] == "a b c "


def test_settings_and_sockets_of_the_agent_are_not_passed_on() -> None:
    environ = {"PATH": "/bin", "FOREWARN_TOKEN": "secret", "EVENT_ID": "x", "LISTEN_FDS": "1", "NOTIFY_SOCKET": "s"}
    assert inherited_variables(environ) == {"PATH": "/bin"}
