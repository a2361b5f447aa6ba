"""Telling in a story's words what has happened: journal entries in, short facts out."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from forewarn.core.duration import duration_text
from forewarn.core.journal import Did, Entry
from forewarn.testing.scenario.words import time_text

FIRST_DAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Midnight of the day on which stories begin where nobody else says when."""

_GUID = re.compile(r"[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ")

UNREMARKABLE = {"operator", "platform", "clock", "guest"}
"""Whoever does what nobody else could have done, or what the story did not give to anybody."""


class Names:
    """The names that a story gives: labels to events, ordinals to epochs, short times to moments.

    Where a service is faster than its stories, `speed` says so. Where it has a clock of its own, its moments are
    rounded to the `grain`.
    """

    def __init__(self, first_day: datetime = FIRST_DAY, *, speed: float = 1.0, grain: timedelta | None = None) -> None:
        self._first_day = first_day
        self._speed, self._grain = speed, grain
        self._labels: dict[str, str] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def label(self, event: str) -> str:
        """Return the label of an event; one that appears for the first time gets the next."""
        return self._labels.setdefault(event, f"E{len(self._labels) + 1}")

    def knows(self, event: str) -> bool:
        """Tell whether an event has appeared."""
        return event in self._labels

    def event(self, label: str) -> str | None:
        """Return the id of the event with that label, or None where none has appeared."""
        return next((id_ for id_, known in self._labels.items() if known == label), None)

    def epoch(self, scope: str, token: str) -> int:
        """Return the ordinal of an epoch of a scope."""
        ordinal = sum(1 for known, _ in self._epochs if known == scope) + 1
        return self._epochs.setdefault((scope, token), ordinal)

    def moment(self, time: timedelta) -> datetime:
        """Return the moment of a time of the story."""
        return self._first_day + time / self._speed

    def time(self, moment: datetime) -> str:
        """Write a moment as a time of the story."""
        return time_text(self._rounded((moment - self._first_day) * self._speed))

    def duration(self, text: str) -> str:
        """Write an amount of time, which the journal has in seconds, as one of the story."""
        return duration_text(self._rounded(timedelta(seconds=float(text.removesuffix("s"))) * self._speed))

    def _rounded(self, time: timedelta) -> timedelta:
        return time if self._grain is None else round(time / self._grain) * self._grain

    def newest_epoch(self, scope: str) -> int:
        """Return the ordinal of the newest epoch of a scope that is known."""
        return max((ordinal for (known, _), ordinal in self._epochs.items() if known == scope), default=1)

    def plain(self, text: str) -> str:
        """Put the story's names for ids and dates into a text."""
        named = _GUID.sub(lambda found: self._labels.get(found[0], found[0]), text)
        return _STAMP.sub(lambda found: self.time(datetime.fromisoformat(found[0])), named)


class Teller:
    """Tells the journal of one scope, entry by entry."""

    def __init__(self, scope: str, names: Names, *, incarnation: int = 1) -> None:
        self._scope = scope
        self._names = names
        self._incarnation = incarnation

    def tell(self, entries: Sequence[Entry], named: Sequence[str] = ()) -> list[str]:
        """Tell the entries. VMs that the command itself has `named` are not named again."""
        return [self._tell(entry, set(named)) for entry in entries]

    def _tell(self, entry: Entry, named: set[str]) -> str:
        fact = " ".join((self._subject(entry), VERBS[entry.did], *self._details(entry, named))) + self._remarks(entry)
        if entry.did is Did.ENABLED:
            fact += f", epoch {self._names.epoch(self._scope, entry.facts['epoch'])}"
        if entry.incarnation is not None and entry.incarnation != self._incarnation:
            self._incarnation = entry.incarnation
            fact += f", incarnation {entry.incarnation}"
        return self._names.plain(fact)

    def _subject(self, entry: Entry) -> str:
        if entry.event is None:
            return " ".join(entry.vms) if entry.did in OF_VMS else self._scope
        label = self._names.label(entry.event)
        return f"{label} on {' '.join(entry.vms)}" if entry.did in OF_IMPACTS else label

    def _details(self, entry: Entry, named: set[str]) -> Iterator[str]:
        if "unannounced" in entry.facts:
            yield "unannounced"
        if entry.did is Did.SHRUNK or (_is_made(entry) and set(entry.vms) != named):
            yield " ".join(entry.vms)
        if "not_before" in entry.facts:
            yield f"not_before {entry.facts['not_before']}"
        if "retry_at" in entry.facts:
            yield f"until {entry.facts['retry_at']}"
        if "took" in entry.facts:
            yield f"after {self._names.duration(entry.facts['took'])}"
        if entry.did is Did.APPROVED or entry.by not in UNREMARKABLE | {f"vm:{vm}" for vm in self._approvers(entry)}:
            yield f"by {entry.by.removeprefix('vm:')}"
        if entry.why:
            yield f"({entry.why})"

    def _approvers(self, entry: Entry) -> Sequence[str]:
        """Return whom a start's reason names already."""
        return entry.why.removeprefix("approved by ").split(", ") if entry.did is Did.STARTED else ()

    def _remarks(self, entry: Entry) -> str:
        remarks = ""
        if "attempt" in entry.facts and entry.facts["attempt"] != "1":
            remarks += f", attempt {entry.facts['attempt']}"
        if (late := entry.facts.get("late", "0.000s")) != "0.000s":
            remarks += f", {self._names.duration(late)} late"
        if "held_by" in entry.facts:
            remarks += f", held: {entry.facts['held_by']}"
        return remarks


def _is_made(entry: Entry) -> bool:
    return entry.did is Did.SCHEDULED or (entry.did is Did.STARTED and "type" in entry.facts)


VERBS: dict[Did, str] = {
    Did.SCOPE_CREATED: "created",
    Did.SCOPE_CHANGED: "changed",
    Did.SCOPE_REMOVED: "removed",
    Did.VM_ADDED: "added",
    Did.VM_CHANGED: "changed",
    Did.VM_REMOVED: "removed",
    Did.VM_MOVED: "moved",
    Did.ENABLED: "enabled",
    Did.DISABLED: "disabled",
    Did.HELD: "held",
    Did.RELEASED: "released",
    Did.SCHEDULED: "Scheduled",
    Did.ANNOUNCED: "announced",
    Did.APPROVED: "approved",
    Did.STARTED: "Started",
    Did.SHRUNK: "left with",
    Did.COMPLETED: "Completed",
    Did.CANCELED: "Canceled",
    Did.FAILED: "Failed",
    Did.IMPACT_BEGUN: "begun",
    Did.IMPACT_DONE: "done",
    Did.IMPACT_RETRY: "put off",
    Did.IMPACT_FAILED: "failed",
    Did.IMPACT_UNKNOWN: "unknown",
    Did.IMPACT_RETRIED: "to be tried again",
    Did.IMPACT_GIVEN_UP: "given up",
    Did.CLOCK_MOVED: "moved the clock",
    Did.FAULT_SET: "fault set",
    Did.FAULT_CLEARED: "fault cleared",
    Did.FAULT_ENDED: "fault over",
    Did.CAMPAIGN_STARTED: "began",
    Did.CAMPAIGN_PAUSED: "paused",
    Did.CAMPAIGN_RESUMED: "goes on",
    Did.CAMPAIGN_HALTED: "halted",
    Did.CAMPAIGN_ABORTED: "aborted",
    Did.CAMPAIGN_ENDED: "ended",
    Did.WAVE_ANNOUNCED: "announced",
    Did.WAVE_DIFFERS: "differs from the plan",
    Did.WAVE_CLEARED: "cleared",
    Did.WAVE_SETTLED: "settled",
    Did.WAVE_FAILED: "failed",
    Did.WAVE_SKIPPED: "skipped",
    Did.WAVE_LEFT: "left",
    Did.WAVE_RETRIED: "to be tried again",
    Did.GATE_SHUT: "shut",
    Did.GATE_OPENED: "open again",
    Did.TOKEN_CREATED: "made",
    Did.TOKEN_REVOKED: "revoked",
}

OF_VMS = {Did.VM_ADDED, Did.VM_CHANGED, Did.VM_REMOVED, Did.VM_MOVED}
OF_IMPACTS = {
    Did.IMPACT_BEGUN,
    Did.IMPACT_DONE,
    Did.IMPACT_RETRY,
    Did.IMPACT_FAILED,
    Did.IMPACT_UNKNOWN,
    Did.IMPACT_RETRIED,
    Did.IMPACT_GIVEN_UP,
}
