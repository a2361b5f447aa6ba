"""CampaignDecision, what a campaign's rules return, and CampaignDraft, the builder in which they create it."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.actions import Action
from forewarn.core.campaign.limits import ExceededLimit
from forewarn.core.campaign.record import (
    MAX_FAILURE_BYTES,
    MAX_WAVE_FAILURES,
    Campaign,
    CampaignState,
    Notification,
    ScopeProgress,
    StateChange,
    Wave,
    WaveFailure,
    WaveState,
)
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import EventOutcome
from forewarn.core.text import truncate_text


class CampaignBlockers(NamedTuple):
    """What keeps waves from going on, beyond what the record tells."""

    start_limit: ExceededLimit | None = None
    """The limit that keeps the next wave from starting."""
    announce_limit: ExceededLimit | None = None
    """The limit that keeps the next wave from being announced."""
    at_gate: tuple[str, ...] = ()
    """The scopes whose waves could start if the gate were open."""
    held_scopes: frozenset[str] = frozenset()
    """The scopes that an operator holds."""
    is_permanent: bool = False
    """Whether what takes the room stays in impact until a person decides about it."""

    @property
    def has_limit(self) -> bool:
        """Whether something else may be decided when less is in impact, wherever in the fleet."""
        return self.start_limit is not None or self.announce_limit is not None


class CampaignDecision(msgspec.Struct, frozen=True):
    """The new record, what the journal says of it, and what follows.

    Save record and entries first, in one step; do the actions afterwards.
    """

    record: Campaign
    entries: tuple[Entry, ...] = ()
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    """When time itself may change something; None: only something else can."""
    has_more: bool = False
    """Whether there is more to decide at once."""
    blockers: CampaignBlockers = CampaignBlockers()
    """What keeps waves from going on."""


class CampaignDraft:
    """A campaign while a rule changes it. A draft never leaves its rule.

    `notify`: whether others are to be told of its start, halt and end. `positions`: where each scope is in the record.
    """

    def __init__(self, record: Campaign, positions: Mapping[str, int] | None = None, *, notify: bool = False) -> None:
        self.record = record
        """The campaign but for the progress of its scopes, which may have gone on."""
        if positions is None:
            positions = {progress.scope: i for i, progress in enumerate(record.scopes)}
        self._positions = positions
        self._progress: list[ScopeProgress] | None = None
        self._notify = notify
        self._entries: list[Entry] = []

    def finish(self) -> CampaignDecision:
        """Close the draft. One in which nothing happened gives the record itself, unchanged."""
        if self._progress is not None or self._entries:
            scopes = self.record.scopes if self._progress is None else tuple(self._progress)
            self.set(scopes=scopes, entries=self.record.entries + len(self._entries))
        return CampaignDecision(self.record, tuple(self._entries))

    def has(self, scope: str) -> bool:
        """Tell whether the campaign has the scope."""
        return scope in self._positions

    def progress(self, scope: str) -> ScopeProgress:
        """Return how far a scope is."""
        scopes = self.record.scopes if self._progress is None else self._progress
        return scopes[self._positions[scope]]

    def set(self, **fields: object) -> None:
        """Replace fields of the campaign."""
        self.record = msgspec.structs.replace(self.record, **fields)

    def put(self, progress: ScopeProgress) -> None:
        """Keep how far a scope is."""
        if self._progress is None:
            self._progress = list(self.record.scopes)
        self._progress[self._positions[progress.scope]] = progress

    def put_wave(self, scope: str, n: int, state: WaveState, at: datetime | None) -> Wave:
        """Bring a wave into another state, at a moment, and return it as it was."""
        progress = self.progress(scope)
        wave = progress.wave(n)
        seconds = 0 if at is None else self.record.seconds(progress, at)
        self.put(progress.with_wave(n, wave.with_state(state, seconds)))
        return wave

    def add_entry(self, entry_kind: EntryKind, *, by: str = "", now: datetime, why: str = "", **facts: str) -> None:
        """Add a journal entry, by the campaign unless `by` names another actor."""
        n = self.record.entries + len(self._entries) + 1
        by = by or self.record.actor
        self._entries.append(Entry(n=n, at=now, kind=entry_kind, by=by, why=truncate_text(why), facts=facts))

    def add_wave_entry(
        self, entry_kind: EntryKind, scope: str, n: int, *, now: datetime, by: str = "", why: str = "", **facts: str
    ) -> None:
        """Add a journal entry on a wave."""
        domain = str(self.progress(scope).wave(n).update_domain)
        self.add_entry(entry_kind, by=by, now=now, why=why, scope=scope, wave=str(n), update_domain=domain, **facts)

    def add_notification(self, what: str, *, now: datetime, why: str = "") -> None:
        """Have others told of what the last entry says."""
        if self._notify:
            n = self.record.entries + len(self._entries)
            notification = Notification(n=n, what=what, at=now, why=truncate_text(why))
            self.set(notifications=(*self.record.notifications, notification))

    # How waves end.

    def settle(self, scope: str, n: int, ended: Collection[EventOutcome], *, now: datetime) -> None:
        """Take how the events of a wave have ended."""
        wave = self.progress(scope).wave(n)
        if EventOutcome.FAILED in ended:
            if wave.state is not WaveState.FAILED:
                self.fail(scope, n, "work was given up", now=now)
        elif EventOutcome.COMPLETED in ended:
            self.put_wave(scope, n, WaveState.DONE, now)
            self.clear_failure(scope)
            self._clear_attempts(scope, n)
            self.add_wave_entry(EntryKind.WAVE_SETTLED, scope, n, now=now, vms=str(wave.vms))
        elif self.record.state.is_aborted:
            # The abort has taken its events back: it is as if it had never been announced.
            self.put_wave(scope, n, WaveState.PLANNED, None)
            self.clear_failure(scope)
            self.add_wave_entry(EntryKind.WAVE_LEFT, scope, n, now=now, why="its events were canceled")
        else:
            self.skip(scope, n, now=now, why="its events were canceled")

    def skip(self, scope: str, n: int, *, now: datetime, why: str, by: str = "") -> None:
        """Pass over a wave."""
        self.put_wave(scope, n, WaveState.SKIPPED, now)
        self.clear_failure(scope)
        self.add_wave_entry(EntryKind.WAVE_SKIPPED, scope, n, by=by, now=now, why=why)

    def fail(self, scope: str, n: int, why: str, *, unknown: bool = False, now: datetime) -> None:
        """A wave has failed: its scope waits for a person, and the campaign halts if that was one too many.

        `unknown`: it is not known whether all of its work was done.
        """
        self.put_wave(scope, n, WaveState.FAILED, now)
        failure = WaveFailure(wave=n, at=now, why=truncate_text(why, MAX_FAILURE_BYTES), unknown=unknown)
        others = [item for item in self.record.wave_failures.items() if item[0] != scope]
        wave_failures = dict([*others, (scope, failure)][-MAX_WAVE_FAILURES:])
        failures = self.record.failures + 1
        self.set(wave_failures=wave_failures, failures=failures)
        self.add_wave_entry(EntryKind.WAVE_FAILED, scope, n, now=now, why=why)
        limit = self.record.spec.policy.halt_after
        if limit is not None and failures >= limit:
            many = (
                f"a wave {'is unknown' if unknown else 'has failed'}"
                if failures == 1
                else f"{failures} waves have failed"
            )
            self.halt(f"{many}: {scope}, wave {n}: {why}", now=now)

    def update_failure(self, scope: str, why: str, *, unknown: bool) -> None:
        """More work of a failed wave waits for a person by now, or less."""
        known = self.record.wave_failures.get(scope)
        if known is not None:
            failure = msgspec.structs.replace(known, why=truncate_text(why, MAX_FAILURE_BYTES), unknown=unknown)
            self.set(wave_failures={**self.record.wave_failures, scope: failure})

    def halt(self, why: str, *, now: datetime) -> None:
        """Stop announcing and clearing until a person says that it goes on."""
        if self.record.state is CampaignState.RUNNING:
            change = StateChange(by=self.record.actor, at=now, why=truncate_text(why))
            self.set(state=CampaignState.HALTED, state_change=change)
            self.add_entry(EntryKind.CAMPAIGN_HALTED, now=now, why=why)
            self.add_notification("halted", now=now, why=why)

    def clear_failure(self, scope: str) -> None:
        """Let nothing of a scope wait for a person any more."""
        known = self.record.wave_failures
        if scope in known:
            self.set(wave_failures={key: value for key, value in known.items() if key != scope})

    def _clear_attempts(self, scope: str, n: int) -> None:
        """A wave is not asked for again: how often it was matters no more."""
        if (key := f"{n}/{scope}") in self.record.attempts:
            self.set(attempts={other: number for other, number in self.record.attempts.items() if other != key})
