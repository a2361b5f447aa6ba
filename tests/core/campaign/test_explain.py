"""Messages about what a campaign waits for, with the names and values of the policy."""

from typing import Any

import msgspec
import pytest

from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.draft import CampaignBlockers
from forewarn.core.campaign.explain import WaitReasons, stop_reason
from forewarn.core.campaign.limits import ExceededLimit
from forewarn.core.campaign.record import Campaign, CampaignState, ClosedGate
from forewarn.core.campaign.spec import HttpCheck, Limit, Window
from forewarn.core.policy import EMULATOR, RuleContext
from forewarn.core.schedule import schedule
from tests.core.builders import NOW, a_request, a_scope, a_vm, saved_scope
from tests.core.campaign.test_estimate import (
    ANNOUNCED,
    CLEARED,
    CONDITIONS,
    DONE,
    FAILED,
    PLANNED,
    campaign,
    minutes,
    zones,
)

WAITS = ((15, PLANNED, 0),)
NONE = CampaignBlockers()
NO_PLACE = CampaignBlockers(announce_limit=ExceededLimit(what="scopes", limit=2, wanted=3))
NO_ROOM = CampaignBlockers(start_limit=ExceededLimit(what="scopes", limit=2, wanted=3), is_permanent=True)
SHUT = ClosedGate(since=minutes(50), why="503", retry_at=minutes(61))


def waits(value: Campaign, blockers: CampaignBlockers, *, now: float = 10) -> WaitReasons:
    calendar = Calendar(value.spec, CONDITIONS, zones, since=minutes(now))
    taken = WaitReasons(value, calendar, CONDITIONS, blockers, now=minutes(now))
    for progress in value.scopes:
        taken.add(progress)
    return taken


def said(value: Campaign, blockers: CampaignBlockers = NONE, *, now: float = 10) -> tuple[str, ...]:
    return waits(value, blockers, now=now).messages


def halted(value: Campaign) -> Campaign:
    return msgspec.structs.replace(value, state=CampaignState.HALTED)


CASES: dict[str, tuple[Campaign, CampaignBlockers, str]] = {
    "one in progress": (campaign(((9, CLEARED, 9),)), NONE, "1 wave is in progress"),
    "several in progress": (campaign(*[((9, CLEARED, 9),)] * 2), NONE, "2 waves are in progress"),
    "one announced": (
        campaign(((15, ANNOUNCED, 15),)),
        NONE,
        "1 wave is announced, for 2026-03-02 10:15:00Z",
    ),
    "several announced": (
        campaign(((16, ANNOUNCED, 16),), ((15, ANNOUNCED, 15),)),
        NONE,
        "2 waves are announced, the first for 2026-03-02 10:15:00Z",
    ),
    "one is due": (campaign(((9, ANNOUNCED, 9),)), NONE, "1 wave is due, since 2026-03-02 10:09:00Z"),
    "several are due": (
        campaign(((9, ANNOUNCED, 9),), ((8, ANNOUNCED, 8),)),
        NONE,
        "2 waves are due, the first since 2026-03-02 10:08:00Z",
    ),
    "one is in its gap": (
        campaign(((0, DONE, 5), (40, PLANNED, 0))),
        NONE,
        "1 scope waits until 2026-03-02 10:35:00Z, when the gap after its wave is over",
    ),
    "several are in their gap": (
        campaign(*[((0, DONE, 5), (40, PLANNED, 0))] * 2),
        NONE,
        "2 scopes wait until the gap after a wave is over, the first until 2026-03-02 10:35:00Z",
    ),
    "one has no turn yet": (
        campaign(WAITS, scopes_at_once=Limit(2)),
        NO_PLACE,
        "1 scope waits for its turn: scopes_at_once allows 2",
    ),
    "several have no turn yet": (
        campaign(*[WAITS] * 20, scopes_at_once=Limit(percent=10)),
        NO_PLACE,
        "20 scopes wait for their turn: scopes_at_once allows 2 (10%)",
    ),
    "not before its planned time": (
        campaign(WAITS, advance=False),
        NONE,
        "1 scope waits for its planned time, because advance is false",
    ),
    "window closes before the notice is over": (
        campaign(*[WAITS] * 2, windows=(Window(start="10:00", end="10:12"),)),
        NONE,
        "2 scopes wait for a window that is open when their notice is over",
    ),
    "about to be announced": (campaign(WAITS), NONE, "1 scope waits to be announced"),
    "one is held": (
        campaign(WAITS),
        CampaignBlockers(held_scopes=frozenset({"web-0"})),
        "web-0 is held by an operator",
    ),
    "several are held": (
        campaign(WAITS, WAITS),
        CampaignBlockers(held_scopes=frozenset({"web-0", "web-1"})),
        "web-0, web-1 are held by an operator",
    ),
}


@pytest.mark.parametrize(("value", "blockers", "sentence"), CASES.values(), ids=CASES)
def test_message_names_the_reason_for_waiting(value: Campaign, blockers: CampaignBlockers, sentence: str) -> None:
    assert said(value, blockers) == (sentence,)


@pytest.mark.parametrize(
    ("gate", "name"),
    [("health", "health"), (HttpCheck(url="http://lb:81/-/ok?key=s"), "http://lb:81/-/ok")],
    ids=["by name", "by address"],
)
def test_closed_gate_is_named_with_the_scopes_that_wait_for_it(gate: Any, name: str) -> None:
    closed = msgspec.structs.replace(campaign(((9, DONE, 9),), gate=gate), gate=SHUT)
    begin = f"gate {name} has been closed since 2026-03-02 10:50:00Z: 503; "
    again = "next check at 2026-03-02 11:01:00Z"
    assert said(closed, now=60) == (begin + again,)
    assert said(closed, CampaignBlockers(at_gate=("web-0",)), now=60) == (f"{begin}web-0 waits for it; {again}",)
    many = CampaignBlockers(at_gate=tuple(f"web-{n}" for n in range(12)))
    ten_of_them = ", ".join(f"web-{n}" for n in range(10))
    assert said(closed, many, now=60) == (f"{begin}{ten_of_them} and 2 more wait for it; {again}",)


STUCK: dict[str, tuple[Campaign, CampaignBlockers, bool]] = {
    "all have failed": (campaign(((9, FAILED, 9),), ((9, FAILED, 9), (20, PLANNED, 0))), NONE, True),
    "nothing has failed": (campaign(((9, ANNOUNCED, 9),)), NONE, False),
    "another is in progress": (campaign(((9, FAILED, 9),), ((9, CLEARED, 9),)), NONE, False),
    "another is in its gap": (campaign(((9, FAILED, 9),), ((5, DONE, 5), (35, PLANNED, 0))), NONE, False),
    "another has ended but is not closed": (campaign(((9, FAILED, 9),), ((5, DONE, 5),)), NONE, False),
    "another is announced for later": (campaign(((9, FAILED, 9),), ((12, ANNOUNCED, 12),)), NO_ROOM, False),
    "another is due and has permanently no room": (campaign(((9, FAILED, 9),), ((9, ANNOUNCED, 9),)), NO_ROOM, True),
    "another is due and has no room yet": (
        campaign(((9, FAILED, 9),), ((9, ANNOUNCED, 9),)),
        NO_ROOM._replace(is_permanent=False),
        False,
    ),
    "another is due and waits for something else": (campaign(((9, FAILED, 9),), ((9, ANNOUNCED, 9),)), NO_PLACE, False),
    "another can permanently not be announced": (
        campaign(((9, FAILED, 9),), WAITS),
        NO_PLACE._replace(is_permanent=True),
        True,
    ),
    "another is about to be announced": (campaign(((9, FAILED, 9),), WAITS), NONE, False),
    "halted": (halted(campaign(((9, FAILED, 9),))), NONE, False),
}


@pytest.mark.parametrize(("value", "blockers", "is_stuck"), STUCK.values(), ids=STUCK)
def test_campaign_needs_an_operator_if_nothing_else_lets_it_continue(
    value: Campaign, blockers: CampaignBlockers, is_stuck: bool
) -> None:
    assert waits(value, blockers).needs_operator is is_stuck


def test_waves_that_no_document_shows_are_not_called_announced() -> None:
    value = campaign(((16, ANNOUNCED, 16),), ((15, ANNOUNCED, 15),), ((15, ANNOUNCED, 15),))
    reasons = WaitReasons(
        value, Calendar(value.spec, CONDITIONS, zones, since=minutes(10)), CONDITIONS, NONE, now=minutes(10)
    )
    for progress, announced in zip(value.scopes, (True, False, False), strict=True):
        scope = a_scope([a_vm("v0")], id=progress.scope)
        request = a_request("v0", id=value.request(progress.scope, 1), campaign=value.id)
        context = RuleContext(policy=EMULATOR) if announced else RuleContext()
        reasons.add(progress, saved_scope(schedule(scope, request, context, now=NOW)))
    assert reasons.messages == (
        "1 wave is announced, for 2026-03-02 10:16:00Z",
        "2 waves are scheduled, the first for 2026-03-02 10:15:00Z, and not announced: no VM there polls for events",
    )


def test_stop_reason_names_state_or_gate() -> None:
    running = campaign(WAITS)
    paused = msgspec.structs.replace(running, state=CampaignState.PAUSED)
    closed = msgspec.structs.replace(running, gate=SHUT)
    assert [stop_reason(each) for each in (running, paused, closed)] == ["", "it is Paused", "its gate is closed"]
