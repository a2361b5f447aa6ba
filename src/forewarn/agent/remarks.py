"""What is worth saying about how a walk went on: for the log and for the figures. Pure."""

from collections.abc import Iterator

import msgspec

from forewarn.agent.phases import Half, Phase
from forewarn.agent.walk import Approval, Asked, Next, Progress, State, Step, Tell, Walk


class PhaseBegan(msgspec.Struct, frozen=True):
    """The walk has come to a phase, or goes on in it after a restart."""

    phase: Phase
    attempt: int


class HalfCame(msgspec.Struct, frozen=True):
    """A half has come to a state that is worth a word."""

    handler: str
    half: Half
    progress: Progress


class ApprovalCame(msgspec.Struct, frozen=True):
    """The approval was given, or failed, or there is another reason why there is none."""

    asked: Asked
    why: str


Remark = PhaseBegan | HalfCame | ApprovalCame

ENDED = frozenset({State.PAUSING, State.DONE, State.FAILED})
SAID = ENDED | {State.BEGUN, State.SKIPPED}


def remarks(before: Walk | None, following: Next) -> Iterator[Remark]:
    """Give what became different, in the order in which it happened: what ended, what phases came, what begins."""
    halves = [remark for step in following.walk.steps for remark in _of_step(_step_of(before, step), step)]
    yield from (remark for remark in halves if remark.progress.state in ENDED)
    yield from (PhaseBegan(do.phase, do.attempt) for do in following.todo if isinstance(do, Tell))
    yield from (remark for remark in halves if remark.progress.state not in ENDED)
    old, new = before.approval if before else Approval(), following.walk.approval
    if (new.asked, new.why) != (old.asked, old.why):
        yield ApprovalCame(new.asked, new.why)


def _step_of(walk: Walk | None, step: Step) -> Step | None:
    return None if walk is None else walk.step(step.handler)


def _of_step(before: Step | None, after: Step) -> Iterator[HalfCame]:
    for half in Half:
        old, new = before.progress(half) if before else None, after.progress(half)
        if new.state in SAID and (old is None or (old.state, old.attempt) != (new.state, new.attempt)):
            yield HalfCame(after.handler, half, new)
