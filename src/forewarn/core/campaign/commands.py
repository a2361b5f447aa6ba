"""Commands of operators on a started campaign: pause, resume, abort, and retry or skip a wave."""

from datetime import datetime

from forewarn.core.campaign.record import MAX_ATTEMPTS, CampaignState, ScopeProgress, StateChange, Wave, WaveState
from forewarn.core.campaign.rollout import Rollout
from forewarn.core.errors import CampaignScopeNotFound, Invalid, InvalidCampaignState
from forewarn.core.impact import STUCK
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.core.text import check_text, truncate_text

TRANSITIONS: dict[tuple[CampaignState, str], CampaignState] = {
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


def pause(rollout: Rollout, *, by: str, why: str = "", now: datetime) -> None:
    """Announce and clear nothing until it is resumed. What has started ends."""
    if _apply(rollout, "pause", by=by, why=why, now=now):
        rollout.add_entry(EntryKind.CAMPAIGN_PAUSED, by=by, now=now, why=why)


def resume(rollout: Rollout, *, by: str, why: str = "", now: datetime) -> None:
    """Go on; failures, and how long a gate has been shut, are counted anew."""
    if _apply(rollout, "resume", by=by, why=why, now=now):
        rollout.set(failures=0, gate=None)
        rollout.add_entry(EntryKind.CAMPAIGN_RESUMED, by=by, now=now, why=why)


def abort(rollout: Rollout, *, by: str, why: str = "", now: datetime) -> None:
    """Cancel what is Scheduled, let what is Started end, and be over."""
    if _apply(rollout, "abort", by=by, why=why, now=now):
        rollout.add_entry(EntryKind.CAMPAIGN_ABORTED, by=by, now=now, why=why)
        rollout.mark_all_unseen()


def _apply(rollout: Rollout, action: str, *, by: str, why: str, now: datetime) -> bool:
    """Bring the campaign into another state; tell whether it is another one."""
    check_text(why, "reason")
    state = rollout.campaign.state
    to = TRANSITIONS.get((state, action))
    if to is None:
        raise InvalidCampaignState(f"campaign {rollout.campaign.name}", state.value, f"be {_PARTICIPLES[action]}")
    if to is state:
        return False
    rollout.set(state=to, state_change=StateChange(by=by, at=now, why=truncate_text(why)))
    return True


_PARTICIPLES = {"pause": "paused", "resume": "resumed", "abort": "aborted"}


def retry(rollout: Rollout, id_: str, scope: Scope | None, *, by: str, why: str = "", now: datetime) -> None:
    """Have the failed wave of a scope done once more: its stuck work, or all of it that is not done."""
    progress, n, wave = _wave(rollout, id_, "be retried")
    if wave.state is WaveState.RETRYING:
        return
    if wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(f"wave {n} of scope {id_}", wave.state.text, "be retried")
    campaign = rollout.campaign
    at = campaign.seconds(progress, now)
    if scope is not None and _is_stuck(scope, campaign.request(id_, n)):
        rollout.put(progress.with_wave(n, wave.with_state(WaveState.RETRYING, at)))
    elif campaign.state is CampaignState.ABORTING:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "over, and its campaign is aborted", "be announced again"
        )
    elif len(campaign.attempts) >= MAX_ATTEMPTS and f"{n}/{id_}" not in campaign.attempts:
        raise InvalidCampaignState(
            f"campaign {campaign.name}", f"about to do {MAX_ATTEMPTS} waves again", "take on more of them yet"
        )
    else:
        rollout.put(progress.with_wave(n, wave.with_state(WaveState.PLANNED, 0)))
        rollout.set(attempts={**campaign.attempts, f"{n}/{id_}": campaign.attempt(id_, n) + 1})
    rollout.clear_failure(id_)
    rollout.add_wave_entry(EntryKind.WAVE_RETRIED, progress, n, by=by, now=now, why=why)


def skip(rollout: Rollout, id_: str, *, by: str, why: str, now: datetime) -> None:
    """Pass over the current wave of a scope: what is stuck of it is given up, what is Scheduled canceled.

    An abort cancels by itself what has not begun: from then on only what has failed can be skipped.
    """
    if not why.strip():
        raise Invalid("skipping needs a reason: the VMs of the wave are left as they are")
    progress, n, wave = _wave(rollout, id_, "be skipped")
    if wave.state in (WaveState.CLEARED, WaveState.RETRYING):
        raise InvalidCampaignState(f"wave {n} of scope {id_}", "under way", "be skipped")
    if rollout.campaign.state is CampaignState.ABORTING and wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "not going to begin, as its campaign is aborted", "be skipped"
        )
    rollout.put(progress.with_wave(n, wave.with_state(WaveState.SKIPPED, rollout.campaign.seconds(progress, now))))
    rollout.clear_failure(id_)
    rollout.add_wave_entry(EntryKind.WAVE_SKIPPED, progress, n, by=by, now=now, why=why)


def _wave(rollout: Rollout, id_: str, action: str) -> tuple[ScopeProgress, int, Wave]:
    campaign = rollout.campaign
    if not rollout.has(id_):
        raise CampaignScopeNotFound(id_, campaign.name)
    if campaign.state.is_over:
        raise InvalidCampaignState(f"campaign {campaign.name}", campaign.state.value, f"have waves that could {action}")
    progress = rollout.progress(id_)
    n = progress.current
    if n > len(progress.waves):
        raise InvalidCampaignState(f"scope {id_}", "through with the campaign", f"have a wave that could {action}")
    return progress, n, progress.wave(n)


def _is_stuck(scope: Scope, request: str) -> bool:
    return any(impact.state in STUCK for event in scope.events if event.request == request for impact in event.impacts)
