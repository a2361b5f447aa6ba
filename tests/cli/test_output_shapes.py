"""One JSON shape per kind of object, that of the API, and one format of times, in the output of every command."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from tests.cli.in_process import run, run_json
from tests.cli.service_machine import INVENTORY, ServiceMachine, run_service_machine, schedule_event

KINDS: dict[str, type[msgspec.Struct]] = {
    "event": v1.Event,
    "vm": v1.Vm,
    "scope": v1.Scope,
    "campaign": v1.Campaign,
    "hold": v1.Hold,
    "token": v1.Token,
}

HOLDERS = {"events": "event", "event": "event", "hold": "hold", "fleet_hold": "hold", "token": "token"}
"""Fields with an object of a kind, or a list of them, inside another object."""


def fields(kind: str) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(KINDS[kind])}


def objects(kind: str | None, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a known kind in the JSON of a command."""
    if isinstance(value, list):
        for each in value:
            yield from objects(kind, each)
    elif isinstance(value, dict):
        if kind is not None:
            yield kind, value
        for name, inner in value.items():
            if isinstance(inner, dict | list) and name in HOLDERS:
                yield from objects(HOLDERS[name], inner)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path_factory.mktemp("home"), INVENTORY) as machine:
        yield machine


@pytest.fixture(scope="module")
def shown(machine: ServiceMachine) -> dict[str, list[tuple[str, Any]]]:
    """What each command prints, by the kind of object; None if the objects are inside."""

    def json(*arguments: str) -> Any:
        return run_json(machine, *arguments)

    event, other = schedule_event(machine, "Reboot", "web-0"), schedule_event(machine, "Reboot", "web-1")
    held = [json("hold", "a test", "--scope", "web"), json("hold")]
    campaign = ("--name", "kernel", "--type", "Reboot", "--scope", "db")
    created = json("token", "create", "somebody")
    return {
        "hold": [*held, json("release", "--scope", "web")],
        "event": [
            json("event", "list"),
            json("event", "show", event),
            json("event", "approve", event, "--vm", "web-0"),
            json("event", "cancel", other),
            json("event", "show", other),
        ],
        "vm": [
            json("vm", "list"),
            json("vm", "show", "web-0"),
            json("vm", "add", "x"),
            json("vm", "change", "x", "--zone", "1"),
        ],
        "scope": [
            json("scope", "list"),
            json("scope", "show", "web"),
            json("scope", "add", "y", "--kind", "availability-set"),
            json("scope", "change", "y", "--zone", "1"),
        ],
        "campaign": [
            json("campaign", "start", *campaign),
            json("campaign", "list"),
            json("campaign", "show", "kernel"),
            json("campaign", "pause", "kernel", "--reason", "x"),
            json("campaign", "resume", "kernel"),
            json("campaign", "abort", "kernel", "--reason", "x"),
        ],
        "token": [json("token", "list")],
        "": [created, json("event", "schedule", "Freeze", "web-0"), json("vm", "restart", "web-1")],
    }


def test_every_object_has_the_fields_of_the_api(shown: dict[str, list[tuple[str, Any]]]) -> None:
    found = [one for outer, results in shown.items() for result in results for one in objects(outer or None, result)]
    assert {kind for kind, _ in found} == KINDS.keys()
    missing = [(kind, sorted(fields(kind) - value.keys())) for kind, value in found if fields(kind) - value.keys()]
    assert missing == []


def test_only_an_event_in_detail_has_more_fields(shown: dict[str, list[tuple[str, Any]]]) -> None:
    detail = {"event", "outcome", "ended_at", "journal"}
    more = {
        frozenset(value.keys() - fields(kind))
        for outer, results in shown.items()
        for result in results
        for kind, value in objects(outer or None, result)
    }
    assert more == {frozenset(), frozenset(detail)}


def test_times_for_people_have_one_format(machine: ServiceMachine) -> None:
    """JSON has the format of the API, everything else has a space between date and time."""
    id_ = schedule_event(machine, "Redeploy", "web-0", "--in", "1h")
    commands = (
        ("fault", "set", "slow", "--vm", "web-0", "--for", "1h"),
        ("fault", "list"),
        ("hold", "times"),
        ("event", "list"),
        ("event", "show", id_),
        ("vm", "show", "web-0"),
        ("scope", "show", "web"),
        ("scope", "list"),
        ("doctor", "web-0"),
        ("campaign", "plan", "--name", "k", "--type", "Reboot", "--scope", "web"),
        ("release",),
        ("clock", "advance", "1h"),
        ("clock", "show"),
        ("event", "schedule", "Reboot", "web-0", "--at", "2020-01-31T10:15Z"),
        ("token", "create", "late", "--expires", "2020-01-31T10:15Z"),
        ("journal", "--since", "2030-01-31T10:15Z", "--until", "2029-01-31T10:15Z"),
        ("journal", "--all"),
    )
    texts = {command: "".join(run(machine, *command)[1:]) for command in commands}
    assert all(re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", texts[command]) for command in (commands[4], commands[-1]))
    assert {command: found for command, text in texts.items() if (found := re.findall(r"\S*\dT\d\d:\S*", text))} == {}
