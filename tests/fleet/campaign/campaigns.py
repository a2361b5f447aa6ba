"""Campaign tests: a platform whose work survives a crash, scripted gates and notifiers, plans and starts."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from forewarn.api.fleet_file import CreationContext, demonstration_fleet
from forewarn.clock import Clock, wait_until
from forewarn.core.campaign.plan import Plan, plan
from forewarn.core.campaign.plan_input import plan_scopes
from forewarn.core.campaign.record import Campaign
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection
from forewarn.core.event import EventType
from forewarn.core.impact import Done, Failed, NotStarted, Unknown
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Scope, ScopeKind
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GateFailed, GatePassed, GateRequest, NotificationFailed, NotificationMessage, Work
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalRow, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, scope, vm
from tests.fleet.fleets import read_journal

CAMPAIGN_ID = "0F0E0D0C-0B0A-4908-8706-050403020100"
"""The id of campaigns in tests: event ids follow from it."""

MINUTE = timedelta(minutes=1)


def demo_fleet(at: datetime = TEN) -> tuple[Scope, ...]:
    """Return the demonstration fleet."""
    return demonstration_fleet(CreationContext(at, lambda: "e1"))


def campaign_spec(
    *,
    name: str = "kernel",
    type_: EventType = EventType.REBOOT,
    selection: Selection | None = None,
    start_at: datetime | None = None,
    **policy: Any,
) -> CampaignSpec:
    """Ask for a campaign over everything, with this policy."""
    return CampaignSpec(
        name=name,
        type=type_,
        selection=selection or Selection(all=True),
        policy=CampaignPolicy(**policy),
        start_at=start_at,
    )


def plan_campaign(fleet: Fleet, spec: CampaignSpec) -> Plan:
    """Plan a campaign over a fleet as it is."""
    now, conditions = fleet.clock.now(), fleet.scopes.rule_context
    scopes = [view.scope for view in fleet.replica.views() if view.scope is not None]
    return plan(spec, plan_scopes(scopes, spec, conditions, now=now), conditions, now=now, zones=find_zone)


async def start_campaign(fleet: Fleet, spec: CampaignSpec, *, id_: str = CAMPAIGN_ID, **more: Any) -> Campaign:
    """Plan a campaign and start it."""
    return await fleet.campaigns.start(spec, plan_campaign(fleet, spec), by="alice", id_=id_, **more)


async def advance_to(fleet: Fleet, moment: datetime) -> None:
    """Let time pass until the moment; what is to happen at that moment is over on return."""
    await fleet.time.advance(max(moment - fleet.clock.now(), timedelta(0)))


def journal_lines(rows: Iterable[JournalRow], *dids: EntryKind) -> list[str]:
    """Tell a campaign's journal in short lines: when, which wave of which scope, what."""
    return [_line(row.entry) for row in rows if not dids or row.entry.kind in dids]


def _line(entry: Entry) -> str:
    parts = [f"{entry.at:%H:%M}"]
    if "scope" in entry.facts:
        parts.append(f"{entry.facts['scope']} {entry.facts['wave']}")
    parts.append(entry.kind.value)
    return " ".join(parts)


async def read_campaign_journal(store: MemoryStore, id_: str = CAMPAIGN_ID) -> list[JournalRow]:
    """Return what the journal says of a campaign."""
    return await read_journal(store, RecordKey(RecordKind.CAMPAIGN, id_))


class DurablePlatform:
    """Work continues although the process that began it has crashed: it is done a minute after it began, and only once.

    `failing` has VMs, as `scope/name`, whose next work fails. After a crash that is unknown.
    """

    repeatable = False

    def __init__(self, clock: Clock, *, length: timedelta = MINUTE) -> None:
        self._clock = clock
        self._length = length
        self._begun: dict[tuple[str, int], datetime] = {}
        self.failing: dict[str, str] = {}
        self._failed: dict[tuple[str, int], str] = {}
        self.done: dict[str, list[EventType]] = {}
        """What was done on each VM."""
        self._counted: set[str] = set()

    async def carry_out(self, work: Work) -> Done | Failed:
        """Do it, or go on with what another process has begun."""
        reason = await self._outcome(work)
        return Done() if reason is None else Failed(reason)

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        """Wait for the end of work that had begun."""
        reason = await self._outcome(work)
        return Done() if reason is None else Unknown(reason)

    async def _outcome(self, work: Work) -> str | None:
        attempt = (work.id, work.attempt)
        if attempt not in self._begun:
            self._begun[attempt] = self._clock.now()
            if (reason := self.failing.pop(f"{work.scope}/{work.vm}", None)) is not None:
                self._failed[attempt] = reason
        await wait_until(self._clock, self._begun[attempt] + self._length)
        if attempt not in self._failed and work.id not in self._counted:
            self._counted.add(work.id)
            self.done.setdefault(f"{work.scope}/{work.vm}", []).append(work.type)
        return self._failed.get(attempt)


class FakeGateChecker:
    """A gate that is closed at given times, and records its requests."""

    gates = ("health",)

    def __init__(self, clock: Clock, *shut: tuple[datetime, datetime]) -> None:
        self._clock = clock
        self._shut = shut
        self.requests: list[tuple[datetime, GateRequest]] = []

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Answer after a moment of real time."""
        now = self._clock.now()
        self.requests.append((now, request))
        await asyncio.sleep(0)
        return GateFailed("the error rate is high") if any(a <= now < b for a, b in self._shut) else GatePassed()


class FakeNotifier:
    """Takes messages; the first attempts for each of them fail, as many as `failures` says."""

    has_receivers = True

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures
        self._tried: dict[str, int] = {}
        self.messages: list[NotificationMessage] = []

    async def notify(self, message: NotificationMessage) -> None:
        """Take a message, or fail."""
        tried = self._tried[message.id] = self._tried.get(message.id, 0) + 1
        if tried <= self._failures:
            raise NotificationFailed("no response")
        self.messages.append(message)


OperatorStep = tuple[datetime, Callable[[Fleet], Awaitable[object]]]


class OperatorScript:
    """What people do, and when. It is not part of the service: what is done is done, though the service dies."""

    def __init__(self, steps: Sequence[OperatorStep], until: datetime) -> None:
        self._steps = steps
        self._until = until
        self._next = 0

    async def run(self, fleet: Fleet) -> None:
        """Let time pass and do what comes next, to the end."""
        while self._next < len(self._steps):
            at, do = self._steps[self._next]
            await advance_to(fleet, at)
            await do(fleet)
            self._next += 1
        await advance_to(fleet, self._until)


def normalize_journals(rows: Iterable[JournalRow]) -> dict[str, list[str]]:
    """Return the journals of scopes and campaigns so that two runs can be compared.

    What happens at one moment has no order of its own. A platform that is asked after a crash does not know of a
    failure what it would have said without one.
    """
    journals: dict[str, list[Entry]] = {}
    for row in rows:
        if row.key.kind in (RecordKind.SCOPE, RecordKind.CAMPAIGN):
            journals.setdefault(str(row.key), []).append(row.entry)
    for entries in journals.values():
        assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    return {key: sorted(_normalize(entry) for entry in entries) for key, entries in journals.items()}


def _normalize(entry: Entry) -> str:
    did = EntryKind.IMPACT_FAILED if entry.kind is EntryKind.IMPACT_UNKNOWN else entry.kind
    why = re.sub(r"whether the work on (.+) was done is unknown: ", r"\1: ", entry.why)
    why = why.replace("the outcome of a wave is unknown", "a wave has failed")
    plain = msgspec.structs.replace(
        entry, n=0, incarnation=None, kind=did, why=why, facts=dict(sorted(entry.facts.items()))
    )
    return f"{entry.at.isoformat()} {msgspec.json.encode(plain).decode()}"


def single(n: int) -> Scope:
    """Make a scope of one VM."""
    return scope(f"db-{n}", vm(f"db-{n}", host=f"hv-db-{n}"), kind=ScopeKind.STANDALONE)
