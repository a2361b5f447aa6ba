"""Whether a scope takes part: any request switches it on, a day of silence switches it off (PROTOCOL §6)."""

from datetime import datetime, timedelta

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions, Outage
from forewarn.core.duration import duration_text
from forewarn.core.event import Move, State
from forewarn.core.journal import Did
from forewarn.core.scope import Scope

SAVE_SEEN_AFTER = timedelta(hours=1)
"""How old the saved `seen_at` may be before a request saves it anew."""


def needs_saving(scope: Scope, *, now: datetime) -> bool:
    """Tell whether a request from the scope changes what is saved: the quick question before `seen`."""
    return not scope.enabled or scope.seen_at is None or now - scope.seen_at > SAVE_SEEN_AFTER


def seen(scope: Scope, *, now: datetime, epoch: str) -> Change[None]:
    """Take note of a valid request. `epoch` is a fresh random token, used if this begins a new epoch."""
    draft = Draft(scope, now)
    if not scope.enabled:
        _switch_on(draft, epoch)
    if needs_saving(draft.scope, now=draft.now):
        draft.set(seen_at=draft.now)
    return draft.finish(None)


def _switch_on(draft: Draft, epoch: str) -> None:
    """Announce what waits unannounced; then, if this is not the first time, begin a new epoch, which has it all."""
    again = draft.scope.was_enabled
    draft.set(enabled=True, was_enabled=True, seen_at=draft.now)
    for event in draft.scope.events:
        if event.state is State.SCHEDULED and not event.announced:
            announced = msgspec.structs.replace(event, announced=True)
            draft.move(announced, Move.ANNOUNCE, by="guest", why="the scope is enabled")
    if again:
        draft.set(epoch=epoch, incarnation=1)
    draft.note(Did.ENABLED, by="guest", epoch=draft.scope.epoch)


def switch_off_if_idle(draft: Draft, conditions: Conditions, seen_at: datetime | None) -> None:
    """Switch the scope off if it has been silent for too long. Open events stay."""
    silent_at = idle_at(draft.scope, conditions, seen_at)
    if silent_at is not None and draft.now >= silent_at:
        draft.set(enabled=False, seen_at=max(filter(None, (seen_at, draft.scope.seen_at)), default=None))
        silence = duration_text(conditions.policy.idle_after or timedelta(0))
        draft.note(Did.DISABLED, by="clock", why=f"no request for {silence}")


def idle_at(scope: Scope, conditions: Conditions, seen_at: datetime | None) -> datetime | None:
    """Return when the scope will have been silent for too long; time without the service does not count."""
    known = [moment for moment in (seen_at, scope.seen_at) if moment is not None]
    if not scope.enabled or conditions.policy.idle_after is None or not known:
        return None
    return _later(max(known), conditions.policy.idle_after, conditions.outages)


def _later(start: datetime, time: timedelta, outages: tuple[Outage, ...]) -> datetime:
    """Return the moment by which `time` of service has passed since `start`."""
    end = start + time
    for outage in sorted(outages, key=lambda outage: outage.began_at):
        if outage.ended_at > start and outage.began_at < end:
            end += outage.ended_at - max(outage.began_at, start)
    return end
