"""The record of a campaign while it is changed, and what the journal says of it."""

from collections.abc import Collection
from datetime import datetime

import msgspec

from forewarn.core.campaign.record import (
    TROUBLE_BYTES,
    TROUBLES,
    Campaign,
    CampaignState,
    Notice,
    Said,
    ScopeProgress,
    Trouble,
    WaveState,
)
from forewarn.core.explain import CAMPAIGN
from forewarn.core.journal import Did, Entry
from forewarn.core.scope import Outcome
from forewarn.core.text import shortened


class Keeping:
    """A campaign with its waves as they go on. `listens`: whether others are to be told of its start, halt and end.

    Save what `taken` gives in one step, and do what follows from it afterwards.
    """

    def __init__(self, campaign: Campaign, *, listens: bool = False) -> None:
        self._campaign = campaign
        self._progress = list(campaign.scopes)
        self._places = {progress.scope: i for i, progress in enumerate(self._progress)}
        self._not_closed = sum(not progress.closed for progress in self._progress)
        self._any_settled = False
        """Whether a wave is settled, as far as scopes were looked at."""
        self._listens = listens
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

    def taken(self) -> tuple[Campaign, tuple[Entry, ...]]:
        """Give the campaign as it is now, and what the journal says of it. If that cannot be saved, begin anew."""
        entries, self.entries = tuple(self.entries), []
        self._campaign = msgspec.structs.replace(
            self._campaign, scopes=tuple(self._progress), entries=self._campaign.entries + len(entries)
        )
        self._is_changed = False
        return self._campaign, entries

    def has(self, scope: str) -> bool:
        """Tell whether the campaign has the scope."""
        return scope in self._places

    def place(self, scope: str) -> int:
        """Return which of the campaign's scopes it is."""
        return self._places[scope]

    def progress(self, scope: str) -> ScopeProgress:
        """Return how far a scope is."""
        return self._progress[self._places[scope]]

    def set(self, **fields: object) -> None:
        """Replace fields of the campaign."""
        self._campaign = msgspec.structs.replace(self._campaign, **fields)
        self._is_changed = True

    def note(self, did: Did, *, by: str, now: datetime, why: str = "", **facts: str) -> None:
        """Add a journal entry."""
        n = self._campaign.entries + len(self.entries) + 1
        self._is_changed = True
        self.entries.append(Entry(n=n, at=now, did=did, by=by, why=shortened(why), facts=facts))

    def tell(self, what: str, *, now: datetime, why: str = "") -> None:
        """Have others told of what the last entry says."""
        if self._listens:
            n = self._campaign.entries + len(self.entries)
            notice = Notice(n=n, what=what, at=now, why=shortened(why))
            self.set(untold=(*self._campaign.untold, notice))

    def put(self, progress: ScopeProgress) -> None:
        """Keep how far a scope is."""
        i = self._places[progress.scope]
        self._not_closed += self._progress[i].closed - progress.closed
        self._progress[i] = progress
        self._is_changed = True

    @property
    def by(self) -> str:
        """What the journals call the campaign."""
        return f"{CAMPAIGN}{self._campaign.name}"

    # How waves end.

    def settle(self, progress: ScopeProgress, n: int, ended: Collection[Outcome], *, now: datetime) -> None:
        """Take how the events of a wave have ended."""
        wave = progress.wave(n)
        if Outcome.FAILED in ended:
            if wave.state is not WaveState.FAILED:
                self.fail(progress, n, "work was given up", now=now)
            return
        done = Outcome.COMPLETED in ended
        if not done and self._campaign.state.is_aborted:
            self._leave(progress, n, now)
            return
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, wave.now(WaveState.DONE if done else WaveState.SKIPPED, at)))
        self.forget_trouble(progress.scope)
        self._any_settled = True
        if done:
            self.forget_attempts(progress.scope, n)
            self.note_wave(Did.WAVE_SETTLED, progress, n, now=now, vms=str(wave.vms))
        else:
            self.note_wave(Did.WAVE_SKIPPED, progress, n, now=now, why="its events were canceled")

    def _leave(self, progress: ScopeProgress, n: int, now: datetime) -> None:
        """The abort has taken a wave's events back: it is as if it had never been announced."""
        self.put(progress.with_wave(n, progress.wave(n).now(WaveState.PLANNED, 0)))
        self.forget_trouble(progress.scope)
        self.note_wave(Did.WAVE_LEFT, progress, n, now=now, why="its events were canceled")

    def fail(self, progress: ScopeProgress, n: int, why: str, *, unknown: bool = False, now: datetime) -> None:
        """A wave has failed: its scope waits for a person, and the campaign halts if that was one too many.

        `unknown`: nobody knows of some of its work whether it was done.
        """
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).now(WaveState.FAILED, at)))
        trouble = Trouble(wave=n, at=now, why=shortened(why, TROUBLE_BYTES), unknown=unknown)
        others = [item for item in self._campaign.troubles.items() if item[0] != progress.scope]
        troubles = dict([*others, (progress.scope, trouble)][-TROUBLES:])
        failures = self._campaign.failures + 1
        self.set(troubles=troubles, failures=failures)
        self.note_wave(Did.WAVE_FAILED, progress, n, now=now, why=why)
        limit = self._campaign.spec.policy.halt_after
        if limit is not None and failures >= limit:
            many = (
                f"a wave {'is unknown' if unknown else 'has failed'}"
                if failures == 1
                else f"{failures} waves have failed"
            )
            self.halt(f"{many}: {progress.scope}, wave {n}: {why}", now=now)

    def know_trouble(self, scope: str, why: str, *, unknown: bool) -> None:
        """More work of a failed wave waits for a person by now, or less."""
        known = self._campaign.troubles.get(scope)
        if known is not None:
            trouble = msgspec.structs.replace(known, why=shortened(why, TROUBLE_BYTES), unknown=unknown)
            if trouble != known:
                self.set(troubles={**self._campaign.troubles, scope: trouble})

    def halt(self, why: str, *, now: datetime) -> None:
        """Stop announcing and clearing until a person says that it goes on."""
        if self._campaign.state is CampaignState.RUNNING:
            self.set(state=CampaignState.HALTED, said=Said(by=self.by, at=now, why=shortened(why)))
            self.note(Did.CAMPAIGN_HALTED, by=self.by, now=now, why=why)
            self.tell("halted", now=now, why=why)

    def _go_on(self, progress: ScopeProgress, n: int, now: datetime) -> None:
        """The failed work of a wave is being done once more."""
        at = self._campaign.seconds(progress, now)
        self.put(progress.with_wave(n, progress.wave(n).now(WaveState.CLEARED, at)))
        self.forget_trouble(progress.scope)

    def forget_trouble(self, scope: str) -> None:
        """Let nothing of a scope wait for a person any more."""
        if scope in self._campaign.troubles:
            self.set(troubles={key: value for key, value in self._campaign.troubles.items() if key != scope})

    def forget_attempts(self, scope: str, n: int) -> None:
        """A wave is not asked for again: how often it was matters no more."""
        if (key := f"{n}/{scope}") in self._campaign.attempts:
            self.set(attempts={other: number for other, number in self._campaign.attempts.items() if other != key})

    def note_wave(
        self, did: Did, progress: ScopeProgress, n: int, *, now: datetime, by: str = "", why: str = "", **facts: str
    ) -> None:
        """Add a journal entry on a wave."""
        domain = str(progress.wave(n).update_domain)
        self.note(
            did,
            by=by or self.by,
            now=now,
            why=why,
            scope=progress.scope,
            wave=str(n),
            update_domain=domain,
            **facts,
        )
