"""CampaignDecision, the result of a campaign's rules, and CampaignDraft, the builder with which they create it."""

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
    """What blocks waves, apart from what is in the record."""

    start_limit: ExceededLimit | None = None
    """The limit that blocks the start of the next wave."""
    announce_limit: ExceededLimit | None = None
    """The limit that blocks the announcement of the next wave."""
    at_gate: tuple[str, ...] = ()
    """The scopes whose waves could start if the gate were open."""
    held_scopes: frozenset[str] = frozenset()
    """The scopes that an operator holds."""
    is_permanent: bool = False
    """Whether the load that exceeds the limit stays until a person decides about it."""

    @property
    def has_limit(self) -> bool:
        """Whether a lower load, anywhere in the fleet, may change the next decision."""
        return self.start_limit is not None or self.announce_limit is not None


class CampaignDecision(msgspec.Struct, frozen=True):
    """The new record, its journal entries, and the actions that follow.

    Save record and entries first, in one transaction; carry out the actions afterwards.
    """

    record: Campaign
    entries: tuple[Entry, ...] = ()
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    """When time alone may change something; None: only another change can."""
    has_more: bool = False
    """Whether the next decision can be made at once."""
    blockers: CampaignBlockers = CampaignBlockers()
    """What blocks waves."""


class CampaignDraft:
    """A campaign while a rule changes it. A draft never leaves its rule.

    `notify`: whether to send notifications of start, halt and end. `positions`: the index of each scope in the record.
    """

    def __init__(self, record: Campaign, positions: Mapping[str, int] | None = None, *, notify: bool = False) -> None:
        self.record = record
        """The campaign without the progress of its scopes, which is kept separately."""
        if positions is None:
            positions = {progress.scope: i for i, progress in enumerate(record.scopes)}
        self._positions = positions
        self._progress: list[ScopeProgress] | None = None
        self._notify = notify
        self._entries: list[Entry] = []

    def finish(self) -> CampaignDecision:
        """Return the decision. If nothing happened, it has the original record, unchanged."""
        if self._progress is not None or self._entries:
            scopes = self.record.scopes if self._progress is None else tuple(self._progress)
            self.set(scopes=scopes, entries=self.record.entries + len(self._entries))
        return CampaignDecision(self.record, tuple(self._entries))

    def has(self, scope: str) -> bool:
        """Return whether the campaign includes the scope."""
        return scope in self._positions

    def progress(self, scope: str) -> ScopeProgress:
        """Return the progress of a scope."""
        scopes = self.record.scopes if self._progress is None else self._progress
        return scopes[self._positions[scope]]

    def set(self, **fields: object) -> None:
        """Replace fields of the campaign."""
        self.record = msgspec.structs.replace(self.record, **fields)

    def put(self, progress: ScopeProgress) -> None:
        """Store the progress of a scope."""
        if self._progress is None:
            self._progress = list(self.record.scopes)
        self._progress[self._positions[progress.scope]] = progress

    def put_wave(self, scope: str, n: int, state: WaveState, at: datetime | None) -> Wave:
        """Move a wave to another state at a time, and return the previous one."""
        progress = self.progress(scope)
        wave = progress.wave(n)
        seconds = 0 if at is None else self.record.seconds(progress, at)
        self.put(progress.with_wave(n, wave.with_state(state, seconds)))
        if (key := f"{n}/{scope}") in self.record.retries:
            self.set(retries={other: seen for other, seen in self.record.retries.items() if other != key})
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
        """Add a notification of the last entry."""
        if self._notify:
            n = self.record.entries + len(self._entries)
            notification = Notification(n=n, what=what, at=now, why=truncate_text(why))
            self.set(notifications=(*self.record.notifications, notification))

    # The end of waves.

    def settle(self, scope: str, n: int, ended: Collection[EventOutcome], *, now: datetime) -> None:
        """Record how the events of a wave ended."""
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
            # The abort has canceled its events: it counts as never announced.
            self.put_wave(scope, n, WaveState.PLANNED, None)
            self.clear_failure(scope)
            self.add_wave_entry(EntryKind.WAVE_LEFT, scope, n, now=now, why="its events were canceled")
        else:
            self.skip(scope, n, now=now, why="its events were canceled")

    def skip(self, scope: str, n: int, *, now: datetime, why: str, by: str = "") -> None:
        """Skip a wave."""
        self.put_wave(scope, n, WaveState.SKIPPED, now)
        self.clear_failure(scope)
        self.add_wave_entry(EntryKind.WAVE_SKIPPED, scope, n, by=by, now=now, why=why)

    def fail(self, scope: str, n: int, why: str, *, unknown: bool = False, now: datetime) -> None:
        """Record that a wave failed: its scope waits for a person, and the campaign halts if `halt_after` is reached.

        `unknown`: whether all of its work was done is unknown.
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
                ("the outcome of a wave is unknown" if unknown else "a wave has failed")
                if failures == 1
                else f"{failures} waves have failed"
            )
            self.halt(f"{many}: {scope}, wave {n}: {why}", now=now)

    def update_failure(self, scope: str, why: str, *, unknown: bool) -> None:
        """Update the reason of a failed wave when more or fewer impacts are stuck."""
        known = self.record.wave_failures.get(scope)
        if known is not None:
            failure = msgspec.structs.replace(known, why=truncate_text(why, MAX_FAILURE_BYTES), unknown=unknown)
            self.set(wave_failures={**self.record.wave_failures, scope: failure})

    def halt(self, why: str, *, now: datetime) -> None:
        """Stop announcing and clearing until a person resumes the campaign."""
        if self.record.state is CampaignState.RUNNING:
            change = StateChange(by=self.record.actor, at=now, why=truncate_text(why))
            self.set(state=CampaignState.HALTED, state_change=change)
            self.add_entry(EntryKind.CAMPAIGN_HALTED, now=now, why=why)
            self.add_notification("halted", now=now, why=why)

    def clear_failure(self, scope: str) -> None:
        """Remove the failure of a scope, which no longer waits for a person."""
        known = self.record.wave_failures
        if scope in known:
            self.set(wave_failures={key: value for key, value in known.items() if key != scope})

    def _clear_attempts(self, scope: str, n: int) -> None:
        """Remove the number of attempts of a wave that will not be requested again."""
        if (key := f"{n}/{scope}") in self.record.attempts:
            self.set(attempts={other: number for other, number in self.record.attempts.items() if other != key})
