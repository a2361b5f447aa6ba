"""How one half of one handler comes from one state to another. Pure."""

from datetime import datetime

from msgspec.structs import replace

from forewarn.agent.walk import Progress, State, Walk


def begun(progress: Progress, now: datetime, until: datetime) -> Progress:
    """Return it with its next attempt under way until then."""
    return Progress(
        state=State.BEGUN, attempt=progress.attempt + 1, tries=progress.tries + 1, begun_at=now, until=until
    )


def is_due(progress: Progress, now: datetime) -> bool:
    """Tell whether its next try may begin: a first one, one after a pause, and one after a failure that has an end."""
    if progress.state is State.WAITING:
        return True
    return progress.state in {State.PAUSING, State.FAILED} and progress.until is not None and progress.until <= now


def give_up(walk: Walk, why: str) -> Walk:
    """Prepare nothing more. What runs may run to its end."""
    waits = {State.WAITING, State.PAUSING}
    steps = (
        replace(step, prepare=given_up(step.prepare, why)) if step.prepare.state in waits else step
        for step in walk.steps
    )
    return replace(walk, steps=tuple(steps))


def given_up(progress: Progress, why: str) -> Progress:
    """Return it without any try to come: skipped if there was none, else failed."""
    if not progress.attempt:
        return Progress(state=State.SKIPPED, why=why)
    return replace(progress, state=State.FAILED, until=None, why=f"{progress.why}; {why}" if progress.why else why)


def anew(progress: Progress) -> Progress:
    """Return it with all tries before it; the number of the attempt goes on."""
    return Progress(attempt=progress.attempt)
