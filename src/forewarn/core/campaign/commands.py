"""Commands of operators on a campaign: start, pause, resume, abort, and retry or skip a wave."""

from collections.abc import Sequence
from datetime import datetime

from forewarn.core.campaign.draft import CampaignDecision, CampaignDraft
from forewarn.core.campaign.load import has_stuck_work
from forewarn.core.campaign.plan import Plan, PlannedWave
from forewarn.core.campaign.record import (
    MAX_ATTEMPTS,
    SECOND,
    Campaign,
    CampaignState,
    ScopeProgress,
    StateChange,
    Wave,
    WaveState,
)
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.errors import CampaignScopeNotFound, Invalid, InvalidCampaignState, PlacementFailed
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

_ENTRY_KINDS = {
    "pause": EntryKind.CAMPAIGN_PAUSED,
    "resume": EntryKind.CAMPAIGN_RESUMED,
    "abort": EntryKind.CAMPAIGN_ABORTED,
}
_PARTICIPLES = {"pause": "paused", "resume": "resumed", "abort": "aborted"}


def start(
    spec: CampaignSpec,
    plan: Plan,
    scopes: Sequence[ScopeProgress],
    *,
    id_: str,
    by: str,
    why: str = "",
    now: datetime,
    notify: bool = False,
) -> CampaignDecision:
    """Start a campaign as it was planned; `plan_progress` gives its scopes.

    A plan that leaves VMs without a place is refused.
    """
    if plan.unplaced:
        first, *others = plan.unplaced
        raise PlacementFailed(first.scope, len(first.vms), first.rule, first.why, len(others))
    if not plan.waves:
        raise Invalid("the selection fits no VM: `forewarn vm list` shows what there is")
    why, totals = truncate_text(why), plan.totals
    facts = {
        "name": spec.name,
        "type": spec.type.value,
        "scopes": str(totals.scopes),
        "waves": str(len(plan.waves)),
        "vms": str(totals.vms),
    }
    record = Campaign(
        id=id_,
        spec=spec,
        state=CampaignState.RUNNING,
        by=by,
        started_at=now.replace(microsecond=0),
        state_change=StateChange(by=by, at=now, why=why),
        scopes=tuple(scopes),
        selected=totals,
        why=why,
        planned_end=plan.ends_at,
    )
    draft = CampaignDraft(record, notify=notify)
    draft.add_entry(EntryKind.CAMPAIGN_STARTED, by=by, now=now, why=why, **facts)
    draft.add_notification("started", now=now, why=why)
    return draft.finish()


def plan_progress(planned: Sequence[PlannedWave], *, started_at: datetime, seen: int) -> ScopeProgress:
    """Return how far a scope is of which nothing is done; `seen` is the last line of its journal."""
    first = planned[0].not_before
    waves = tuple(Wave(wave.update_domain, (wave.not_before - first) // SECOND, vms=len(wave.vms)) for wave in planned)
    return ScopeProgress(planned[0].scope, (first - started_at) // SECOND, waves, seen)


def pause(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Announce and clear nothing until it is resumed. What has started ends."""
    return _apply(record, "pause", by=by, why=why, now=now)


def resume(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Go on; failures, and how long a gate has been closed, are counted from zero."""
    return _apply(record, "resume", by=by, why=why, now=now, failures=0, gate=None)


def abort(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Cancel what is Scheduled, let what is Started end, and be over."""
    return _apply(record, "abort", by=by, why=why, now=now)


def _apply(record: Campaign, action: str, *, by: str, why: str, now: datetime, **fields: object) -> CampaignDecision:
    """Bring the campaign into another state."""
    check_text(why, "reason")
    to = TRANSITIONS.get((record.state, action))
    if to is None:
        raise InvalidCampaignState(f"campaign {record.name}", record.state.value, f"be {_PARTICIPLES[action]}")
    draft = CampaignDraft(record)
    if to is not record.state:
        draft.set(state=to, state_change=StateChange(by=by, at=now, why=truncate_text(why)), **fields)
        draft.add_entry(_ENTRY_KINDS[action], by=by, now=now, why=why)
    return draft.finish()


def retry(
    record: Campaign, id_: str, scope: Scope | None, *, by: str, why: str = "", now: datetime
) -> CampaignDecision:
    """Have the failed wave of a scope done once more: its stuck work, or all of it that is not done."""
    draft = CampaignDraft(record)
    n, wave = _current_wave(draft, id_, "be retried")
    if wave.state is WaveState.RETRYING:
        return draft.finish()
    if wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(f"wave {n} of scope {id_}", wave.state.text, "be retried")
    request = record.request(id_, n)
    if scope is not None and any(has_stuck_work(event) for event in scope.events if event.request == request):
        draft.put_wave(id_, n, WaveState.RETRYING, now)
    elif record.state is CampaignState.ABORTING:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "over, and its campaign is aborted", "be announced again"
        )
    elif len(record.attempts) >= MAX_ATTEMPTS and f"{n}/{id_}" not in record.attempts:
        raise InvalidCampaignState(
            f"campaign {record.name}", f"about to do {MAX_ATTEMPTS} waves again", "take on more of them yet"
        )
    else:
        draft.put_wave(id_, n, WaveState.PLANNED, None)
        draft.set(attempts={**record.attempts, f"{n}/{id_}": record.attempt(id_, n) + 1})
    draft.clear_failure(id_)
    draft.add_wave_entry(EntryKind.WAVE_RETRIED, id_, n, by=by, now=now, why=why)
    return draft.finish()


def skip(record: Campaign, id_: str, *, by: str, why: str, now: datetime) -> CampaignDecision:
    """Pass over the current wave of a scope: what is stuck of it is given up, what is Scheduled canceled.

    An abort cancels by itself what has not begun: from then on only what has failed can be skipped.
    """
    if not why.strip():
        raise Invalid("skipping needs a reason: the VMs of the wave are left as they are")
    draft = CampaignDraft(record)
    n, wave = _current_wave(draft, id_, "be skipped")
    if wave.state in (WaveState.CLEARED, WaveState.RETRYING):
        raise InvalidCampaignState(f"wave {n} of scope {id_}", "under way", "be skipped")
    if record.state is CampaignState.ABORTING and wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "not going to begin, as its campaign is aborted", "be skipped"
        )
    draft.skip(id_, n, by=by, now=now, why=why)
    return draft.finish()


def _current_wave(draft: CampaignDraft, id_: str, action: str) -> tuple[int, Wave]:
    campaign = draft.record
    if not draft.has(id_):
        raise CampaignScopeNotFound(id_, campaign.name)
    if campaign.state.is_over:
        raise InvalidCampaignState(f"campaign {campaign.name}", campaign.state.value, f"have waves that could {action}")
    progress = draft.progress(id_)
    n = progress.current
    if n > len(progress.waves):
        raise InvalidCampaignState(f"scope {id_}", "through with the campaign", f"have a wave that could {action}")
    return n, progress.wave(n)
