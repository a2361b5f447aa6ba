"""Approval decisions: a table of workflows and the expected decision."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.agent.phases import Phase
from forewarn.agent.settings import ApprovalMode, ApprovalSettings
from forewarn.agent.workflow.approval import (
    ApprovalAllowed,
    ApprovalDecision,
    ApprovalDelayed,
    ApprovalNotAllowed,
    ApprovalPolicy,
    PeersRequired,
    decide_approval,
)
from forewarn.agent.workflow.state import EventWorkflow, PeerState
from forewarn.client import Ending, EventType, Source
from tests.agent.harness import NOON, event, seconds, started

BOTH = ("web_0", "web_1")
PEERS = frozenset({"web_0", "web_1", "web_2"})
LEADER = ApprovalPolicy()
AT_NOT_BEFORE = NOON + timedelta(minutes=15)


def workflow(me: str = "web_0", ready_at: datetime | None = NOON, **facts: Any) -> EventWorkflow:
    """Return a workflow that has been ready since noon."""
    shown = event(**facts)
    return EventWorkflow(event=shown, vm_name=me, phase=Phase.READY, noticed_at=NOON, ready_at=ready_at)


def told(before: EventWorkflow, *words: PeerState) -> EventWorkflow:
    return replace(before, peers=words, peers_asked_at=NOON)


def ready(name: str) -> PeerState:
    return PeerState(name=name, is_ready=True, reason="ready")


def not_ready(name: str) -> PeerState:
    return PeerState(name=name, is_ready=False, reason="request timed out")


ALONE = ApprovalAllowed("this VM is ready, and no other VM is affected")
AT_ONCE = ApprovalAllowed("this VM is ready, and this kind of event does not wait for the other VMs")
TURN = ApprovalDelayed("web_0 approves for all; this VM takes over if it does not", NOON + seconds(60))

VERDICTS: dict[str, tuple[EventWorkflow, ApprovalPolicy, frozenset[str], float, ApprovalDecision]] = {
    "alone": (workflow(), LEADER, frozenset(), 0, ALONE),
    "its name in other case": (workflow(me="WEB_0"), LEADER, frozenset(), 0, ALONE),
    "its name with the first version's underscore": (workflow(resources=("_web_0",)), LEADER, frozenset(), 0, ALONE),
    "never": (
        workflow(),
        ApprovalPolicy(settings=ApprovalSettings(policy=ApprovalMode.NEVER)),
        PEERS,
        0,
        ApprovalNotAllowed("this agent never approves; the event starts at its NotBefore"),
    ),
    "not ready": (workflow(ready_at=None), LEADER, PEERS, 0, ApprovalNotAllowed("this VM is not ready")),
    "started": (
        replace(workflow(), event=started(event())),
        LEADER,
        PEERS,
        0,
        ApprovalNotAllowed("the event is not waiting for approval"),
    ),
    "gone": (
        replace(workflow(), ending=Ending.WITHDRAWN),
        LEADER,
        PEERS,
        0,
        ApprovalNotAllowed("the event is not waiting for approval"),
    ),
    "no rule matches": (
        replace(workflow(), is_notify_only=True),
        LEADER,
        PEERS,
        0,
        ApprovalNotAllowed("no rule matches this event; handlers are only notified"),
    ),
    "too late": (
        workflow(),
        LEADER,
        PEERS,
        900,
        ApprovalNotAllowed("NotBefore has passed; the event starts without approval"),
    ),
    "unknown NotBefore": (workflow(at=None), LEADER, PEERS, 9000, ALONE),
    "each for itself": (
        workflow(me="web_1", resources=BOTH),
        ApprovalPolicy(settings=ApprovalSettings(policy=ApprovalMode.EACH)),
        frozenset(),
        0,
        ApprovalAllowed("this VM is ready, and every VM approves for itself"),
    ),
    "several without peers": (
        workflow(resources=BOTH),
        LEADER,
        frozenset(),
        0,
        ApprovalNotAllowed("other VMs are affected (web_1), but no peers are configured; set peers.agents"),
    ),
    "one without an address": (
        workflow(resources=(*BOTH, "db_0")),
        LEADER,
        PEERS,
        0,
        ApprovalNotAllowed("affected VMs without an address in peers.agents: db_0"),
    ),
    "peers are asked": (workflow(resources=BOTH), LEADER, PEERS, 0, PeersRequired(("web_1",))),
    "peers are being asked": (
        replace(workflow(resources=BOTH), is_asking_peers=True),
        LEADER,
        PEERS,
        0,
        ApprovalDelayed("asking the other VMs whether they are ready"),
    ),
    "all peers are ready": (
        told(workflow(resources=BOTH), ready("WEB_1")),
        LEADER,
        PEERS,
        0,
        ApprovalAllowed("all affected VMs are ready"),
    ),
    "one peer is not": (
        told(workflow(resources=(*BOTH, "web_2")), ready("web_1"), not_ready("web_2")),
        LEADER,
        PEERS,
        1,
        ApprovalDelayed("not ready: web_2 (request timed out)", NOON + seconds(5)),
    ),
    "one peer was not asked": (
        told(workflow(resources=(*BOTH, "web_2")), ready("web_1")),
        LEADER,
        PEERS,
        1,
        ApprovalDelayed("not ready: web_2 (not asked)", NOON + seconds(5)),
    ),
    "they are asked again": (
        told(workflow(resources=(*BOTH, "web_2")), ready("web_1"), not_ready("web_2")),
        LEADER,
        PEERS,
        5,
        PeersRequired(("web_1", "web_2")),
    ),
    "not all ready before NotBefore": (
        told(workflow(resources=(*BOTH, "web_2")), ready("web_1"), not_ready("web_2")),
        LEADER,
        PEERS,
        900,
        ApprovalNotAllowed("not all VMs were ready before NotBefore: web_2 (request timed out)"),
    ),
    "neither leader nor deputy": (
        workflow(me="web_2", resources=(*BOTH, "web_2")),
        LEADER,
        PEERS,
        300,
        ApprovalNotAllowed("web_0 approves for all"),
    ),
    "the deputy waits": (workflow(me="web_1", resources=BOTH), LEADER, PEERS, 59, TURN),
    "the deputy asks the others": (workflow(me="web_1", resources=BOTH), LEADER, PEERS, 60, PeersRequired(("web_0",))),
    "the deputy approves": (
        told(workflow(me="web_1", resources=BOTH), ready("web_0")),
        LEADER,
        PEERS,
        61,
        ApprovalAllowed("all affected VMs are ready"),
    ),
    "the deputy of an unreachable leader does not approve": (
        told(workflow(me="web_1", resources=BOTH), not_ready("web_0")),
        LEADER,
        PEERS,
        61,
        PeersRequired(("web_0",)),
    ),
    "a user's event at once": (workflow(resources=BOTH, source=Source.USER), LEADER, frozenset(), 0, AT_ONCE),
    "a user's event waits for its own VM": (
        workflow(ready_at=None, source=Source.USER),
        LEADER,
        PEERS,
        0,
        ApprovalNotAllowed("this VM is not ready"),
    ),
    "a user's event with user_events_at_once off": (
        workflow(resources=BOTH, source=Source.USER),
        ApprovalPolicy(settings=ApprovalSettings(user_events_at_once=False)),
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
    "a user's event and the deputy": (workflow(me="web_1", resources=BOTH, source=Source.USER), LEADER, PEERS, 0, TURN),
    "a short Freeze at once": (
        workflow(resources=BOTH, type=EventType.FREEZE, duration=seconds(10)),
        LEADER,
        frozenset(),
        0,
        AT_ONCE,
    ),
    "a longer Freeze": (
        workflow(resources=BOTH, type=EventType.FREEZE, duration=seconds(11)),
        LEADER,
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
    "a Freeze of unknown length": (
        workflow(resources=BOTH, type=EventType.FREEZE),
        LEADER,
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
    "a short Freeze with short_freeze off": (
        workflow(resources=BOTH, type=EventType.FREEZE, duration=seconds(0)),
        ApprovalPolicy(settings=ApprovalSettings(short_freeze=None)),
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
    "a short Freeze with short_freeze zero": (
        workflow(resources=BOTH, type=EventType.FREEZE, duration=seconds(0)),
        ApprovalPolicy(settings=ApprovalSettings(short_freeze=seconds(0))),
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
    "a short Reboot": (
        workflow(resources=BOTH, type=EventType.REBOOT, duration=seconds(1)),
        LEADER,
        PEERS,
        0,
        PeersRequired(("web_1",)),
    ),
}


@pytest.mark.parametrize("case", VERDICTS.values(), ids=VERDICTS.keys())
def test_approval_decisions(
    case: tuple[EventWorkflow, ApprovalPolicy, frozenset[str], float, ApprovalDecision],
) -> None:
    judged, policy, peers, at, verdict = case
    assert decide_approval(judged, policy=policy, peers=peers, now=NOON + seconds(at)) == verdict


@pytest.mark.parametrize(
    ("settings", "ask_every", "wrong"),
    [
        (ApprovalSettings(short_freeze=seconds(-1)), seconds(5), "short_freeze"),
        (ApprovalSettings(deputy_after=seconds(-1)), seconds(5), "deputy_after"),
        (ApprovalSettings(), seconds(0), "ask_every"),
    ],
)
def test_invalid_policy_is_refused(settings: ApprovalSettings, ask_every: timedelta, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        ApprovalPolicy(settings=settings, ask_every=ask_every)
