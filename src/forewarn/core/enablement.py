"""Enablement of a scope: any valid request enables it, the idle timeout disables it (PROTOCOL §6)."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.duration import format_duration
from forewarn.core.event import State, Trigger
from forewarn.core.journal import EntryKind
from forewarn.core.policy import HostState, Outage, RuleContext
from forewarn.core.scope import Scope

SEEN_SAVE_INTERVAL = timedelta(hours=1)
"""How old the saved `seen_at` may be before a request saves it again."""


def needs_save(scope: Scope, *, now: datetime) -> bool:
    """Return whether a request from the scope must be saved: the quick check before `mark_seen`."""
    return not scope.enabled or scope.seen_at is None or now - scope.seen_at > SEEN_SAVE_INTERVAL


def mark_seen(scope: Scope, *, now: datetime, epoch: str) -> Change[None]:
    """Record a valid request. `epoch` is a fresh random token, used if the request starts a new epoch."""
    draft = Draft(scope, now)
    if not scope.enabled:
        _enable(draft, epoch)
    if needs_save(draft.scope, now=draft.now):
        draft.set(seen_at=draft.now)
    return draft.finish(None)


def _enable(draft: Draft, epoch: str) -> None:
    """Announce all unannounced events. If the scope was enabled before, start a new epoch that includes them."""
    again = draft.scope.was_enabled
    draft.set(enabled=True, was_enabled=True, seen_at=draft.now)
    for event in draft.scope.events:
        if event.state is State.SCHEDULED and not event.announced:
            announced = msgspec.structs.replace(event, announced=True)
            draft.apply(announced, Trigger.ANNOUNCE, by="guest", why="the scope is enabled")
    if again:
        draft.set(epoch=epoch, incarnation=1)
    draft.add_entry(EntryKind.ENABLED, by="guest", epoch=draft.scope.epoch)


def disable_if_idle(draft: Draft, context: RuleContext, seen_at: datetime | None) -> None:
    """Disable the scope if its idle timeout is over. Open events stay."""
    disable_at = idle_at(draft.scope, context, seen_at)
    if disable_at is not None and draft.clock_at >= disable_at:
        draft.set(enabled=False, seen_at=max(filter(None, (seen_at, draft.scope.seen_at)), default=None))
        idle_time = format_duration(context.policy.idle_after or timedelta(0))
        draft.add_entry(EntryKind.DISABLED, by="clock", why=f"no request for {idle_time}")


def idle_at(scope: Scope, context: RuleContext, seen_at: datetime | None) -> datetime | None:
    """Return when the scope's idle timeout is over; outages of the service do not count.

    None while a host of the scope is silent: its VMs may be polling it.
    """
    idle_after = context.policy.idle_after
    last_seen_at = scope.seen_at if seen_at is None or (scope.seen_at or seen_at) > seen_at else seen_at
    if not scope.enabled or idle_after is None or last_seen_at is None:
        return None
    if context.hosts is not None and _has_silent_host(scope, context.hosts):
        return None
    return _add_uptime(last_seen_at, idle_after, context.outages)


def _has_silent_host(scope: Scope, hosts: Mapping[str, HostState]) -> bool:
    states = (hosts.get(host) for host in {vm.host for vm in scope.roster if vm.host is not None})
    return any(state is not None and state.is_silent for state in states)


def _add_uptime(start: datetime, time: timedelta, outages: tuple[Outage, ...]) -> datetime:
    """Return when the service will have been up for `time` since `start`."""
    end = start + time
    if not outages:
        return end
    for outage in sorted(outages, key=lambda outage: outage.began_at):
        if outage.ended_at > start and outage.began_at < end:
            end += outage.ended_at - max(outage.began_at, start)
    return end
