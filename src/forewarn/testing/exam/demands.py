"""What a handler must do and must not do, each as a value that can judge a record.

What gave no occasion, or cannot be seen, is not judged: it is never counted as kept.
"""

from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import ClassVar, Protocol

import msgspec

from forewarn.client.document import Event, Status
from forewarn.guest.observer import Observed
from forewarn.testing.exam.record import Approval, Record
from forewarn.testing.exam.wishes import Wish, Wishes

SLACK = 0.5
"""How many seconds old news must be before a program can be blamed for not having acted on it: machines are busy."""

LONGEST_GAP = 5.0
"""After how many seconds a handler asks again, at the latest. Once a second is advised."""

SILENCE = 7.5
"""After how many seconds of silence at the end it is clear that nothing more comes."""

SHORTEST_GAP = 0.2
"""A real endpoint refuses more than five requests in a second."""

ENOUGH_GAPS = 10
"""Of fewer gaps nobody can say that they are too short."""

MOST_APPROVALS = 3
"""An approval may be repeated, if its answer was lost say; more than this is a handler that does not remember."""

WRONG_REQUESTS = frozenset({400, 405, 413, 431})
NO_SUCH_VERSION = 404


class Mood(StrEnum):
    """Whether it has to be so, or must not be so."""

    MUST = "must"
    MUST_NOT = "must not"


class Verdict(StrEnum):
    """What became of a demand."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_JUDGED = "not judged"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A demand and what became of it. `expected` is the demand in words, `seen` what was seen on the wire."""

    demand: str
    mood: Mood
    expected: str
    verdict: Verdict
    seen: str


class Judged(msgspec.Struct, frozen=True):
    """A verdict, and why."""

    verdict: Verdict
    seen: str
    mood: Mood | None = None
    """Where the user's wishes have turned the demand round."""


class Demand(Protocol):
    """One line of a scenario's table."""

    @property
    def key(self) -> str:
        """Its name, which no other line of the table has."""
        ...

    @property
    def mood(self) -> Mood:
        """Must, or must not."""
        ...

    @property
    def words(self) -> str:
        """What the handler must, or must not, do."""
        ...

    def judge(self, record: Record, wishes: Wishes) -> Judged:
        """Judge what was seen."""
        ...


def find(demand: Demand, record: Record, wishes: Wishes) -> Finding:
    """Judge one demand. Where it has asked more than anybody can remember, that is all that can be said of it."""
    if record.dropped and not isinstance(demand, DoesNotHammer):
        judged = _not_judged(f"it has made so many requests that {record.dropped} of them were not remembered")
    else:
        judged = demand.judge(record, wishes)
    mood = judged.mood or demand.mood
    return Finding(
        demand=demand.key, mood=mood, expected=f"{mood} {demand.words}", verdict=judged.verdict, seen=judged.seen
    )


def _kept(seen: str) -> Judged:
    return Judged(Verdict.KEPT, seen)


def _broken(seen: str) -> Judged:
    return Judged(Verdict.BROKEN, seen)


def _not_judged(why: str) -> Judged:
    return Judged(Verdict.NOT_JUDGED, why)


# How it asks.


class Asks(msgspec.Struct, frozen=True):
    """The program asks for its events at all."""

    key: ClassVar[str] = "asks"
    mood: ClassVar[Mood] = Mood.MUST
    words: ClassVar[str] = "ask for its events: GET /metadata/scheduledevents"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Look for the first question."""
        if record.questions:
            first = record.questions[0]
            return _kept(f"{first.method} {first.target} {record.moment(first.at)}")
        if record.is_cut_short and record.ended is None:
            return _not_judged("the time was over before it could")
        others = ", ".join(sorted({f"{request.method} {request.target}" for request in record.requests}))
        ran = f"no such request within {record.over_at - record.began_at:.0f} s"
        how = f"{_end(record)} without such a request" if record.ended is not None else ran
        return _broken(f"{how}, but {others}" if others else how)


class AsksRightly(msgspec.Struct, frozen=True):
    """No request is refused because it is wrong."""

    key: ClassVar[str] = "asks-rightly"
    mood: ClassVar[Mood] = Mood.MUST
    words: ClassVar[str] = "make only requests that the endpoint understands, each with `Metadata: true`"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Look for refusals. A version that is not supported is none if the program finds another."""
        if not record.about_events:
            return _not_judged("it has not asked")
        fine_at = max((told.at for told in record.told), default=0.0)
        wrong = [request for request in record.about_events if _is_wrong(request, fine_at)]
        if not wrong:
            return _kept(f"{len(record.about_events)} requests, none refused for its form")
        first = wrong[0]
        answer = first.answer.decode(errors="replace").strip()
        more = f"; {len(wrong)} such in all" if len(wrong) > 1 else ""
        return _broken(
            f"{first.method} {first.target} {record.moment(first.at)} was answered {first.status}: {answer}{more}"
        )


def _is_wrong(request: Observed, fine_at: float) -> bool:
    return request.status in WRONG_REQUESTS or (request.status == NO_SUCH_VERSION and request.at > fine_at)


class AsksOften(msgspec.Struct, frozen=True):
    """The gaps between two questions are short, and there is none without an end."""

    key: ClassVar[str] = "asks-often"
    mood: ClassVar[Mood] = Mood.MUST
    words: ClassVar[str] = f"ask again within {LONGEST_GAP:g} s, on the median of all gaps, and never stop"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Measure from each right answer to the next question, and from the last answer to the end."""
        if not record.questions:
            return _not_judged("it has not asked")
        gaps = _gaps(record)
        silence = _silence(record)
        if silence > SILENCE:
            return _broken(f"it asked {_times(len(record.questions))}, and nothing more for the last {silence:.1f} s")
        if not gaps:
            return _not_judged("it asked once, and there was no time for more")
        middle = median(gaps)
        seen = f"{len(record.questions)} questions, {middle:.1f} s between two (longest {max(gaps):.1f} s)"
        return _kept(seen) if middle <= LONGEST_GAP else _broken(seen)


def _gaps(record: Record) -> list[float]:
    """Return the seconds between an answer and the next question; what follows a wrong answer is another's choice."""
    return [
        max(0.0, later.at - earlier.answered_at)
        for earlier, later in pairwise(record.questions)
        if earlier.answered_at is not None and earlier.status in (200, 304)
    ]


def _silence(record: Record) -> float:
    """Return for how long it was silent in the end, while it could have asked."""
    last = record.requests[-1]
    if last.status is None or record.ended is not None or record.left_at is not None:
        return 0.0
    return record.over_at - (last.answered_at or last.at)


class DoesNotHammer(msgspec.Struct, frozen=True):
    """The endpoint is not asked without a pause."""

    key: ClassVar[str] = "hammers"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "ask more than 5 times in a second: a real endpoint then answers 429"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Take the median gap, so that a machine that stutters does not count. Held questions have no pace."""
        asked = [question.at for question in record.questions if "wait=" not in question.target.lower()]
        gaps = [later - earlier for earlier, later in pairwise(asked)]
        if not record.questions:
            return _not_judged("it has not asked")
        if len(gaps) < ENOUGH_GAPS:
            return _kept(f"{len(record.questions)} questions in all")
        middle = median(gaps)
        seen = f"{len(asked)} questions, the next one after {middle:.2f} s on the median"
        return _broken(seen) if middle < SHORTEST_GAP else _kept(seen)


class KeepsRunning(msgspec.Struct, frozen=True):
    """Whatever happens, the program does not end; after one event comes the next."""

    key: ClassVar[str] = "keeps-running"
    mood: ClassVar[Mood] = Mood.MUST
    words: ClassVar[str] = "go on running, through all of it and afterwards"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """See whether it has ended by itself."""
        if record.ended is not None:
            return _broken(f"{_end(record)}{_last_words(record)}")
        return _kept("it was still running in the end")


class RunsUntilStart(msgspec.Struct, frozen=True):
    """The VM is taken away: a program may end then, or once it has approved, but not before."""

    key: ClassVar[str] = "keeps-running"
    mood: ClassVar[Mood] = Mood.MUST
    words: ClassVar[str] = "go on running until it has approved, or the event has started"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """See whether it has ended too early."""
        if record.ended is None:
            return _kept("it was still running in the end")
        has_reason = any(approval.is_accepted for approval in record.approvals) or any(
            event.is_started for told in record.told for event in told.events.values()
        )
        is_gone = record.left_at is not None and record.left_at <= record.ended.at
        if has_reason or is_gone:
            return _kept(f"{_end(record)}, when there was nothing more to do")
        return _broken(f"{_end(record)}{_last_words(record)}")


class UsesNoProxy(msgspec.Struct, frozen=True):
    """The endpoint is link-local: no proxy can reach it for the VM."""

    key: ClassVar[str] = "uses-proxy"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "send its requests to the proxy that the environment names"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """A client that talks to a proxy sends the whole URL."""
        if not record.requests:
            return _not_judged("it has not asked")
        sent = [request for request in record.requests if "://" in request.target.partition("?")[0]]
        if sent:
            return _broken(f"{sent[0].method} {sent[0].target} {record.moment(sent[0].at)} came to the proxy")
        return _kept(f"{len(record.requests)} requests, all straight to the endpoint")


# What it approves.


class Approves(msgspec.Struct, frozen=True):
    """An event of its own VM is approved while it waits for that.

    `like`: an event that names other VMs too is judged if the program has approved that one.
    """

    event: str
    like: str | None = None

    mood: ClassVar[Mood] = Mood.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"approves-{self.event}"

    @property
    def words(self) -> str:
        """What it is."""
        if self.like is not None:
            return f"approve {self.event} while it is Scheduled, as it has approved {self.like}"
        return f"approve {self.event} while it is Scheduled"

    def judge(self, record: Record, wishes: Wishes) -> Judged:
        """Judge by what is wanted for events of this kind."""
        id_ = record.labels.get(self.event)
        first = None if id_ is None else record.first_told(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return _not_judged(f"it was never told of {self.event} as Scheduled")
        event = record.last_scheduled(id_) or first.events[id_]
        wish = self._wish(event, record, wishes)
        match wish:
            case Wish.EITHER:
                return _not_judged(f"{self.event} names {', '.join(event.resources)}{_approved(record, id_)}")
            case Wish.IGNORE:
                return self._ignored(record, id_)
            case Wish.APPROVE:
                return self._approved(record, id_, event)

    def _wish(self, event: Event, record: Record, wishes: Wishes) -> Wish:
        wish = wishes.of(event)
        if len(event.resources) == 1 or wish is not Wish.APPROVE:
            return wish
        before = None if self.like is None else record.labels.get(self.like)
        has_before = before is not None and any(approval.is_accepted for approval in record.approvals_of(before))
        return Wish.APPROVE if has_before else wishes.shared

    def _ignored(self, record: Record, id_: str) -> Judged:
        sent = record.approvals_of(id_)
        if sent:
            return Judged(Verdict.BROKEN, f"it approved {self.event} {record.moment(sent[0].at)}", Mood.MUST_NOT)
        return Judged(Verdict.KEPT, f"it was told of {self.event} and did not approve it", Mood.MUST_NOT)

    def _approved(self, record: Record, id_: str, event: Event) -> Judged:
        sent = record.approvals_of(id_)
        started = record.first_told(id_, status=Status.STARTED)
        in_time = [one for one in sent if started is None or one.at <= started.at + SLACK]
        if any(one.is_accepted for one in in_time):
            when = next(one for one in in_time if one.is_accepted)
            return _kept(f"POST {record.moment(when.at)}, answered 200")
        if in_time:
            return _not_judged(f"it tried {record.moment(in_time[0].at)} and was answered {in_time[0].status}")
        if record.ended is not None:
            return _not_judged(f"{_end(record)} before it could")
        if not (record.is_finished or started is not None or record.gone_at(id_) is not None):
            return _not_judged("the time was over before it could")
        told = record.first_told(id_)
        after = sum(1 for question in record.questions if told is not None and question.at > told.at)
        others = ", ".join(sorted({record.name(one.id) for one in record.approvals} - {self.event})) or "nothing"
        return _broken(
            f"it was told of {self.event} ({event.type}, {event.status}) {record.moment(told.at if told else 0.0)}, "
            f"asked {_times(after)} after that, and approved {others}"
        )


class LeavesOthers(msgspec.Struct, frozen=True):
    """Events that name only other VMs are theirs to approve: with an approval their impact begins."""

    key: ClassVar[str] = "approves-others"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "approve an event that names only other VMs"

    def judge(self, record: Record, wishes: Wishes) -> Judged:
        """Look at every approval of an event that was told and is not the VM's own."""
        others = {id_ for told in record.told for id_, event in told.events.items() if not event.affects(record.vm)}
        if not others:
            return _not_judged("it was told of no such event")
        wrong = [approval for approval in record.approvals if approval.id in others]
        if wishes.for_others:
            return _not_judged(f"it may act for others; it approved {len(wrong)} of their events")
        if not wrong:
            return _kept(f"it was told of {len(others)} such and approved none")
        event = record.event(wrong[0].id)
        named = ", ".join(event.resources) if event is not None else ""
        return _broken(f"it approved {record.name(wrong[0].id)}, of {named}, {record.moment(wrong[0].at)}")


class LeavesStarted(msgspec.Struct, frozen=True):
    """What has started waits for nobody: there is nothing to approve."""

    key: ClassVar[str] = "approves-started"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "approve an event that it was told has started"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """News that came a moment ago may have crossed the approval; an event that was never Scheduled may not."""
        started = {id_ for told in record.told for id_, event in told.events.items() if event.is_started}
        if not started:
            return _not_judged("it was told of no event that has started")
        wrong = [approval for approval in record.approvals if _was_started(record, approval)]
        if not wrong:
            return _kept(f"it was told of {len(started)} such and approved none of them then")
        return _broken(f"it approved {record.name(wrong[0].id)} {record.moment(wrong[0].at)}, which was Started")


def _was_started(record: Record, approval: Approval) -> bool:
    was_scheduled = record.first_told(approval.id, status=Status.SCHEDULED) is not None
    told = record.latest_told(approval.at - (SLACK if was_scheduled else 0.0))
    event = None if told is None else told.events.get(approval.id)
    return event is not None and event.is_started


class LeavesGone(msgspec.Struct, frozen=True):
    """What is over, or was called off, is not approved any more."""

    key: ClassVar[str] = "approves-gone"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "approve an event that is in the document no more"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Look for approvals of events that had been told before, and were not in documents since."""
        known = {id_ for told in record.told for id_ in told.events}
        if not any(record.gone_at(id_) is not None for id_ in known):
            return _not_judged("it was told of no event that is over")
        wrong = [approval for approval in record.approvals if _was_gone(record, approval)]
        if not wrong:
            return _kept("it approved none")
        gone_at = record.gone_at(wrong[0].id) or 0.0
        return _broken(
            f"it approved {record.name(wrong[0].id)} {record.moment(wrong[0].at)}, "
            f"which had been gone since {gone_at - record.began_at:.1f} s"
        )


def _was_gone(record: Record, approval: Approval) -> bool:
    gone_at = record.gone_at(approval.id)
    return gone_at is not None and gone_at + SLACK < approval.at


class RemembersApproval(msgspec.Struct, frozen=True):
    """An approval counts once; it may be repeated, but not for ever."""

    key: ClassVar[str] = "approves-again"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = f"approve an event more than {MOST_APPROVALS} times: once is enough"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """Count the approvals that were taken."""
        counts: dict[str, int] = {}
        for approval in record.approvals:
            if approval.is_accepted:
                counts[approval.id] = counts.get(approval.id, 0) + 1
        if not counts:
            return _not_judged("it approved nothing")
        id_ = max(counts, key=counts.__getitem__)
        seen = f"it approved {record.name(id_)} {_times(counts[id_])}"
        return _broken(seen) if counts[id_] > MOST_APPROVALS else _kept(seen)


# What the user's markers tell.


class Prepares(msgspec.Struct, frozen=True):
    """The VM is prepared before the event is approved."""

    event: str

    mood: ClassVar[Mood] = Mood.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"prepares-{self.event}"

    @property
    def words(self) -> str:
        """What it is."""
        return f"have prepared for {self.event} before it approves it"

    def judge(self, record: Record, wishes: Wishes) -> Judged:
        """Compare the moment at which the marker changed with that of the approval."""
        if record.prepared is None:
            return _not_judged("no marker was named: --prepared FILE")
        id_ = record.labels.get(self.event)
        first = None if id_ is None else record.first_told(id_, status=Status.SCHEDULED)
        if id_ is None or first is None:
            return _not_judged(f"it was never told of {self.event} as Scheduled")
        if wishes.of(first.events[id_]) is Wish.IGNORE:
            return _not_judged("events of this type are to be ignored")
        approved_at = min((one.at for one in record.approvals_of(id_)), default=None)
        done = [at for at in record.prepared if at >= first.at - SLACK]
        if not done:
            ran_out = record.ended is not None or not (record.is_finished or approved_at is not None)
            return _not_judged("it had no time to") if ran_out else _broken("the marker has not changed")
        if approved_at is not None and done[0] > approved_at:
            return _broken(f"it approved {record.moment(approved_at)}, and the marker changed {record.moment(done[0])}")
        return _kept(f"the marker changed {record.moment(done[0])}")


class PreparesNothing(msgspec.Struct, frozen=True):
    """What happens to other VMs is no reason to prepare."""

    key: ClassVar[str] = "prepares-for-others"
    mood: ClassVar[Mood] = Mood.MUST_NOT
    words: ClassVar[str] = "prepare for an event that names only other VMs"

    def judge(self, record: Record, _: Wishes) -> Judged:
        """See whether the marker has changed."""
        if record.prepared is None:
            return _not_judged("no marker was named: --prepared FILE")
        if record.prepared:
            return _broken(f"the marker changed {record.moment(record.prepared[0])}")
        return _kept("the marker has not changed")


class Recovers(msgspec.Struct, frozen=True):
    """When the event is over, or was called off, the VM goes back to work."""

    event: str

    mood: ClassVar[Mood] = Mood.MUST

    @property
    def key(self) -> str:
        """Its name."""
        return f"recovers-{self.event}"

    @property
    def words(self) -> str:
        """What it is."""
        return f"recover when {self.event} is over"

    def judge(self, record: Record, wishes: Wishes) -> Judged:
        """See whether the marker has changed since the event was gone."""
        if record.recovered is None:
            return _not_judged("no marker was named: --recovered FILE")
        id_ = record.labels.get(self.event)
        gone_at = None if id_ is None else record.gone_at(id_)
        event = None if id_ is None else record.event(id_)
        if gone_at is None or event is None:
            return _not_judged(f"it was never told that {self.event} is over")
        if wishes.of(event) is Wish.IGNORE:
            return _not_judged("events of this type are to be ignored")
        if not (record.prepared or record.approvals_of(event.id.upper())):
            return _not_judged("it had neither prepared nor approved: there is nothing to recover from")
        done = [at for at in record.recovered if at >= gone_at - SLACK]
        if done:
            return _kept(f"the marker changed {record.moment(done[0])}")
        if record.ended is not None or not record.is_finished:
            return _not_judged("it had no time to")
        return _broken(f"{self.event} was gone {record.moment(gone_at)}, and the marker has not changed since")


def _end(record: Record) -> str:
    ended = record.ended
    return "it ended" if ended is None else f"it ended with exit code {ended.code} {record.moment(ended.at)}"


def _last_words(record: Record) -> str:
    lines = record.output.strip().splitlines()
    return f", saying: {lines[-1].strip()}" if lines else ""


def _approved(record: Record, id_: str) -> str:
    sent = record.approvals_of(id_)
    return f"; it approved it {record.moment(sent[0].at)}" if sent else "; it did not approve it"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
