"""Actions and findings of a campaign, as plain values."""

import inspect
from typing import get_args

import pytest

from forewarn.core.campaign import actions
from forewarn.core.campaign.actions import (
    Action,
    ActionResult,
    AnnounceWave,
    CheckGate,
    Finding,
    ReadOutcome,
    ScopeClosed,
    ScopeDiff,
    WaveAnnounced,
)
from forewarn.core.campaign.index import PendingActions
from forewarn.core.campaign.limits import Load
from tests.core.sample_scopes import TEN

KINDS = (*get_args(Action), *get_args(Finding))


def test_every_value_of_the_module_is_an_action_or_a_finding() -> None:
    """Exhaustive matches over both unions would not see another one."""
    values = [
        value for value in vars(actions).values() if inspect.isclass(value) and value.__module__ == actions.__name__
    ]
    assert [value for value in values if value not in KINDS] == [ScopeDiff, ActionResult]


@pytest.mark.parametrize("kind", KINDS)
def test_action_and_finding_begin_with_their_scope(kind: type[Action | Finding]) -> None:
    assert kind.__match_args__[0] == "scope"


def test_equal_actions_are_one_pending_action() -> None:
    load = Load("web", ("hv-0",), 2)
    assert len({AnnounceWave("web", 1, TEN, load), AnnounceWave("web", 1, TEN, Load("web", ("hv-0",), 2))}) == 1


def test_actions_of_different_types_are_different() -> None:
    """While a read of the journal is pending, a gate check of the same wave is requested all the same."""
    pending = PendingActions()
    assert pending.add(ReadOutcome("web", 1))
    assert pending.add(CheckGate("web", 1))
    pending.discard(CheckGate("web", 1))
    assert (pending.gate_checks, pending.has_work) == (0, True)


def test_finding_has_no_differences_and_nothing_left_by_default() -> None:
    announced = WaveAnnounced("web", 1, 2, TEN, seen=7)
    assert announced.differences == ScopeDiff(came=(), went=(), moved=(), changed=())
    assert ScopeClosed("web").left == ()
    assert ActionResult(CheckGate("web", 1)).finding is None
