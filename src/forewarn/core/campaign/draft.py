"""CampaignDraft: the record of a campaign while it is changed, with its journal entries and notifications."""

from collections.abc import Collection
from datetime import datetime

import msgspec

from forewarn.core.campaign.record import (
    MAX_FAILURE_BYTES,
    MAX_WAVE_FAILURES,
    Campaign,
    CampaignState,
    Notification,
    ScopeProgress,
    StateChange,
    WaveFailure,
    WaveState,
)
from forewarn.core.explain import CAMPAIGN_PREFIX
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import EventOutcome
from forewarn.core.text import truncate_text


class CampaignDraft:
    """A campaign with its waves as they go on. `notify`: whether others are to be told of its start, halt and end.

    Save what `take_changes` gives in one step, and do what follows from it afterwards.
    """

    def __init__(self, campaign: Campaign, *, notify: bool = False) -> None:
        self._campaign = campaign
        self._progress = list(campaign.scopes)
        self._indexes = {progress.scope: i for i, progress in enumerate(self._progress)}
        self._open_scopes = sum(not progress.closed for progress in self._progress)
        self._any_settled = False
        """Whether a wave is settled, as far as scopes were looked at."""
        self._notify = notify
        self._is_changed = False
        self.entries: list[Entry] = []

    @property
    def campaign(self) -> Campaign:
        """The campaign but for the progress of its scopes, which may have gone on."""
        return self._campaign

    @property
    def is_changed(self) -> bool:
        """Whether there is something to be saved."""
        return self._is_changed

    def take_changes(self) -> tuple[Campaign, tuple[Entry, ...]]:
        """Give the campaign as it is now, and what the journal says of it. If that cannot be saved, begin anew."""
        entries, self.entries = tuple(self.entries), []
        self._campaign = msgspec.structs.replace(
            self._campaign, scopes=tuple(self._progress), entries=self._campaign.entries + len(entries)
        )
        self._is_changed = False
        return self._campaign, entries

    def has(self, scope: str) -> bool:
        """Tell whether the campaign has the scope."""
        return scope in self._indexes

    def index_of(self, scope: str) -> int:
        """Return which of the campaign's scopes it is."""
        return self._indexes[scope]

    def progress(self, scope: str) -> ScopeProgress:
        """Return how far a scope is."""
        return self._progress[self._indexes[scope]]

    def set(self, **fields: object) -> None:
        """Replace fields of the campaign."""
        self._campaign = msgspec.structs.replace(self._campaign, **fields)
        self._is_changed = True

    def add_entry(self, entry_kind: EntryKind, *, by: str, now: datetime, why: str = "", **facts: str) -> None:
        """Add a journal entry."""
        n = self._campaign.entries + len(self.entries) + 1
        self._is_changed = True
        self.entries.append(Entry(n=n, at=now, kind=entry_kind, by=by, why=truncate_text(why), facts=facts))

    def add_notification(self, what: str, *, now: datetime, why: str = "") -> None:
        """Have others told of what the last entry says."""
        if self._notify:
            n = self._campaign.entries + len(self.entries)
            notification = Notification(n=n, what=what, at=now, why=truncate_text(why))
            self.set(notifications=(*self._campaign.notifications, notification))

    def put(self, progress: ScopeProgress) -> None:
        """Keep how far a scope is."""
        i = self._indexes[progress.scope]
        self._open_scopes += self._progress[i].closed - progress.closed
        self._progress[i] = progress
        self._is_changed = True

    @property
    def by(self) -> str:
        """What the journals call the campaign."""
        return f"{CAMPAIGN_PREFIX}{self._campaign.name}"

    # How waves end.

    def settle(self, progress: ScopeProgress, n: int, ended: Collection[EventOutcome], *, now: datetime) -> None:
        """Take how the events of a wave have ended."""
        wave = progress.wave(n)
        if EventOutcome.FAILED in ended:
            if wave.state is not WaveState.FAILED:
                self.fail(progress, n, "work was given up", now=now)
            return
        done = EventOutcome.COMPLETED in ended
        if not done and self._campaign.state.is_aborted:
            self._revert_wave(progress, n, now)
            return
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, wave.with_state(WaveState.DONE if done else WaveState.SKIPPED, at)))
        self.clear_failure(progress.scope)
        self._any_settled = True
        if done:
            self.clear_attempts(progress.scope, n)
            self.add_wave_entry(EntryKind.WAVE_SETTLED, progress, n, now=now, vms=str(wave.vms))
        else:
            self.add_wave_entry(EntryKind.WAVE_SKIPPED, progress, n, now=now, why="its events were canceled")

    def _revert_wave(self, progress: ScopeProgress, n: int, now: datetime) -> None:
        """The abort has taken a wave's events back: it is as if it had never been announced."""
        self.put(progress.with_wave(n, progress.wave(n).with_state(WaveState.PLANNED, 0)))
        self.clear_failure(progress.scope)
        self.add_wave_entry(EntryKind.WAVE_LEFT, progress, n, now=now, why="its events were canceled")

    def fail(self, progress: ScopeProgress, n: int, why: str, *, unknown: bool = False, now: datetime) -> None:
        """A wave has failed: its scope waits for a person, and the campaign halts if that was one too many.

        `unknown`: nobody knows of some of its work whether it was done.
        """
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).with_state(WaveState.FAILED, at)))
        failure = WaveFailure(wave=n, at=now, why=truncate_text(why, MAX_FAILURE_BYTES), unknown=unknown)
        others = [item for item in self._campaign.wave_failures.items() if item[0] != progress.scope]
        wave_failures = dict([*others, (progress.scope, failure)][-MAX_WAVE_FAILURES:])
        failures = self._campaign.failures + 1
        self.set(wave_failures=wave_failures, failures=failures)
        self.add_wave_entry(EntryKind.WAVE_FAILED, progress, n, now=now, why=why)
        limit = self._campaign.spec.policy.halt_after
        if limit is not None and failures >= limit:
            many = (
                f"a wave {'is unknown' if unknown else 'has failed'}"
                if failures == 1
                else f"{failures} waves have failed"
            )
            self.halt(f"{many}: {progress.scope}, wave {n}: {why}", now=now)

    def update_failure(self, scope: str, why: str, *, unknown: bool) -> None:
        """More work of a failed wave waits for a person by now, or less."""
        known = self._campaign.wave_failures.get(scope)
        if known is not None:
            failure = msgspec.structs.replace(known, why=truncate_text(why, MAX_FAILURE_BYTES), unknown=unknown)
            if failure != known:
                self.set(wave_failures={**self._campaign.wave_failures, scope: failure})

    def halt(self, why: str, *, now: datetime) -> None:
        """Stop announcing and clearing until a person says that it goes on."""
        if self._campaign.state is CampaignState.RUNNING:
            self.set(state=CampaignState.HALTED, state_change=StateChange(by=self.by, at=now, why=truncate_text(why)))
            self.add_entry(EntryKind.CAMPAIGN_HALTED, by=self.by, now=now, why=why)
            self.add_notification("halted", now=now, why=why)

    def _resume_wave(self, progress: ScopeProgress, n: int, now: datetime) -> None:
        """The failed work of a wave is being done once more."""
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).with_state(WaveState.CLEARED, at)))
        self.clear_failure(progress.scope)

    def clear_failure(self, scope: str) -> None:
        """Let nothing of a scope wait for a person any more."""
        if scope in self._campaign.wave_failures:
            self.set(wave_failures={key: value for key, value in self._campaign.wave_failures.items() if key != scope})

    def clear_attempts(self, scope: str, n: int) -> None:
        """A wave is not asked for again: how often it was matters no more."""
        if (key := f"{n}/{scope}") in self._campaign.attempts:
            self.set(attempts={other: number for other, number in self._campaign.attempts.items() if other != key})

    def add_wave_entry(
        self,
        entry_kind: EntryKind,
        progress: ScopeProgress,
        n: int,
        *,
        now: datetime,
        by: str = "",
        why: str = "",
        **facts: str,
    ) -> None:
        """Add a journal entry on a wave."""
        domain = str(progress.wave(n).update_domain)
        self.add_entry(
            entry_kind,
            by=by or self.by,
            now=now,
            why=why,
            scope=progress.scope,
            wave=str(n),
            update_domain=domain,
            **facts,
        )
