"""Explain what a campaign waits for, as messages for operators."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from forewarn.core.campaign.calendar import NEVER_OPEN, Calendar
from forewarn.core.campaign.draft import CampaignBlockers
from forewarn.core.campaign.limits import ExceededLimit
from forewarn.core.campaign.record import Campaign, CampaignState, ClosedGate, ScopeProgress, WaveState, failed_waves
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, gate_name
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope

MAX_NAMES_SHOWN = 10
"""How many failed waves, or scopes that wait for a gate, are listed by name."""

_STATES = {
    CampaignState.PAUSED: "paused",
    CampaignState.HALTED: "halted",
    CampaignState.ABORTING: "aborted: started events still have to end",
}


class WaitReasons:
    """What a campaign waits for: add every scope, then read `messages`."""

    def __init__(
        self,
        campaign: Campaign,
        calendar: Calendar,
        context: RuleContext,
        blockers: CampaignBlockers,
        *,
        now: datetime,
    ) -> None:
        self._campaign = campaign
        self._calendar = calendar
        self._context = context
        self._blockers = blockers
        self._now = now
        self._failed: dict[str, ScopeProgress] = {}
        self._announced: list[datetime] = []
        """The planned starts of announced waves."""
        self._unannounced: list[datetime] = []
        """Those of them that no document shows."""
        self._resting: list[datetime] = []
        """The ends of the gaps of scopes."""
        self._held: list[str] = []
        self._in_progress = self._waiting = self._closing = 0

    def add(self, progress: ScopeProgress, scope: Scope | None = None) -> None:
        """Add the progress of a scope. Without the scope, its events count as announced."""
        if (state := progress.current_state) is None:
            self._closing += not progress.closed
        elif state is WaveState.FAILED:
            self._failed[progress.scope] = progress
        elif state is WaveState.ANNOUNCED:
            at = progress.wave(progress.current).at
            self._announced.append(self._campaign.moment(progress, at))
            if self._campaign.is_unannounced(progress, scope):
                self._unannounced.append(self._announced[-1])
        elif state in (WaveState.CLEARED, WaveState.RETRYING):
            self._in_progress += 1
        elif progress.scope in self._blockers.held_scopes:
            self._held.append(progress.scope)
        else:
            self._add_planned(progress)

    def _add_planned(self, progress: ScopeProgress) -> None:
        until = self._campaign.rested_at(progress, self._calendar.gap)
        if until > self._now:
            self._resting.append(until)
        else:
            self._waiting += 1

    @property
    def needs_operator(self) -> bool:
        """Whether it is running, but nothing continues until a person decides about failed waves."""
        if self._campaign.state is not CampaignState.RUNNING or not self._failed:
            return False
        if self._in_progress or self._closing or self._resting or any(at > self._now for at in self._announced):
            return False
        if self._announced:
            return self._blockers.is_permanent and self._blockers.start_limit is not None
        return not self._waiting or (self._blockers.is_permanent and self._blockers.announce_limit is not None)

    @property
    def messages(self) -> tuple[str, ...]:
        """What the campaign waits for and why, decisions of people first; empty if it waits for nothing."""
        campaign = self._campaign
        if campaign.state.is_over:
            return ()
        messages = [*_state_messages(campaign, self._context), *_failure_messages(campaign, self._failed)]
        if campaign.state is CampaignState.RUNNING:
            messages += [*self._blocker_messages(), *self._progress_messages()]
        return tuple(messages)

    def _blocker_messages(self) -> Iterator[str]:
        """Yield what blocks all waves, or the next one."""
        spec, now = self._campaign.spec, self._now
        if self._campaign.gate is not None:
            yield _gate_message(spec, self._campaign.gate, self._blockers.at_gate)
        if spec.start_at is not None and now < spec.start_at:
            yield f"nothing is announced before {_format_time(spec.start_at)}"
        opens_at = self._calendar.next_start(now)
        if opens_at is None:
            yield NEVER_OPEN
        elif opens_at > now:
            yield f"no window is open before {_format_time(opens_at)}"
        if self._blockers.start_limit is not None:
            taken = ", which failed waves occupy" if self._blockers.is_permanent and self._failed else ""
            yield f"the next wave waits for room{taken}: {self._blockers.start_limit}"

    def _progress_messages(self) -> Iterator[str]:
        resting, held = self._resting, self._held
        due = [at for at in self._announced if at <= self._now]
        silent = [at for at in self._unannounced if at > self._now]
        coming = [at for at in self._announced if at > self._now]
        for at in silent:
            coming.remove(at)
        if self._in_progress:
            yield f"{_wave_text(self._in_progress)} in progress"
        if due:
            yield f"{_wave_text(len(due))} due, {_first_text(due)}since {_format_time(min(due))}"
        if coming:
            yield f"{_wave_text(len(coming))} announced, {_first_text(coming)}for {_format_time(min(coming))}"
        if silent:
            starts = f"{_first_text(silent)}for {_format_time(min(silent))}"
            yield f"{_wave_text(len(silent))} scheduled, {starts}, and not announced: no VM there polls for events"
        if len(resting) == 1:
            yield f"1 scope waits until {_format_time(resting[0])}, when the gap after its wave is over"
        elif resting:
            first = _format_time(min(resting))
            yield f"{_scope_text(len(resting))} until the gap after a wave is over, the first until {first}"
        if held:
            yield f"{_join_names(held)} {'is' if len(held) == 1 else 'are'} held by an operator"
        if self._waiting:
            reason = _wait_reason(self._campaign.spec.policy, self._blockers, self._waiting)
            yield f"{_scope_text(self._waiting)} {reason}"


def stop_reason(campaign: Campaign) -> str:
    """Return why a campaign starts nothing, for people who may see only its name; empty if it continues."""
    if campaign.state is not CampaignState.RUNNING:
        return f"it is {campaign.state.value}"
    return "" if campaign.gate is None else "its gate is closed"


def _state_messages(campaign: Campaign, context: RuleContext) -> Iterator[str]:
    if (state := _STATES.get(campaign.state)) is not None:
        why = f": {campaign.state_change.why}" if campaign.state_change.why else ""
        yield f"{state}, by {campaign.state_change.by} since {_format_time(campaign.state_change.at)}{why}"
    if context.hold is not None:
        yield f"all maintenance is held by {context.hold.by}: {context.hold.reason}"


def _failure_messages(campaign: Campaign, scopes: Mapping[str, ScopeProgress]) -> Iterator[str]:
    failed = list(failed_waves(campaign, scopes))
    for progress, failure in failed[-MAX_NAMES_SHOWN:]:
        wave = f"wave {failure.wave} of {progress.scope}"
        if failure.unknown:
            yield f"{wave} has an unknown outcome: {failure.why}; retry it, which does all of it again, or skip it"
        else:
            yield f"{wave} has failed: {failure.why or 'no reason was given'}; retry it or skip it"
    if (more := len(failed) - MAX_NAMES_SHOWN) > 0:
        yield f"{more} more wave{'' if more == 1 else 's'} failed before; retry or skip the failed waves"


def _gate_message(spec: CampaignSpec, gate: ClosedGate, waiting: Sequence[str]) -> str:
    message = f"gate {gate_name(spec.policy.gate)} has been closed since {_format_time(gate.since)}: {gate.why}"
    who = f"{_join_names(waiting)} wait{'s' if len(waiting) == 1 else ''} for it; " if waiting else ""
    return f"{message}; {who}next check at {_format_time(gate.retry_at)}"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _wait_reason(policy: CampaignPolicy, blockers: CampaignBlockers, waiting: int) -> str:
    """Return what scopes wait for whose next wave is not announced, although their gap is over."""
    whose = "its" if waiting == 1 else "their"
    if (limit := blockers.announce_limit or blockers.start_limit) is not None:
        return f"for {whose} turn: {_limit_message(policy, limit)}"
    if not policy.advance:
        return f"for {whose} planned time, because advance is false"
    if policy.windows or policy.blackouts:
        return f"for a window that is open when {whose} notice is over"
    return "to be announced"


def _limit_message(policy: CampaignPolicy, limit: ExceededLimit) -> str:
    """Return what a limit allows, with the policy's value in brackets if that is a percentage."""
    written = str(getattr(policy, limit.rule))
    number = str(limit.limit)
    return f"{limit.rule} allows {number}" + (f" ({written})" if written != number else "")


def _first_text(moments: Sequence[datetime]) -> str:
    return "" if len(moments) == 1 else "the first "


def _wave_text(number: int) -> str:
    return f"{number} wave{' is' if number == 1 else 's are'}"


def _scope_text(number: int) -> str:
    return f"{number} scope{' waits' if number == 1 else 's wait'}"


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
