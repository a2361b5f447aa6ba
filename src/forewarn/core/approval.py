"""Approve events: any VM of the scope may, for all VMs of the event; all ids of a request or none (PROTOCOL §4)."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.errors import ScopeEventNotFound
from forewarn.core.event import Approval, Event, State, Trigger
from forewarn.core.explain import blocker_messages, explain, missing_approvals
from forewarn.core.lifecycle import start_if_ready, start_order, start_ready_events
from forewarn.core.policy import RuleContext
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.text import truncate_text


def approve(
    scope: Scope,
    vm: str,
    ids: Iterable[str],
    context: RuleContext,
    *,
    now: datetime,
    by: str | None = None,
    why: str = "",
) -> Change[None]:
    """Record a VM's approval of events. Approving a Started or recently ended event succeeds and changes nothing.

    `by` names who approved for the VM if it was not the VM itself, and `why` is the reason.
    """
    approver = scope.vm(vm).name
    draft = Draft(scope, now)
    start_ready_events(draft, context)  # events that are already due start without an approval
    for event in sorted(_find_events(draft.scope, ids), key=start_order):
        if event.state is State.SCHEDULED and _is_needed(draft.scope, event, approver):
            _approve(draft, event, approver, context, by, why)
    return draft.finish(None)


def _is_needed(scope: Scope, event: Event, approver: str) -> bool:
    """Return whether the event still needs the approval of this VM."""
    if scope.approval is ApprovalRule.ANY:
        return not event.approvals
    return approver in missing_approvals(scope, event)


def _approve(draft: Draft, event: Event, approver: str, context: RuleContext, by: str | None, why: str) -> None:
    """Record the approval together with what still blocks the event, then start the event if nothing does."""
    approval = Approval(vm=approver, at=draft.now)
    approved = msgspec.structs.replace(event, approvals=(*event.approvals, approval))
    blockers = "; and ".join(blocker_messages(explain(draft.scope, approved, context, now=draft.clock_at)))
    facts = {"held_by": truncate_text(blockers)} if blockers else {}
    if by is None:
        draft.apply(approved, Trigger.APPROVE, by=f"vm:{approver}", **facts)
    else:
        reason = f"in the name of {approver}{': ' if why else ''}{why}"
        draft.apply(approved, Trigger.APPROVE, by=by, why=reason, **facts)
    start_if_ready(draft, approved, context, approved_by=by)


def _find_events(scope: Scope, ids: Iterable[str]) -> list[Event]:
    """Return the open events with these ids, each once; refuse all if one is unknown or was never announced."""
    events: dict[str, Event] = {}
    for id_ in ids:
        event = scope.find_event(id_)
        if event is not None and event.announced:
            events[event.id] = event
        elif not scope.has_ended(id_):
            raise ScopeEventNotFound(id_, scope.id)
    return list(events.values())
