"""Commands of operators on a campaign: start, pause, resume, abort, and retry or skip a wave."""

from collections.abc import Sequence
from datetime import datetime

from forewarn.core.campaign.draft import CampaignDecision, CampaignDraft
from forewarn.core.campaign.load import has_stuck_work
from forewarn.core.campaign.plan import NOTHING_SELECTED, Plan, PlannedWave
from forewarn.core.campaign.record import (
    ALL_ANNOUNCED,
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
from forewarn.core.errors import CampaignScopeNotFound, Invalid, InvalidCampaignState, NotAnnounced, PlacementFailed
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.core.text import check_text, truncate_text

MAX_SCOPES_NAMED = 20
"""How many of the scopes that will not hear of a campaign a refusal names."""

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
"""What an operator can do with a campaign in each state; anything else is refused. Repeating a command is allowed."""

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
    unannounced: bool = False,
) -> CampaignDecision:
    """Start a campaign as planned; `plan_progress` returns its scopes.

    A plan with unplaced VMs is refused, and one that VMs will not hear of, unless the caller consents to that.
    """
    if plan.unplaced:
        first, *others = plan.unplaced
        raise PlacementFailed(first.scope, len(first.vms), first.rule, first.why, len(others))
    if not plan.waves:
        raise Invalid(NOTHING_SELECTED)
    if plan.needs_consent and not unannounced:
        silent = tuple(dict.fromkeys(wave.scope for wave in plan.waves if not wave.announced))
        counts = plan.unannounced
        raise NotAnnounced(plan.unannounced_text, silent[:MAX_SCOPES_NAMED], counts.scopes, counts.vms)
    why, totals = truncate_text(why), plan.totals
    facts = {
        "name": spec.name,
        "type": spec.type.value,
        "scopes": str(totals.scopes),
        "waves": str(len(plan.waves)),
        "vms": str(totals.vms),
    }
    if plan.unannounced.scopes:
        facts |= {
            "unannounced_scopes": str(plan.unannounced.scopes),
            "unannounced_vms": str(plan.unannounced.vms),
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
        unannounced=plan.unannounced if plan.unannounced.scopes else ALL_ANNOUNCED,
        why=why,
        planned_end=plan.ends_at,
    )
    draft = CampaignDraft(record, notify=notify)
    draft.add_entry(EntryKind.CAMPAIGN_STARTED, by=by, now=now, why=why, **facts)
    draft.add_notification("started", now=now, why=why)
    return draft.finish()


def plan_progress(planned: Sequence[PlannedWave], *, started_at: datetime, seen: int) -> ScopeProgress:
    """Return the initial progress of a scope; `seen` is the last line of its journal."""
    first = planned[0].not_before
    waves = tuple(Wave(wave.update_domain, (wave.not_before - first) // SECOND, vms=len(wave.vms)) for wave in planned)
    return ScopeProgress(planned[0].scope, (first - started_at) // SECOND, waves, seen)


def pause(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Announce and clear nothing until the campaign is resumed. Started events end normally."""
    return _apply(record, "pause", by=by, why=why, now=now)


def resume(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Continue; the failure count and the time that a gate has been closed restart from zero."""
    return _apply(record, "resume", by=by, why=why, now=now, failures=0, gate=None)


def abort(record: Campaign, *, by: str, why: str = "", now: datetime) -> CampaignDecision:
    """Cancel Scheduled events, let Started ones end, and finish."""
    return _apply(record, "abort", by=by, why=why, now=now)


def _apply(record: Campaign, action: str, *, by: str, why: str, now: datetime, **fields: object) -> CampaignDecision:
    """Move the campaign to another state."""
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
    """Retry the failed wave of a scope: its stuck impacts, or everything in it that is not done."""
    draft = CampaignDraft(record)
    n, wave = _current_wave(draft, id_, "be retried")
    if wave.state is WaveState.RETRYING:
        return draft.finish()
    if wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(f"wave {n} of scope {id_}", wave.state.text, "be retried")
    request, key = record.request(id_, n), f"{n}/{id_}"
    is_stuck = scope is not None and any(has_stuck_work(event) for event in scope.events if event.request == request)
    if not is_stuck and record.state is CampaignState.ABORTING:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "over, and its campaign is aborted", "be announced again"
        )
    waiting = record.retries if is_stuck else record.attempts
    if len(waiting) >= MAX_ATTEMPTS and key not in waiting:
        raise InvalidCampaignState(
            f"campaign {record.name}", f"about to retry {MAX_ATTEMPTS} waves", "retry more of them yet"
        )
    if scope is not None and is_stuck:
        draft.put_wave(id_, n, WaveState.RETRYING, now)
        draft.set(retries={**record.retries, key: scope.entries})
    else:
        draft.put_wave(id_, n, WaveState.PLANNED, None)
        draft.set(attempts={**record.attempts, key: record.attempt(id_, n) + 1})
    draft.clear_failure(id_)
    draft.add_wave_entry(EntryKind.WAVE_RETRIED, id_, n, by=by, now=now, why=why)
    return draft.finish()


def skip(record: Campaign, id_: str, *, by: str, why: str, now: datetime) -> CampaignDecision:
    """Skip the current wave of a scope: stuck impacts are given up, Scheduled events canceled.

    An abort already cancels everything that has not begun; after that only a failed wave can be skipped.
    """
    if not why.strip():
        raise Invalid("skipping a wave needs a reason: its VMs are left without the maintenance")
    draft = CampaignDraft(record)
    n, wave = _current_wave(draft, id_, "be skipped")
    if wave.state in (WaveState.CLEARED, WaveState.RETRYING):
        raise InvalidCampaignState(f"wave {n} of scope {id_}", "in progress", "be skipped")
    if record.state is CampaignState.ABORTING and wave.state is not WaveState.FAILED:
        raise InvalidCampaignState(
            f"wave {n} of scope {id_}", "not going to start because its campaign is aborted", "be skipped"
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
        raise InvalidCampaignState(f"scope {id_}", "finished with the campaign", f"have a wave that could {action}")
    return n, progress.wave(n)
