"""What is worth saying about how a walk went on: for the log and for the figures. Pure."""

from collections.abc import Iterator

import msgspec

from forewarn.agent.phases import Half, Phase
from forewarn.agent.walk import Asked, Progress, State, Step, Walk


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

SAID = frozenset({State.BEGUN, State.PAUSING, State.DONE, State.FAILED, State.SKIPPED})


def remarks(before: Walk | None, after: Walk) -> Iterator[Remark]:
    """Give what became different. Phases are not among it: a walk may pass several at a time, and tells of each."""
    for step in after.steps:
        yield from _of_step(None if before is None else before.step(step.handler), step)
    old = None if before is None else before.approval
    new = after.approval
    if (new.asked, new.why) != ((old.asked, old.why) if old else (Asked.NOT_YET, "")):
        yield ApprovalCame(new.asked, new.why)


def _of_step(before: Step | None, after: Step) -> Iterator[HalfCame]:
    for half in Half:
        old, new = before.progress(half) if before else None, after.progress(half)
        if new.state in SAID and (old is None or (old.state, old.attempt) != (new.state, new.attempt)):
            yield HalfCame(after.handler, half, new)
