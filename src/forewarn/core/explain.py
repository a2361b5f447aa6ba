"""Explain why an event waits, as a list of blockers: the one source for rules, CLI, API and dashboard."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

import msgspec

from forewarn.core.event import Event, State
from forewarn.core.impact import SETTLED, STUCK, ImpactState
from forewarn.core.policy import HostState, RuleContext
from forewarn.core.scope import ApprovalRule, Hold, Scope

CAMPAIGN_PREFIX = "campaign:"
"""The prefix of a campaign's name in `by` of journal entries."""


class BlockerCode(StrEnum):
    """Machine-readable codes of blockers."""

    NOT_BEFORE = "not-before"
    APPROVAL_REQUIRED = "approval-required"
    UPDATE_DOMAIN_BUSY = "update-domain-busy"
    HOLD = "hold"
    CAMPAIGN = "campaign"
    IMPACT_STUCK = "impact-stuck"
    HOST_UNKNOWN = "host-unknown"
    HOST_SILENT = "host-silent"


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an event does not continue. Its text is a sentence for people."""

    code: ClassVar[BlockerCode]

    @property
    def needs_person(self) -> bool:
        """Whether only a person can remove this blocker."""
        return False


class NotBefore(Blocker, frozen=True):
    """The event's notice is not over. An approval removes this blocker."""

    code: ClassVar[BlockerCode] = BlockerCode.NOT_BEFORE
    at: datetime

    def __str__(self) -> str:
        return f"not before {self.at:%Y-%m-%d %H:%M:%SZ}"


class ApprovalPending(Blocker, frozen=True):
    """Required approvals are missing. The end of the notice removes this blocker."""

    code: ClassVar[BlockerCode] = BlockerCode.APPROVAL_REQUIRED
    at: datetime
    """The end of the notice."""
    vms: tuple[str, ...]
    rule: ApprovalRule

    @property
    def condition(self) -> str:
        """What would let the event start earlier."""
        if self.rule is ApprovalRule.ANY:
            return "earlier if any VM of the scope approves"
        return f"earlier if {', '.join(self.vms)} approve{'s' if len(self.vms) == 1 else ''}"

    def __str__(self) -> str:
        return f"it starts {self.condition}"


class DomainInUse(Blocker, frozen=True):
    """Another update domain of the scope is being maintained."""

    code: ClassVar[BlockerCode] = BlockerCode.UPDATE_DOMAIN_BUSY
    update_domain: int
    events: tuple[str, ...]
    stuck_event: str | None = None
    """An event of that update domain that continues only when a person decides, if there is one."""

    @property
    def needs_person(self) -> bool:
        """Whether an event of that update domain continues only when a person decides."""
        return self.stuck_event is not None

    def __str__(self) -> str:
        which = "event" if len(self.events) == 1 else "events"
        return f"update domain {self.update_domain} has its turn: {which} {', '.join(self.events)}"


class OperatorHold(Blocker, frozen=True):
    """An operator holds planned maintenance, of the scope or of the whole fleet."""

    code: ClassVar[BlockerCode] = BlockerCode.HOLD
    hold: Hold
    whole_fleet: bool

    @property
    def needs_person(self) -> bool:
        """A hold lasts until it is released."""
        return True

    def __str__(self) -> str:
        what = "all maintenance" if self.whole_fleet else "the scope"
        return f"{what} is held by {self.hold.by}: {self.hold.reason}"


class CampaignPending(Blocker, frozen=True):
    """The campaign that created the event has not cleared it: the campaign's policy does not let it start now."""

    code: ClassVar[BlockerCode] = BlockerCode.CAMPAIGN
    campaign: str
    name: str = ""
    why: str = ""
    """Why the campaign clears nothing at all, if that is so."""
    is_stopped: bool = False
    """Whether it clears nothing until a person resumes it. A scope knows neither this nor `why`."""

    @property
    def needs_person(self) -> bool:
        """Whether a person has to resume the campaign."""
        return self.is_stopped

    def __str__(self) -> str:
        return f"campaign {self.name or self.campaign} has not cleared it" + (f", as {self.why}" if self.why else "")


class ImpactStuck(Blocker, frozen=True):
    """The impact on a VM has failed or has an unknown outcome: a person decides."""

    code: ClassVar[BlockerCode] = BlockerCode.IMPACT_STUCK
    vm: str
    state: ImpactState
    why: str

    @property
    def needs_person(self) -> bool:
        """A person must retry or resolve the impact."""
        return True

    def __str__(self) -> str:
        how = "has failed" if self.state is ImpactState.FAILED else "has an unknown outcome"
        return f"the work on {self.vm} {how}: {self.why or 'retry or resolve it'}"


class HostUnknown(Blocker, frozen=True):
    """No process has ever served the host of some VMs, or they have no host: the work would not be carried out."""

    code: ClassVar[BlockerCode] = BlockerCode.HOST_UNKNOWN
    host: str | None
    vms: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.vms)
        if self.host is None:
            return f"{names} {'has' if len(self.vms) == 1 else 'have'} no host"
        return f"host {self.host} of {names} is unknown: no process serves it"


class HostSilent(Blocker, frozen=True):
    """The process of a host has not been heard from for too long: the work would not be carried out."""

    code: ClassVar[BlockerCode] = BlockerCode.HOST_SILENT
    host: str
    vms: tuple[str, ...]
    since: datetime | None
    """When it was last heard from; None if this control node has not heard from it yet."""

    def __str__(self) -> str:
        names = ", ".join(self.vms)
        if self.since is None:
            return f"host {self.host} of {names} has not reported to this control node yet"
        return f"host {self.host} of {names} has been silent since {self.since:%Y-%m-%d %H:%M:%SZ}"


def explain(scope: Scope, event: Event, context: RuleContext, *, now: datetime) -> tuple[Blocker, ...]:
    """Return everything that blocks the event, decisions of people first; empty if nothing does."""
    if event.state is State.STARTED:
        return tuple(
            ImpactStuck(vm=impact.vm, state=impact.state, why=impact.why)
            for impact in event.impacts
            if impact.state in STUCK
        )
    return (
        *(_with_stuck_event(scope, blocker) for blocker in external_blockers(scope, event, context)),
        *notice_blockers(scope, event, now=now),
    )


def is_stuck(event: Event, blockers: Iterable[Blocker]) -> bool:
    """Return whether only a person can make the event continue; `blockers` is the result of `explain` for it.

    An event with a stuck impact is not stuck while the platform still works on other VMs of the event.
    """
    if event.state is State.STARTED:
        return has_only_stuck_work(event)
    return any(blocker.needs_person for blocker in blockers)


def has_only_stuck_work(event: Event) -> bool:
    """Return whether an impact of the event is stuck (failed or unknown) and no other impact is in progress."""
    states = {impact.state for impact in event.impacts}
    return bool(states & STUCK) and states <= STUCK | SETTLED


def _with_stuck_event(scope: Scope, blocker: Blocker) -> Blocker:
    if not isinstance(blocker, DomainInUse):
        return blocker
    stuck = (other.id for other in scope.events if other.id in blocker.events and has_only_stuck_work(other))
    return msgspec.structs.replace(blocker, stuck_event=next(stuck, None))


def blocker_messages(blockers: Iterable[Blocker]) -> tuple[str, ...]:
    """Return one message per blocker, except that a missing approval is added to the message about the notice."""
    messages: list[str] = []
    for blocker in blockers:
        if isinstance(blocker, ApprovalPending) and messages:
            messages[-1] += f", or {blocker.condition}"
        else:
            messages.append(str(blocker))
    return tuple(messages)


def notice_blockers(scope: Scope, event: Event, *, now: datetime) -> tuple[Blocker, ...]:
    """Return the blockers that come from the event's own notice and approvals."""
    if is_due_or_approved(scope, event, now=now):
        return ()
    notice = NotBefore(at=event.not_before)
    if not event.announced:
        return (notice,)
    return (notice, ApprovalPending(at=event.not_before, vms=missing_approvals(scope, event), rule=scope.approval))


def is_due_or_approved(scope: Scope, event: Event, *, now: datetime) -> bool:
    """Return whether the event's notice is over, or ended early by approvals."""
    return now >= event.not_before or is_approved(scope, event)


def external_blockers(scope: Scope, event: Event, context: RuleContext) -> tuple[Blocker, ...]:
    """Return the blockers that come from other events, operators and campaigns. Only planned maintenance has these."""
    if not event.is_planned:
        return ()
    blockers: list[Blocker] = [
        OperatorHold(hold=hold, whole_fleet=hold is context.hold) for hold in (context.hold, scope.hold) if hold
    ]
    if len(scope.events) > 1:
        blockers += _domains_in_use(scope, event)
    if event.campaign and not event.cleared:
        name = event.by.removeprefix(CAMPAIGN_PREFIX) if event.by.startswith(CAMPAIGN_PREFIX) else ""
        blockers.append(CampaignPending(campaign=event.campaign, name=name))
    if context.hosts is not None:
        blockers += _host_blockers(scope, event, context.hosts)
    return tuple(blockers)


def _domains_in_use(scope: Scope, event: Event) -> list[DomainInUse]:
    """Return the other update domains of the scope that are being maintained, in order."""
    in_use: dict[int, list[str]] = {}
    for other in scope.events:
        if other.state is State.STARTED and other.update_domain != event.update_domain and other.is_planned:
            in_use.setdefault(other.update_domain, []).append(other.id)
    return [DomainInUse(update_domain=domain, events=tuple(ids)) for domain, ids in sorted(in_use.items())]


def _host_blockers(scope: Scope, event: Event, hosts: Mapping[str, HostState]) -> Iterator[Blocker]:
    by_host: dict[str | None, list[str]] = {}
    for name in event.vms:
        if (vm := scope.roster.find(name)) is not None:
            by_host.setdefault(vm.host, []).append(name)
    for host, vms in by_host.items():
        state = None if host is None else hosts.get(host)
        if host is None or state is None:
            yield HostUnknown(host=host, vms=tuple(vms))
        elif state.is_silent:
            yield HostSilent(host=host, vms=tuple(vms), since=state.silent_since)


def is_approved(scope: Scope, event: Event) -> bool:
    """Return whether the event has all approvals that it needs to start early."""
    if scope.approval is ApprovalRule.ANY:
        return bool(event.approvals)
    return not missing_approvals(scope, event)


def missing_approvals(scope: Scope, event: Event) -> tuple[str, ...]:
    """Return the VMs whose approval would let the event start early."""
    approved = {approval.vm for approval in event.approvals}
    if scope.approval is ApprovalRule.ANY:
        return () if approved else tuple(vm.name for vm in scope.roster)
    return tuple(vm for vm in event.vms if vm not in approved)
