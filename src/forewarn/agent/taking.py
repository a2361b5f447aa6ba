"""What happened, written down in a walk. Pure; what follows from it is in `walking`."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from forewarn.agent.halves import anew, give_up
from forewarn.agent.handlers.port import Again, Done, Ended, Failed
from forewarn.agent.phases import Half, Phase
from forewarn.agent.slices import MARGIN, prepare_by
from forewarn.agent.walk import (
    BEFORE_IMPACT,
    NOT_BEGUN,
    Approval,
    ApprovalFailed,
    Approved,
    Asked,
    HalfEnded,
    Happening,
    PeersSaid,
    Progress,
    Restarted,
    Seen,
    SetBack,
    State,
    Step,
    Walk,
    Went,
)
from forewarn.client.changes import Ending
from forewarn.client.document import Event

FIRST_AGAIN, LONGEST_AGAIN = timedelta(seconds=30), timedelta(minutes=10)
"""Recovery that failed is tried again after pauses that double from the first to the longest, for ever."""
FIRST_POST_AGAIN, LONGEST_POST_AGAIN = timedelta(seconds=5), timedelta(minutes=1)
"""The same for an approval that the service did not take, until the event starts."""


def take(walk: Walk, happening: Happening, *, now: datetime) -> Walk:
    """Write down what happened. What does not concern the walk any more changes nothing."""
    match happening:
        case Seen(event):
            return _seen(walk, event)
        case Went(how):
            return replace(walk, comeback=None) if walk.gone else replace(walk, gone=how)
        case HalfEnded():
            return _half_ended(walk, happening, now)
        case PeersSaid(words):
            if not walk.is_asking_peers:
                return walk
            return replace(walk, peers=words, peers_asked_at=now, is_asking_peers=False)
        case Approved():
            return _approval_ended(walk, replace(walk.approval, asked=Asked.GIVEN, again_at=None))
        case ApprovalFailed(why):
            again_at = now + _doubled(FIRST_POST_AGAIN, walk.approval.tries, LONGEST_POST_AGAIN)
            return _approval_ended(walk, replace(walk.approval, asked=Asked.FAILED, again_at=again_at, why=why))
        case Restarted():
            return _restarted(walk)
        case SetBack(by):
            return _set_back(walk, by)


def ending_of(walk: Walk, *, now: datetime) -> Ending:
    """Judge how an event went that nobody saw go: what was due, approved or begun has most likely happened."""
    deadline = walk.event.deadline
    is_due = deadline is not None and now >= deadline
    has_happened = walk.event.is_started or walk.approval.asked is Asked.GIVEN or is_due
    return Ending.FINISHED if has_happened else Ending.WITHDRAWN


def _seen(walk: Walk, event: Event) -> Walk:
    if walk.gone is not None:
        return replace(walk, comeback=event)
    if event == walk.event:
        return walk
    is_postponed = _is_postponed(walk.event, event)
    by = prepare_by(event, walk.noticed_at)
    steps = tuple(_retimed(step, by, is_postponed=is_postponed) for step in walk.steps)
    # What peers said was said of the event as it was.
    walk = replace(walk, event=event, steps=steps, peers=(), peers_asked_at=None)
    has_more_to_do = any(step.prepare.state is State.WAITING for step in steps)
    return replace(walk, phase=Phase.PREPARE, ready_at=None) if has_more_to_do and _may_turn_back(walk) else walk


def _may_turn_back(walk: Walk) -> bool:
    """Tell whether there is still something to prepare for: an approval that may have arrived is not taken back."""
    is_refused = walk.phase is Phase.APPROVE and walk.approval.asked is Asked.FAILED
    return walk.phase is Phase.READY or is_refused


def _is_postponed(before: Event, event: Event) -> bool:
    if before.deadline is None or event.is_started:
        return False
    return event.deadline is None or event.deadline > before.deadline


def _retimed(step: Step, by: datetime | None, *, is_postponed: bool) -> Step:
    """Fit a step into the time there is now: what runs ends earlier or later, what was skipped may have its turn."""
    prepare = step.prepare
    if prepare.state is State.SKIPPED and is_postponed:
        return replace(step, prepare=NOT_BEGUN)
    if prepare.state is State.BEGUN and prepare.begun_at is not None and by is not None:
        until = min(prepare.begun_at + step.time_limit, by - MARGIN)
        return replace(step, prepare=replace(prepare, until=until))
    return step


def _half_ended(walk: Walk, ended: HalfEnded, now: datetime) -> Walk:
    step = walk.step(ended.handler)
    if step is None:
        return walk
    progress = step.progress(ended.half)
    if progress.state is not State.BEGUN or progress.attempt != ended.attempt:
        return walk
    if ended.half is Half.PREPARE:
        may_try_again = walk.gone is None and walk.phase is Phase.PREPARE
        changed = replace(step, prepare=_after(step, progress, ended.ended, now, may_try_again=may_try_again))
    else:
        changed = replace(step, recover=_lasting(_after(step, progress, ended.ended, now, may_try_again=True), now))
    return replace(walk, steps=tuple(changed if step.handler == ended.handler else step for step in walk.steps))


def _after(step: Step, progress: Progress, ended: Ended, now: datetime, *, may_try_again: bool) -> Progress:
    match ended:
        case Done():
            return replace(progress, state=State.DONE, until=None)
        case Again(why) if may_try_again and progress.tries <= step.retries:
            return replace(progress, state=State.PAUSING, until=now + step.pause, why=why)
        case Again(why) | Failed(why):
            return replace(progress, state=State.FAILED, until=None, why=why)


def _lasting(recover: Progress, now: datetime) -> Progress:
    """Never give recovery up."""
    if recover.state is not State.FAILED:
        return recover
    return replace(recover, tries=0, until=now + _doubled(FIRST_AGAIN, recover.attempt, LONGEST_AGAIN))


def _doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    return min(first * 2.0 ** min(max(times - 1, 0), 16), longest)


def _approval_ended(walk: Walk, approval: Approval) -> Walk:
    return replace(walk, approval=approval) if walk.approval.asked is Asked.UNDER_WAY else walk


def _restarted(walk: Walk) -> Walk:
    approval = walk.approval
    if approval.asked is not Asked.GIVEN:
        asked = Asked.NOT_YET if approval.asked is Asked.NOT_YET else Asked.FAILED
        approval = replace(approval, asked=asked, again_at=None)
    again = replace(
        walk,
        restarts=walk.restarts + 1,
        steps=tuple(_picked_up(step) for step in walk.steps),
        approval=approval,
        peers=(),
        peers_asked_at=None,
        is_asking_peers=False,
    )
    return again if walk.phase in BEFORE_IMPACT else give_up(again, "the agent ended meanwhile")


def _picked_up(step: Step) -> Step:
    under_way = {State.BEGUN, State.PAUSING}
    prepare = anew(step.prepare) if step.prepare.state in under_way else step.prepare
    recover = anew(step.recover) if step.recover.state in under_way | {State.FAILED} else step.recover
    return replace(step, prepare=prepare, recover=recover)


def _set_back(walk: Walk, by: timedelta) -> Walk:
    """Move every moment that was reckoned from the clock as it was; those of the event are the service's own."""
    steps = tuple(
        replace(step, prepare=_earlier(step.prepare, by), recover=_earlier(step.recover, by)) for step in walk.steps
    )
    return replace(
        walk,
        noticed_at=walk.noticed_at - by,
        steps=steps,
        approval=replace(walk.approval, again_at=_moved(walk.approval.again_at, by)),
        ready_at=_moved(walk.ready_at, by),
        peers_asked_at=_moved(walk.peers_asked_at, by),
    )


def _earlier(progress: Progress, by: timedelta) -> Progress:
    return replace(progress, begun_at=_moved(progress.begun_at, by), until=_moved(progress.until, by))


def _moved(moment: datetime | None, by: timedelta) -> datetime | None:
    return None if moment is None else moment - by
