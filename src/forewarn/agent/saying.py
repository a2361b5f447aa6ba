"""What the agent's log says about its walks: one line for each remark, with the same facts in the same places."""

import logging
from typing import Any

from forewarn.agent.phases import Half
from forewarn.agent.remarks import ApprovalCame, HalfCame, PhaseBegan, Remark
from forewarn.agent.walk import Asked, Progress, State, Walk

LOG = logging.getLogger("forewarn.agent.walk")

HALVES: dict[State, tuple[int, str]] = {
    State.BEGUN: (logging.INFO, "begins"),
    State.PAUSING: (logging.WARNING, "is tried again soon"),
    State.DONE: (logging.INFO, "is done"),
    State.FAILED: (logging.ERROR, "failed"),
    State.SKIPPED: (logging.WARNING, "is skipped"),
}

APPROVALS: dict[Asked, tuple[int, str]] = {
    Asked.NOT_YET: (logging.WARNING, "not approved"),
    Asked.UNDER_WAY: (logging.INFO, "approving"),
    Asked.GIVEN: (logging.INFO, "approved"),
    Asked.FAILED: (logging.ERROR, "the approval failed"),
}


def say(walk: Walk, remark: Remark, *, dry_run: bool = False) -> None:
    """Say it in the log; in a dry run not without saying that it is none of what really happens."""
    about = f"dry run: {walk.event.type}" if dry_run else str(walk.event.type)
    match remark:
        case PhaseBegan(phase, attempt):
            again = "" if attempt == 1 else ", again after a restart"
            _log(logging.INFO, f"{about}: {phase}{again}", walk, phase=phase, attempt=attempt)
        case HalfCame(handler, half, progress):
            _say_half(about, walk, handler, half, progress)
        case ApprovalCame(asked, why):
            level, words = APPROVALS[asked]
            _log(level, f"{about}: {words}{_because(why)}", walk, approval=asked, why=why)


def _say_half(about: str, walk: Walk, handler: str, half: Half, progress: Progress) -> None:
    level, words = HALVES[progress.state]
    message = f"{about}: {half} of {handler} {words}{_because(progress.why)}"
    _log(level, message, walk, handler=handler, half=half, attempt=progress.attempt, state=progress.state)


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _log(level: int, message: str, walk: Walk, **facts: Any) -> None:
    LOG.log(level, "%s", message, extra={"event": walk.event.id, "phase": walk.phase} | facts)
