"""Leader election: the first VM of an event leads, the second is its deputy."""

import pytest

from forewarn.client.document import Event, Status
from forewarn.client.leader_election import deputy, is_deputy, is_leader, leader
from forewarn.core.event import EventType


def an_event(*resources: str) -> Event:
    return Event(id="E1", status=Status.SCHEDULED, type=EventType.REBOOT, resources=resources)


@pytest.mark.parametrize(
    ("resources", "first", "second"),
    [((), None, None), (("a",), "a", None), (("b", "a", "c"), "b", "a")],
    ids=["none", "one", "several"],
)
def test_leader_and_deputy_are_the_first_two(resources: tuple[str, ...], first: str | None, second: str | None) -> None:
    assert (leader(an_event(*resources)), deputy(an_event(*resources))) == (first, second)


def test_exactly_one_vm_leads_and_one_is_its_deputy() -> None:
    names = ("web_1", "web_0", "web_2")
    event = an_event(*names)
    assert [name for name in names if is_leader(event, name)] == ["web_1"]
    assert [name for name in names if is_deputy(event, name)] == ["web_0"]
    assert not is_leader(an_event(), "web_0")
    assert not is_deputy(an_event("web_0"), "web_0")


def test_name_is_compared_as_the_service_writes_it() -> None:
    """In any case, as names of VMs are."""
    assert is_leader(an_event("Web_0"), "web_0")
