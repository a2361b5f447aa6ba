"""How a walk goes on: notice → prepare → ready → approve → impact → recover. Pure.

What happened is written down by `taking`; `advance` draws the consequences and says what to do. Whoever calls it keeps
the new walk first and acts then: what is done is always known, and what is begun may have to be done again.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from forewarn.agent.approving import Ask, No, NotYet, Policy, Yes, judge
from forewarn.agent.halves import anew, begun, give_up, given_up, is_due
from forewarn.agent.phases import Half, Phase
from forewarn.agent.slices import MARGIN, by_importance, end_of_slice, prepare_by
from forewarn.agent.taking import take
from forewarn.agent.walk import (
    BEFORE_IMPACT,
    NOT_BEGUN,
    Approval,
    Approve,
    Asked,
    AskPeers,
    CutShort,
    Do,
    Finish,
    Next,
    Progress,
    Restarted,
    RunHalf,
    State,
    Step,
    Tell,
    Walk,
)
from forewarn.client.document import Event

UNSETTLED = frozenset({State.WAITING, State.BEGUN, State.PAUSING})


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
    boot: str = ""
    """Which boot of the machine this is; empty where nobody knows."""


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
        boot=world.boot,
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
        return _enter(give_up(walk, f"the event is {walk.gone.value}"), Phase.RECOVER)
    if walk.phase in BEFORE_IMPACT and walk.event.is_started:
        return _enter(give_up(walk, "the event had started"), Phase.IMPACT)
    if walk.boot != world.boot:
        return _Move(_rebooted(walk, world.boot))
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


def _rebooted(walk: Walk, boot: str) -> Walk:
    """Prepare anew what the machine may have started again while it booted: the event is still to come."""
    is_known = bool(walk.boot and boot)
    walk = replace(walk, boot=boot)
    if not is_known or walk.phase not in BEFORE_IMPACT:
        return walk
    steps = tuple(replace(step, prepare=anew(step.prepare)) if step.prepare.attempt else step for step in walk.steps)
    return replace(walk, phase=Phase.PREPARE, steps=steps, ready_at=None)


def _prepare(walk: Walk, world: World) -> _Move:
    for _, group in groupby(walk.steps, key=lambda step: step.importance):
        equals = tuple(group)
        if any(step.prepare.state in UNSETTLED for step in equals):
            return _begin_all(walk, Half.PREPARE, (_begin_prepare(walk, step, world) for step in equals))
    if waiting := [step for step in walk.steps if step.holds_back]:
        why = "; ".join(f"{step.handler} failed: {step.prepare.why}" for step in waiting)
        return _Move(replace(walk, approval=replace(walk.approval, why=f"this VM is not ready: {why}")))
    return _enter(replace(walk, ready_at=world.now), Phase.READY)


def _begin_prepare(walk: Walk, step: Step, world: World) -> Step:
    if not is_due(step.prepare, world.now):
        return step
    until = end_of_slice(prepare_by(walk.event, walk.noticed_at), step.time_limit, now=world.now)
    if until is None:
        return replace(step, prepare=given_up(step.prepare, "no time is left before the event"))
    return step if step.handler in world.busy else replace(step, prepare=begun(step.prepare, world.now, until))


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
    return step.prepare.state is State.BEGUN or recover.state in UNSETTLED or is_due(recover, now)


def _begin_recover(step: Step, world: World) -> Step:
    if step.prepare.state is State.BEGUN or step.handler in world.busy or not is_due(step.recover, world.now):
        return step
    return replace(step, recover=begun(step.recover, world.now, world.now + step.time_limit))


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
        boot=walk.boot,
    )
    return _Move(anew, (Tell(Phase.NOTICE, walk.restarts + 1),))


def _unrecovered(step: Step) -> Step:
    if step.prepare.state is State.DONE and step.recover == NOT_BEGUN:
        return step
    return replace(step, prepare=anew(step.prepare), recover=anew(step.recover))


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
