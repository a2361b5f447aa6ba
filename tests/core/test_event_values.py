"""Values refuse to be made wrong, and are read as they were written."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.core.event import Cause, Event, State
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope

ALWAYS = RuleContext(policy=EMULATOR)
EVENT = saved_scope(schedule(a_scope([a_vm("v0")]), a_request("v0"), ALWAYS, now=NOW)).events[0]


def changed(value: Any, **fields: Any) -> Callable[[], object]:
    return lambda: msgspec.structs.replace(value, **fields)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "event id in lower case": (changed(EVENT, id=EVENT.id.lower()), "is not an upper-case GUID"),
    "event without VMs": (changed(EVENT, vms=()), "an event must affect at least one VM"),
    "event that is gone": (changed(EVENT, state=State.GONE), "a stored event must be Scheduled or Started, not gone"),
    "negative duration": (changed(EVENT, duration=timedelta(seconds=-1)), "duration must not be negative"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_value_is_refused(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        make()


def test_only_the_cause_decides_whether_an_event_is_planned() -> None:
    planned = {cause for cause in Cause if planned_with(cause).is_planned}
    assert planned == {Cause.MAINTENANCE}


def planned_with(cause: Cause) -> Event:
    return msgspec.structs.replace(EVENT, cause=cause)
