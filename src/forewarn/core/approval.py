"""Approving: any VM of the scope may, for all VMs of the event; all ids of one request or none (PROTOCOL §4)."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions
from forewarn.core.errors import UnknownEvent
from forewarn.core.event import Approval, Event, Move, State
from forewarn.core.explain import explain, missing_approvals, sentences
from forewarn.core.progress import start_if_it_may, start_what_may, turn
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.text import shortened


def approve(
    scope: Scope,
    vm: str,
    ids: Iterable[str],
    conditions: Conditions,
    *,
    now: datetime,
    by: str | None = None,
    why: str = "",
) -> Change[None]:
    """Take a VM's approval of events. Started and remembered events count as known; nothing happens to them.

    `by` names who spoke for the VM, where it was not the VM itself, and `why` says why.
    """
    approver = scope.vm(vm).name
    draft = Draft(scope, now)
    start_what_may(draft, conditions)  # what is due by now needs nobody's approval
    for event in sorted(_known(draft.scope, ids), key=turn):
        if event.state is State.SCHEDULED and _matters(draft.scope, event, approver):
            _approve(draft, event, approver, conditions, by, why)
    return draft.finish(None)


def _matters(scope: Scope, event: Event, approver: str) -> bool:
    """Tell whether the VM's approval is one that the event still needs."""
    if scope.approval is ApprovalRule.ANY:
        return not event.approvals
    return approver in missing_approvals(scope, event)


def _approve(draft: Draft, event: Event, approver: str, conditions: Conditions, by: str | None, why: str) -> None:
    """Note the approval and what holds the event all the same, then start it if nothing does."""
    approval = Approval(vm=approver, at=draft.now)
    approved = msgspec.structs.replace(event, approvals=(*event.approvals, approval))
    holds = "; and ".join(sentences(explain(draft.scope, approved, conditions, now=draft.now)))
    facts = {"held_by": shortened(holds)} if holds else {}
    if by is None:
        draft.move(approved, Move.APPROVE, by=f"vm:{approver}", **facts)
    else:
        spoken = f"in the name of {approver}{': ' if why else ''}{why}"
        draft.move(approved, Move.APPROVE, by=by, why=spoken, **facts)
    start_if_it_may(draft, approved, conditions, spoken_by=by)


def _known(scope: Scope, ids: Iterable[str]) -> list[Event]:
    """Return the open events among the ids, each once; refuse all if one was never there or never announced."""
    events: dict[str, Event] = {}
    for id_ in ids:
        event = scope.find_event(id_)
        if event is not None and event.announced:
            events[event.id] = event
        elif not scope.remembers(id_):
            raise UnknownEvent(id_, scope.id)
    return list(events.values())
