"""What people do with a campaign that was started: pause, resume, abort, and decide about waves that have failed."""

from datetime import datetime

from forewarn.core.campaign.record import ATTEMPTS, CampaignState, Said, ScopeProgress, Wave, WaveState
from forewarn.core.campaign.running import Course
from forewarn.core.errors import Invalid, NotInCampaign, NotNow
from forewarn.core.event import STUCK
from forewarn.core.journal import Did
from forewarn.core.scope import Scope
from forewarn.core.text import check_text, shortened

MOVES: dict[tuple[CampaignState, str], CampaignState] = {
    (CampaignState.RUNNING, "pause"): CampaignState.PAUSED,
    (CampaignState.PAUSED, "pause"): CampaignState.PAUSED,
    (CampaignState.HALTED, "pause"): CampaignState.PAUSED,
    (CampaignState.RUNNING, "resume"): CampaignState.RUNNING,
    (CampaignState.PAUSED, "resume"): CampaignState.RUNNING,
    (CampaignState.HALTED, "resume"): CampaignState.RUNNING,
    (CampaignState.RUNNING, "abort"): CampaignState.ABORTING,
    (CampaignState.PAUSED, "abort"): CampaignState.ABORTING,
    (CampaignState.HALTED, "abort"): CampaignState.ABORTING,
    (CampaignState.ABORTING, "abort"): CampaignState.ABORTING,
}
"""What a person can do with a campaign. What is not in the table is refused; what changes nothing is no mistake."""


def pause(course: Course, *, by: str, why: str = "", now: datetime) -> None:
    """Announce and clear nothing until it is resumed. What has started ends."""
    if _move(course, "pause", by=by, why=why, now=now):
        course.note(Did.CAMPAIGN_PAUSED, by=by, now=now, why=why)


def resume(course: Course, *, by: str, why: str = "", now: datetime) -> None:
    """Go on; failures, and how long a gate has been shut, are counted anew."""
    if _move(course, "resume", by=by, why=why, now=now):
        course.set(failures=0, gate=None)
        course.note(Did.CAMPAIGN_RESUMED, by=by, now=now, why=why)


def abort(course: Course, *, by: str, why: str = "", now: datetime) -> None:
    """Cancel what is Scheduled, let what is Started end, and be over."""
    if _move(course, "abort", by=by, why=why, now=now):
        course.note(Did.CAMPAIGN_ABORTED, by=by, now=now, why=why)
        course.look_again()


def _move(course: Course, move: str, *, by: str, why: str, now: datetime) -> bool:
    """Bring the campaign into another state; tell whether it is another one."""
    check_text(why, "reason")
    state = course.campaign.state
    to = MOVES.get((state, move))
    if to is None:
        raise NotNow(f"campaign {course.campaign.name}", state.value, f"be {_PAST[move]}")
    if to is state:
        return False
    course.set(state=to, said=Said(by=by, at=now, why=shortened(why)))
    return True


_PAST = {"pause": "paused", "resume": "resumed", "abort": "aborted"}


def retry(course: Course, id_: str, scope: Scope | None, *, by: str, why: str = "", now: datetime) -> None:
    """Have the failed wave of a scope done once more: its stuck work, or all of it that is not done."""
    progress, n, wave = _wave(course, id_, "be retried")
    if wave.state is WaveState.RETRYING:
        return
    if wave.state is not WaveState.FAILED:
        raise NotNow(f"wave {n} of scope {id_}", wave.state.word, "be retried")
    campaign = course.campaign
    at = campaign.seconds(progress, now)
    if scope is not None and _is_stuck(scope, campaign.request(id_, n)):
        course.put(progress.with_wave(n, wave.now(WaveState.RETRYING, at)))
    elif campaign.state is CampaignState.ABORTING:
        raise NotNow(f"wave {n} of scope {id_}", "over, and its campaign is aborted", "be announced again")
    elif len(campaign.attempts) >= ATTEMPTS and f"{n}/{id_}" not in campaign.attempts:
        raise NotNow(f"campaign {campaign.name}", f"about to do {ATTEMPTS} waves again", "take on more of them yet")
    else:
        course.put(progress.with_wave(n, wave.now(WaveState.PLANNED, 0)))
        course.set(attempts={**campaign.attempts, f"{n}/{id_}": campaign.attempt(id_, n) + 1})
    course.forget_trouble(id_)
    course.note_wave(Did.WAVE_RETRIED, progress, n, by=by, now=now, why=why)


def skip(course: Course, id_: str, *, by: str, why: str, now: datetime) -> None:
    """Pass over the current wave of a scope: what is stuck of it is given up, what is Scheduled canceled.

    An abort cancels by itself what has not begun: from then on only what has failed can be skipped.
    """
    if not why.strip():
        raise Invalid("skipping needs a reason: the VMs of the wave are left as they are")
    progress, n, wave = _wave(course, id_, "be skipped")
    if wave.state in (WaveState.CLEARED, WaveState.RETRYING):
        raise NotNow(f"wave {n} of scope {id_}", "under way", "be skipped")
    if course.campaign.state is CampaignState.ABORTING and wave.state is not WaveState.FAILED:
        raise NotNow(f"wave {n} of scope {id_}", "not going to begin, as its campaign is aborted", "be skipped")
    course.put(progress.with_wave(n, wave.now(WaveState.SKIPPED, course.campaign.seconds(progress, now))))
    course.forget_trouble(id_)
    course.note_wave(Did.WAVE_SKIPPED, progress, n, by=by, now=now, why=why)


def _wave(course: Course, id_: str, move: str) -> tuple[ScopeProgress, int, Wave]:
    campaign = course.campaign
    if not course.has(id_):
        raise NotInCampaign(id_, campaign.name)
    if campaign.state.is_over:
        raise NotNow(f"campaign {campaign.name}", campaign.state.value, f"have waves that could {move}")
    progress = course.progress(id_)
    n = progress.current
    if n > len(progress.waves):
        raise NotNow(f"scope {id_}", "through with the campaign", f"have a wave that could {move}")
    return progress, n, progress.wave(n)


def _is_stuck(scope: Scope, request: str) -> bool:
    return any(impact.state in STUCK for event in scope.events if event.request == request for impact in event.impacts)
