"""The service policy: defaults, presets and what it refuses."""

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, PRODUCTION, AnnouncePolicy, Policy, RuleContext

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "policy without a notice": (lambda: Policy(minimum_notice={}), "minimum_notice has no value for Freeze, Reboot"),
    "speed 0": (lambda: Policy(speed=0.0), "speed must be greater than 0, got 0.0"),
    "speed that is no number": (lambda: Policy(speed=float("nan")), "speed must be greater than 0, got nan"),
    "no user operations": (lambda: Policy(user_operations=0), "user_operations must be at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_policy_is_refused(case: str) -> None:
    create, message = REFUSED[case]
    with pytest.raises(Invalid, match=re.escape(message)):
        create()


def test_default_policy_is_the_production_preset() -> None:
    """PROTOCOL §6: minimum notices, and a day of silence."""
    assert Policy() == PRODUCTION
    assert PRODUCTION.minimum_notice == {
        EventType.FREEZE: timedelta(minutes=15),
        EventType.REBOOT: timedelta(minutes=15),
        EventType.REDEPLOY: timedelta(minutes=10),
        EventType.PREEMPT: timedelta(seconds=30),
        EventType.TERMINATE: timedelta(minutes=5),
        EventType.SPOT_REBALANCE_RECOMMENDATION: timedelta(seconds=30),
    }
    assert not PRODUCTION.allows_unreleased
    assert (PRODUCTION.announce, PRODUCTION.enforce_notice, PRODUCTION.idle_after, PRODUCTION.speed) == (
        AnnouncePolicy.WHEN_ENABLED,
        True,
        timedelta(hours=24),
        1.0,
    )


def test_emulator_announces_always_never_disables_and_takes_any_notice() -> None:
    changes = msgspec.structs.replace(PRODUCTION, announce=AnnouncePolicy.ALWAYS, enforce_notice=False, idle_after=None)
    assert changes == EMULATOR


def test_notices_of_one_policy_are_not_those_of_another() -> None:
    """The default is a new dictionary each time."""
    assert Policy().minimum_notice is not Policy().minimum_notice


def test_context_is_production_without_hold_and_outages() -> None:
    assert RuleContext() == RuleContext(policy=PRODUCTION, hold=None, outages=())


@pytest.mark.parametrize(
    ("notice", "shown"),
    [
        pytest.param(timedelta(minutes=15), timedelta(seconds=15), id="divided by the speed"),
        pytest.param(timedelta(seconds=30), timedelta(seconds=10), id="not shorter than the shortest notice"),
        pytest.param(timedelta(seconds=8), timedelta(seconds=8), id="short by itself"),
    ],
)
def test_speed_makes_no_notice_shorter_than_the_shortest(notice: timedelta, shown: timedelta) -> None:
    policy = Policy(speed=60, shortest_notice=timedelta(seconds=10))
    assert policy.faster_notice(notice) == shown
    assert Policy(speed=60).faster_notice(notice) == notice / 60
    assert Policy(shortest_notice=timedelta(hours=1)).faster_notice(notice) == notice
