"""Approval decision: whether this VM approves an event now, must check its peers first, waits, or does not approve.

Pure.
"""

from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from forewarn.agent.settings import ApprovalMode, ApprovalSettings, PeersSettings
from forewarn.agent.workflow.state import EventWorkflow
from forewarn.client.document import ZERO, Event, normalize_name
from forewarn.client.leader_election import is_deputy, is_leader
from forewarn.core.event import EventType, Source


class ApprovalPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for approval, and when to ask peers again."""

    settings: ApprovalSettings = ApprovalSettings()
    ask_every: timedelta = PeersSettings().ask_every
    """Interval at which peers that are not ready are asked again."""

    def __post_init__(self) -> None:
        if (self.settings.short_freeze or ZERO) < ZERO or self.settings.deputy_after < ZERO:
            raise ValueError("short_freeze and deputy_after must not be negative")
        if self.ask_every <= ZERO:
            raise ValueError("ask_every must be positive")


class ApprovalAllowed(msgspec.Struct, frozen=True):
    """Approve now."""

    reason: str


class PeersRequired(msgspec.Struct, frozen=True):
    """Ask these peers first."""

    names: tuple[str, ...]


class ApprovalDelayed(msgspec.Struct, frozen=True):
    """Do not approve now; decide again at `until`, or on the next input."""

    reason: str
    until: datetime | None = None


class ApprovalNotAllowed(msgspec.Struct, frozen=True):
    """Do not approve; only another input can change this, not time alone."""

    reason: str


ApprovalDecision: TypeAlias = ApprovalAllowed | PeersRequired | ApprovalDelayed | ApprovalNotAllowed


def decide_approval(
    workflow: EventWorkflow, *, policy: ApprovalPolicy, peers: frozenset[str], now: datetime
) -> ApprovalDecision:
    """Decide whether to approve the event of a workflow, given the names of the peers whose addresses are known."""
    if not workflow.is_scheduled:
        return ApprovalNotAllowed("the event is not waiting for approval")
    if policy.settings.policy is ApprovalMode.NEVER:
        return ApprovalNotAllowed("this agent never approves; the event starts at its NotBefore")
    if workflow.is_notify_only:
        return ApprovalNotAllowed("no rule matches this event; handlers are only notified")
    if workflow.ready_at is None:
        return ApprovalNotAllowed("this VM is not ready")
    if (deadline := workflow.event.deadline) is not None and now >= deadline:
        return ApprovalNotAllowed(_too_late(workflow))
    if policy.settings.policy is ApprovalMode.EACH:
        return ApprovalAllowed("this VM is ready, and every VM approves for itself")
    return _as_leader_or_deputy(workflow, workflow.ready_at, policy, peers, now)


def is_immediate(event: Event, settings: ApprovalSettings) -> bool:
    """Return whether an event is approved without waiting for the other VMs."""
    if event.source == Source.USER:
        return settings.user_events_at_once
    if event.type != EventType.FREEZE or event.duration is None or not settings.short_freeze:
        return False
    return event.duration <= settings.short_freeze


def other_vms(event: Event, vm_name: str) -> tuple[str, ...]:
    """Return the other affected VMs."""
    return tuple(name for name in event.resources if normalize_name(name) != normalize_name(vm_name))


def _as_leader_or_deputy(
    workflow: EventWorkflow, ready_at: datetime, policy: ApprovalPolicy, peers: frozenset[str], now: datetime
) -> ApprovalDecision:
    if is_leader(workflow.event, workflow.vm_name):
        return _as_approver(workflow, policy, peers, now)
    if not is_deputy(workflow.event, workflow.vm_name):
        return ApprovalNotAllowed(f"{workflow.event.resources[0]} approves for all")
    if now < (takeover_at := ready_at + policy.settings.deputy_after):
        return ApprovalDelayed(
            f"{workflow.event.resources[0]} approves for all; this VM takes over if it does not", takeover_at
        )
    return _as_approver(workflow, policy, peers, now)


def _as_approver(
    workflow: EventWorkflow, policy: ApprovalPolicy, peers: frozenset[str], now: datetime
) -> ApprovalDecision:
    names = other_vms(workflow.event, workflow.vm_name)
    if not names:
        return ApprovalAllowed("this VM is ready, and no other VM is affected")
    if is_immediate(workflow.event, policy.settings):
        return ApprovalAllowed("this VM is ready, and this kind of event does not wait for the other VMs")
    if not peers:
        return ApprovalNotAllowed(
            f"other VMs are affected ({', '.join(names)}), but no peers are configured; set peers.agents"
        )
    if unknown := [name for name in names if normalize_name(name) not in peers]:
        return ApprovalNotAllowed(f"affected VMs without an address in peers.agents: {', '.join(unknown)}")
    return _if_peers_ready(workflow, names, policy, now)


def _if_peers_ready(
    workflow: EventWorkflow, names: tuple[str, ...], policy: ApprovalPolicy, now: datetime
) -> ApprovalDecision:
    if workflow.is_asking_peers:
        return ApprovalDelayed("asking the other VMs whether they are ready")
    if workflow.peers_asked_at is None:
        return PeersRequired(names)
    if not (waiting := _not_ready(workflow, names)):
        return ApprovalAllowed("all affected VMs are ready")
    if now >= (retry_at := workflow.peers_asked_at + policy.ask_every):
        return PeersRequired(names)
    return ApprovalDelayed(f"not ready: {waiting}", retry_at)


def _not_ready(workflow: EventWorkflow, names: tuple[str, ...]) -> str:
    states = {normalize_name(peer.name): peer for peer in workflow.peers}
    missing = ((name, states.get(normalize_name(name))) for name in names)
    return "; ".join(
        f"{name} ({peer.reason if peer else 'not asked'})" for name, peer in missing if not (peer and peer.is_ready)
    )


def _too_late(workflow: EventWorkflow) -> str:
    if waiting := "; ".join(f"{peer.name} ({peer.reason})" for peer in workflow.peers if not peer.is_ready):
        return f"not all VMs were ready before NotBefore: {waiting}"
    return "NotBefore has passed; the event starts without approval"
