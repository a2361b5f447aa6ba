"""How a walk goes on: notice → prepare → ready → approve → impact → recover. Pure.

`take` writes down what happened; `advance` draws the consequences and says what to do. Whoever calls them keeps the new
walk first and acts then: what is done is always known, and what is known to be begun may have to be done again.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from forewarn.agent.approving import Ask, No, NotYet, Policy, Yes, judge
from forewarn.agent.handlers.port import Again, Done, Ended, Failed
from forewarn.agent.phases import Half, Phase
from forewarn.agent.slices import MARGIN, by_importance, end_of_slice
from forewarn.agent.walk import (
    NOT_BEGUN,
    Approval,
    ApprovalFailed,
    Approve,
    Approved,
    Asked,
    AskPeers,
    CutShort,
    Do,
    Finish,
    HalfEnded,
    Happening,
    Next,
    PeersSaid,
    Progress,
    Restarted,
    RunHalf,
    Seen,
    State,
    Step,
    Tell,
    Walk,
    Went,
)
from forewarn.client.changes import Ending
from forewarn.client.document import Event

FIRST_AGAIN, LONGEST_AGAIN = timedelta(seconds=30), timedelta(minutes=10)
"""Recovery that failed is tried again after pauses that double from the first to the longest, for ever."""
FIRST_POST_AGAIN, LONGEST_POST_AGAIN = timedelta(seconds=5), timedelta(minutes=1)
"""The same for an approval that the service did not take, until the event starts."""

UNSETTLED = frozenset({State.WAITING, State.BEGUN, State.PAUSING})
BEFORE_IMPACT = frozenset({Phase.NOTICE, Phase.PREPARE, Phase.READY, Phase.APPROVE})


class World(NamedTuple):
    """What else there is to know when a walk goes on."""

    now: datetime
    me: str
    policy: Policy = Policy()
    peers: frozenset[str] = frozenset()
    """The VMs whose agents can be asked."""
    held: frozenset[str] = frozenset()
    """The handlers that other walks need as they are: prepared."""
    busy: frozenset[str] = frozenset()
    """The handlers that are at work for other walks: nobody does two things at a time."""


class _Move(NamedTuple):
    walk: Walk
    todo: tuple[Do, ...] = ()


def start(event: Event, steps: Iterable[Step], world: World, *, is_only_told: bool = False) -> Next:
    """Begin the walk of an event that was not known before."""
    ordered = by_importance(tuple({step.handler: step for step in steps}.values()))
    walk = Walk(
        event=event,
        me=world.me,
        phase=Phase.NOTICE,
        noticed_at=world.now,
        steps=ordered,
        is_only_told=is_only_told,
    )
    following = advance(walk, world)
    return replace(following, todo=(Tell(Phase.NOTICE, 1), *following.todo))


def resume(walk: Walk, *, now: datetime) -> Next:
    """Take up a walk that was found in the journal, and tell the phase in which it is again.

    Nothing else is done before it is known whether the event is still there.
    """
    walk = take(walk, Restarted(), now=now)
    return Next(walk=walk, todo=(Tell(walk.phase, walk.restarts + 1),))


def around(id_: str, walks: Iterable[Walk]) -> tuple[frozenset[str], frozenset[str]]:
    """Return which handlers other walks than this one hold prepared, and which are at work for them."""
    steps = [(other, step) for other in walks if other.id != id_ for step in other.steps]
    held = (step.handler for other, step in steps if other.gone is None and step.is_to_recover)
    busy = (step.handler for _, step in steps if State.BEGUN in {step.prepare.state, step.recover.state})
    return frozenset(held), frozenset(busy)


def ending_of(walk: Walk, *, now: datetime) -> Ending:
    """Judge how an event went that nobody saw go: what was due, approved or begun has most likely happened."""
    deadline = walk.event.deadline
    is_due = deadline is not None and now >= deadline
    has_happened = walk.event.is_started or walk.approval.asked is Asked.GIVEN or is_due
    return Ending.FINISHED if has_happened else Ending.WITHDRAWN


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


def advance(walk: Walk, world: World) -> Next:
    """Go on as far as possible, and say what is to be done and when to look again."""
    todo: list[Do] = []
    while (move := _move(walk, world)) != (walk, ()):
        walk = move.walk
        todo += move.todo
    if _is_over(walk):
        return Next(walk=walk, todo=(*todo, Finish()))
    return Next(walk=walk, todo=(*todo, *_cuts(walk, world.now)), wake_at=_wake_at(walk, world))


def _move(walk: Walk, world: World) -> _Move:
    if walk.gone is not None and walk.phase is not Phase.RECOVER:
        return _enter(_give_up(walk, f"the event is {walk.gone.value}"), Phase.RECOVER)
    if walk.phase in BEFORE_IMPACT and walk.event.is_started:
        return _enter(_give_up(walk, "the event had started"), Phase.IMPACT)
    match walk.phase:
        case Phase.NOTICE:
            return _enter(walk, Phase.PREPARE)
        case Phase.PREPARE:
            return _prepare(walk, world)
        case Phase.READY | Phase.APPROVE:
            return _approve(walk, world)
        case Phase.IMPACT:
            return _Move(walk)
        case Phase.RECOVER:
            return _recover(walk, world)


def _enter(walk: Walk, phase: Phase) -> _Move:
    return _Move(replace(walk, phase=phase), (Tell(phase, 1),))


def _prepare(walk: Walk, world: World) -> _Move:
    for _, group in groupby(walk.steps, key=lambda step: step.importance):
        equals = tuple(group)
        if any(step.prepare.state in UNSETTLED for step in equals):
            return _begin_all(walk, Half.PREPARE, (_begin_prepare(walk.event, step, world) for step in equals))
    if waiting := [step for step in walk.steps if step.holds_back]:
        why = "; ".join(f"{step.handler} failed: {step.prepare.why}" for step in waiting)
        return _Move(replace(walk, approval=replace(walk.approval, why=f"this VM is not ready: {why}")))
    return _enter(replace(walk, ready_at=world.now), Phase.READY)


def _begin_prepare(event: Event, step: Step, world: World) -> Step:
    if not _is_due(step.prepare, world.now):
        return step
    until = end_of_slice(event, step.time_limit, now=world.now)
    if until is None:
        return replace(step, prepare=_given_up(step.prepare, "no time is left before the event"))
    return step if step.handler in world.busy else replace(step, prepare=_begun(step.prepare, world.now, until))


def _approve(walk: Walk, world: World) -> _Move:
    approval = walk.approval
    is_settled = approval.asked in {Asked.GIVEN, Asked.UNDER_WAY}
    if is_settled or walk.is_asking_peers or _is_later(approval.again_at, world.now):
        return _Move(walk)
    match judge(walk, policy=world.policy, peers=world.peers, now=world.now):
        case Yes(why):
            under_way = Approval(asked=Asked.UNDER_WAY, tries=approval.tries + 1, why=why)
            told = (Tell(Phase.APPROVE, 1),) if walk.phase is Phase.READY else ()
            return _Move(replace(walk, phase=Phase.APPROVE, approval=under_way), (*told, Approve()))
        case Ask(names):
            return _Move(replace(walk, is_asking_peers=True), (AskPeers(names),))
        case NotYet(why) | No(why):
            return _Move(replace(walk, approval=replace(approval, why=why)))


def _recover(walk: Walk, world: World) -> _Move:
    """Undo in the reverse order. What another walk still needs, or what failed for now, holds nothing else up."""
    if walk.comeback is not None and not _is_at_work(walk):
        return _revive(walk, walk.comeback, world.now)
    for _, group in groupby(reversed(walk.steps), key=lambda step: step.importance):
        equals = [step for step in group if step.is_to_recover and step.handler not in world.held]
        if any(_is_unsettled(step, world.now) for step in equals):
            return _begin_all(walk, Half.RECOVER, (_begin_recover(step, world) for step in equals))
    return _Move(walk)


def _is_unsettled(step: Step, now: datetime) -> bool:
    recover = step.recover
    return step.prepare.state is State.BEGUN or recover.state in UNSETTLED or _is_due(recover, now)


def _begin_recover(step: Step, world: World) -> Step:
    if step.prepare.state is State.BEGUN or step.handler in world.busy or not _is_due(step.recover, world.now):
        return step
    return replace(step, recover=_begun(step.recover, world.now, world.now + step.time_limit))


def _revive(walk: Walk, event: Event, now: datetime) -> _Move:
    """Begin anew with an event that came back while it was recovered. What is still prepared stays so."""
    steps = tuple(_unrecovered(step) for step in walk.steps)
    anew = Walk(
        event=event,
        me=walk.me,
        phase=Phase.NOTICE,
        noticed_at=now,
        steps=steps,
        is_only_told=walk.is_only_told,
        restarts=walk.restarts,
    )
    return _Move(anew, (Tell(Phase.NOTICE, walk.restarts + 1),))


def _unrecovered(step: Step) -> Step:
    if step.prepare.state is State.DONE and step.recover == NOT_BEGUN:
        return step
    return replace(step, prepare=_anew(step.prepare), recover=_anew(step.recover))


def _begin_all(walk: Walk, half: Half, steps: Iterable[Step]) -> _Move:
    changed = {step.handler: step for step in steps}
    old = {step.handler: step for step in walk.steps}
    todo = tuple(_run(step, half) for name, step in changed.items() if step != old[name] and _is_begun(step, half))
    return _Move(replace(walk, steps=tuple(changed.get(step.handler, step) for step in walk.steps)), todo)


def _run(step: Step, half: Half) -> RunHalf:
    progress = step.progress(half)
    if progress.until is None:
        raise ValueError("a half that is begun has an end")
    return RunHalf(step.handler, half, progress.attempt, progress.until)


def _is_begun(step: Step, half: Half) -> bool:
    return step.progress(half).state is State.BEGUN


def _begun(progress: Progress, now: datetime, until: datetime) -> Progress:
    return Progress(
        state=State.BEGUN, attempt=progress.attempt + 1, tries=progress.tries + 1, begun_at=now, until=until
    )


def _is_due(progress: Progress, now: datetime) -> bool:
    """Tell whether its next try may begin: a first one, one after a pause, and one after a failure that has an end."""
    if progress.state is State.WAITING:
        return True
    return progress.state in {State.PAUSING, State.FAILED} and progress.until is not None and progress.until <= now


def _give_up(walk: Walk, why: str) -> Walk:
    """Prepare nothing more. What runs may run to its end."""
    waits = {State.WAITING, State.PAUSING}
    steps = (
        replace(step, prepare=_given_up(step.prepare, why)) if step.prepare.state in waits else step
        for step in walk.steps
    )
    return replace(walk, steps=tuple(steps))


def _given_up(progress: Progress, why: str) -> Progress:
    if not progress.attempt:
        return Progress(state=State.SKIPPED, why=why)
    return replace(progress, state=State.FAILED, until=None, why=f"{progress.why}; {why}" if progress.why else why)


def _anew(progress: Progress) -> Progress:
    """Return it with all tries before it; the number of the attempt goes on."""
    return Progress(attempt=progress.attempt)


def _seen(walk: Walk, event: Event) -> Walk:
    if walk.gone is not None:
        return replace(walk, comeback=event)
    if event == walk.event:
        return walk
    is_postponed = _is_postponed(walk.event, event)
    steps = tuple(_retimed(step, event, is_postponed=is_postponed) for step in walk.steps)
    # What peers said was said of the event as it was.
    walk = replace(walk, event=event, steps=steps, peers=(), peers_asked_at=None)
    has_more_to_do = any(step.prepare.state is State.WAITING for step in steps)
    return replace(walk, phase=Phase.PREPARE, ready_at=None) if has_more_to_do and walk.phase is Phase.READY else walk


def _is_postponed(before: Event, event: Event) -> bool:
    if before.deadline is None or event.is_started:
        return False
    return event.deadline is None or event.deadline > before.deadline


def _retimed(step: Step, event: Event, *, is_postponed: bool) -> Step:
    """Fit a step into the time there is now: what runs ends earlier or later, what was skipped may have its turn."""
    prepare = step.prepare
    if prepare.state is State.SKIPPED and is_postponed:
        return replace(step, prepare=NOT_BEGUN)
    if prepare.state is State.BEGUN and prepare.begun_at is not None and event.deadline is not None:
        until = min(prepare.begun_at + step.time_limit, event.deadline - MARGIN)
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
    return again if walk.phase in BEFORE_IMPACT else _give_up(again, "the agent ended meanwhile")


def _picked_up(step: Step) -> Step:
    under_way = {State.BEGUN, State.PAUSING}
    prepare = _anew(step.prepare) if step.prepare.state in under_way else step.prepare
    recover = _anew(step.recover) if step.recover.state in under_way | {State.FAILED} else step.recover
    return replace(step, prepare=prepare, recover=recover)


def _is_at_work(walk: Walk) -> bool:
    return any(State.BEGUN in {step.prepare.state, step.recover.state} for step in walk.steps)


def _is_over(walk: Walk) -> bool:
    is_recovered = not any(step.is_to_recover for step in walk.steps)
    return walk.phase is Phase.RECOVER and is_recovered and not _is_at_work(walk)


def _cuts(walk: Walk, now: datetime) -> Iterator[CutShort]:
    for step in walk.steps:
        for half in Half:
            progress = step.progress(half)
            if progress.state is State.BEGUN and (why := _why_cut(walk, progress, half, now)):
                yield CutShort(step.handler, half, progress.attempt, why)


def _why_cut(walk: Walk, progress: Progress, half: Half, now: datetime) -> str:
    if half is Half.PREPARE and walk.gone is not None:
        return f"the event is {walk.gone.value}"
    if progress.until is None or progress.begun_at is None or now < progress.until:
        return ""
    return f"its time was over after {(progress.until - progress.begun_at).total_seconds():.0f} s"


def _wake_at(walk: Walk, world: World) -> datetime | None:
    return min((moment for moment in _moments(walk, world) if moment > world.now), default=None)


def _moments(walk: Walk, world: World) -> Iterator[datetime]:
    """Give every moment at which time alone may change something."""
    ends = (progress.until for step in walk.steps for progress in (step.prepare, step.recover))
    yield from (end for end in ends if end is not None)
    if not walk.is_scheduled:
        return
    if (deadline := walk.event.deadline) is not None:
        yield from (deadline - MARGIN, deadline)
    if walk.approval.again_at is not None:
        yield walk.approval.again_at
    verdict = judge(walk, policy=world.policy, peers=world.peers, now=world.now)
    if isinstance(verdict, NotYet) and verdict.until is not None:
        yield verdict.until


def _is_later(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment > now
