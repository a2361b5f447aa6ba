"""A repeated request with the same idempotency key has no further effect, even after a restart or a crash."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.access import Role
from forewarn.core.errors import CoreError, InvalidTransition, KeyConflict
from forewarn.core.event import EventType
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.impact import Failed, NotStarted
from forewarn.core.impact_lifecycle import PLATFORM
from forewarn.core.journal import EntryKind
from forewarn.core.limits import MAX_RECENT_AGE
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Traits
from forewarn.fleet.errors import (
    EventNotFound,
    FleetError,
    SaveFailed,
    ScopeExists,
    ScopeNotFound,
    SecretUnavailable,
    VmNotFound,
)
from forewarn.fleet.events import new_request_id
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Work
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind, StoreFailed
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import InterceptedStore, Save, read_journal, run_fleet

KEY = IdempotencyKey("order-66", "d1")
OTHER = IdempotencyKey("order-66", "d2")


class Broken:
    """A platform on which all work fails."""

    repeatable = True

    async def carry_out(self, _: Work) -> Failed:
        """Fail."""
        return Failed("no answer")

    async def probe(self, _: Work) -> NotStarted:
        """Nothing is ever begun."""
        return NotStarted()


class Lossy(InterceptedStore):
    """A store that fails on demand at the next save, before or after it has saved."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks: str | None = None

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Save, or break."""
        breaks, self.breaks = self.breaks, None
        if breaks == "before":
            raise StoreFailed(Path("/test"), "broken")
        revision = await save()
        if breaks == "after":
            raise StoreFailed(Path("/test"), "broken")
        return revision


def db() -> Scope:
    """A standalone VM."""
    return scope("db", vm("db", ip="10.0.1.1"), kind=ScopeKind.STANDALONE)


def doomed() -> Scope:
    """A standalone VM whose deletion is announced."""
    traits = Traits(terminate_notice=timedelta(minutes=5))
    return msgspec.structs.replace(scope("doomed", vm("doomed"), kind=ScopeKind.STANDALONE), traits=traits)


def spot() -> Scope:
    """A standalone VM that can be evicted."""
    return scope("spot", vm("spot"), kind=ScopeKind.STANDALONE, low_priority=True)


@asynccontextmanager
async def run_seeded_fleet(store: MemoryStore) -> AsyncIterator[Fleet]:
    async with run_fleet(
        web_scope(), db(), doomed(), spot(), store=store, clock=ManualClock(TEN), platform=Broken()
    ) as fleet:
        yield fleet


async def settled(fleet: Fleet) -> None:
    await fleet.time.advance(timedelta(0))


async def planned(fleet: Fleet) -> None:
    """Two VMs of web have planned maintenance without approvals."""
    await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-3", notice=timedelta(hours=1)))


async def stuck(fleet: Fleet) -> None:
    """The work on web has failed, and so has an eviction."""
    await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-3", failure=True))
    await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spot", number=2, notice=timedelta(0)))
    await settled(fleet)


async def held(fleet: Fleet) -> None:
    """Everything is held."""
    await fleet.holds.set(by="bob", reason="storm", scope="web")
    await fleet.holds.set(by="bob", reason="storm")


async def nothing(_: Fleet) -> None:
    """Nothing has happened before."""


async def token(fleet: Fleet) -> None:
    """There is a token."""
    await fleet.tokens.adopt("secret", by="owner")


def event_of(fleet: Fleet, scope_id: str) -> str:
    """Return the event of a scope; after its end, the one that the test has remembered."""
    found, _ = fleet.replica.newest(scope_id)
    if found is not None and found.events:
        IDS[scope_id] = found.events[0].id
    return IDS[scope_id]


IDS: dict[str, str] = {}

Command = Callable[[Fleet, IdempotencyKey], Awaitable[object]]
COMMANDS: dict[str, tuple[Callable[[Fleet], Awaitable[None]], Command]] = {
    "add a scope": (
        nothing,
        lambda f, k: f.inventory.add_scope(scope("new", vm("n", ip="10.2.0.1")), by="ann", idempotency_key=k),
    ),
    "change a scope": (
        nothing,
        lambda f, k: f.inventory.change_scope("web", by="ann", approval=ApprovalRule.ALL, idempotency_key=k),
    ),
    "remove a scope": (planned, lambda f, k: f.inventory.remove_scope("web", by="ann", force=True, idempotency_key=k)),
    "add a VM": (
        nothing,
        lambda f, k: f.inventory.add_vm("web", vm("web-9", ip="10.0.0.99"), by="ann", idempotency_key=k),
    ),
    "change a VM": (
        planned,
        lambda f, k: f.inventory.change_vm(
            "web", "web-0", lambda old: msgspec.structs.replace(old, host="hv-9"), by="ann", idempotency_key=k
        ),
    ),
    "remove a VM": (
        planned,
        lambda f, k: f.inventory.remove_vm("web", "web-0", by="ann", force=True, idempotency_key=k),
    ),
    "remove the VM of a standalone scope": (
        nothing,
        lambda f, k: f.inventory.remove_vm("db", "db", by="ann", idempotency_key=k),
    ),
    "delete a VM": (
        nothing,
        lambda f, k: f.events.delete("web-1", request=new_request_id(), by="ann", idempotency_key=k),
    ),
    "delete a standalone VM": (
        nothing,
        lambda f, k: f.events.delete("db", request=new_request_id(), by="ann", idempotency_key=k),
    ),
    "delete a VM that is terminated": (
        nothing,
        lambda f, k: f.events.delete("doomed", request=new_request_id(), by="ann", idempotency_key=k),
    ),
    "schedule": (
        nothing,
        lambda f, k: f.events.schedule(
            schedule_request(EventType.REBOOT, "web-1", "db", key=k.key, caller=k.caller, id=new_request_id(), by="ann")
        ),
    ),
    "cancel": (planned, lambda f, k: f.events.cancel(event_of(f, "web"), by="ann", idempotency_key=k)),
    "approve": (planned, lambda f, k: f.events.approve_for(event_of(f, "web"), "web-5", by="ann", idempotency_key=k)),
    "retry": (stuck, lambda f, k: f.events.retry(event_of(f, "web"), by="ann", idempotency_key=k)),
    "retry on one VM": (
        stuck,
        lambda f, k: f.events.retry(event_of(f, "web"), vm="web/web-0", by="ann", idempotency_key=k),
    ),
    "resolve": (stuck, lambda f, k: f.events.resolve(event_of(f, "web"), by="ann", why="so", idempotency_key=k)),
    "resolve on one VM": (
        stuck,
        lambda f, k: f.events.resolve(event_of(f, "web"), by="ann", why="so", vm="web-3", idempotency_key=k),
    ),
    "resolve what takes the scope away": (
        stuck,
        lambda f, k: f.events.resolve(event_of(f, "spot"), by="ann", why="so", done=True, idempotency_key=k),
    ),
    "hold a scope": (planned, lambda f, k: f.holds.set(by="ann", reason="flood", scope="web", idempotency_key=k)),
    "release a scope": (held, lambda f, k: f.holds.release(by="ann", scope="web", idempotency_key=k)),
    "hold everything": (planned, lambda f, k: f.holds.set(by="ann", reason="flood", idempotency_key=k)),
    "release everything": (held, lambda f, k: f.holds.release(by="ann", idempotency_key=k)),
    "create a token": (nothing, lambda f, k: f.tokens.create("ci", Role.VIEWER, by="ann", idempotency_key=k)),
    "revoke a token": (
        token,
        lambda f, k: f.tokens.revoke(f.tokens.all()[0].id, by="ann", force=True, idempotency_key=k),
    ),
}

TABLE = pytest.mark.parametrize(("before", "command"), COMMANDS.values(), ids=COMMANDS)


async def journal_lines(store: MemoryStore) -> dict[str, list[tuple[object, ...]]]:
    """Return what the journal says of each record.

    Left out is what is drawn by lot, the clock's moving, and the platform, which may try again after a crash.
    """
    rows = [
        row
        for row in await read_journal(store)
        if row.entry.kind is not EntryKind.CLOCK_MOVED and row.entry.by != PLATFORM
    ]
    said: dict[str, list[tuple[object, ...]]] = {}
    for row in rows:
        entry = row.entry
        record = str(row.key.kind.value if row.key.kind is RecordKind.TOKEN else row.key)
        said.setdefault(record, []).append((entry.kind, entry.by, entry.why, entry.vms))
    return {key: sorted(entries) for key, entries in said.items()}


async def asked(fleet: Fleet, command: Command, key: IdempotencyKey = KEY) -> object:
    """Ask; a token's secret that was shown already counts as an answer."""
    try:
        answer = await command(fleet, key)
    except SecretUnavailable:
        answer = None
    await settled(fleet)
    return answer


async def as_asked_once(before: Callable[[Fleet], Awaitable[None]], command: Command) -> object:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        assert await journal_lines(store) != {}
        quiet = await journal_lines(store)
        await asked(fleet, command)
        assert await journal_lines(store) != quiet
    return await journal_lines(store)


@TABLE
async def test_repeated_request_after_a_lost_response(
    before: Callable[[Fleet], Awaitable[None]], command: Command
) -> None:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        first = await asked(fleet, command)
        again = await asked(fleet, command)
        assert await journal_lines(store) == await as_asked_once(before, command)
        assert again is None or again == first


@TABLE
async def test_concurrent_repeated_request(before: Callable[[Fleet], Awaitable[None]], command: Command) -> None:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        answers = await asyncio.gather(*(command(fleet, KEY) for _ in range(3)), return_exceptions=True)
        await settled(fleet)
        assert not [each for each in answers if isinstance(each, Exception) and not isinstance(each, SecretUnavailable)]
        assert await journal_lines(store) == await as_asked_once(before, command)


@TABLE
async def test_repeated_request_after_a_restart(before: Callable[[Fleet], Awaitable[None]], command: Command) -> None:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        await asked(fleet, command)
    async with resumed(store) as fleet:
        await asked(fleet, command)
        assert await journal_lines(store) == await as_asked_once(before, command)


@pytest.mark.parametrize("breaks", ["before", "after"])
@TABLE
async def test_repeated_request_after_a_crash(
    before: Callable[[Fleet], Awaitable[None]], command: Command, breaks: str
) -> None:
    """The service crashes while it saves, so the caller does not know the result."""
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        remember(fleet)
        store.breaks = breaks
        with pytest.raises((SaveFailed, FleetError)):
            await command(fleet, KEY)
    async with resumed(store) as fleet:
        await asked(fleet, command)
        assert await journal_lines(store) == await as_asked_once(before, command)


def remember(fleet: Fleet) -> None:
    for id_ in ("web", "spot"):
        found, _ = fleet.replica.newest(id_)
        if found is not None and found.events:
            event_of(fleet, id_)


@asynccontextmanager
async def resumed(store: MemoryStore) -> AsyncIterator[Fleet]:
    """Run a fleet on what is in the store, and add nothing."""
    async with run_fleet(store=store, clock=ManualClock(TEN), platform=Broken()) as fleet:
        yield fleet


async def outcome(fleet: Fleet, command: Command, key: IdempotencyKey) -> str:
    """Ask, and return whether the request was done or why it was refused."""
    try:
        await asked(fleet, command, key)
    except (CoreError, FleetError) as refusal:
        return type(refusal).__name__
    return "done"


@TABLE
async def test_keys_of_two_callers_are_independent(
    before: Callable[[Fleet], Awaitable[None]], command: Command
) -> None:
    """The second caller's request has the same effect as one with another key."""
    effects = []
    for second in (IdempotencyKey(KEY.key, "d2", "tk_bob"), IdempotencyKey("other", "d2", "tk_ann")):
        store = Lossy()
        async with run_seeded_fleet(store) as fleet:
            await before(fleet)
            remember(fleet)
            await asked(fleet, command, IdempotencyKey(KEY.key, "d1", "tk_ann"))
            effects.append((await outcome(fleet, command, second), await journal_lines(store)))
    assert effects[0] == effects[1]
    assert effects[0][0] != KeyConflict.__name__


@TABLE
async def test_key_that_was_stored_without_a_caller_answers_its_repeat(
    before: Callable[[Fleet], Awaitable[None]], command: Command
) -> None:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        await asked(fleet, command, KEY)
    async with resumed(store) as fleet:
        await asked(fleet, command, IdempotencyKey(KEY.key, KEY.digest, "tk_ann"))
        assert await journal_lines(store) == await as_asked_once(before, command)


DIGESTED = {name: each for name, each in COMMANDS.items() if not name.startswith(("delete", "schedule"))}


@pytest.mark.parametrize(("before", "command"), DIGESTED.values(), ids=DIGESTED)
async def test_key_that_was_used_for_another_request_is_refused(
    before: Callable[[Fleet], Awaitable[None]], command: Command
) -> None:
    store = Lossy()
    async with run_seeded_fleet(store) as fleet:
        await before(fleet)
        await asked(fleet, command)
        quiet = await journal_lines(store)
        with pytest.raises(KeyConflict):
            await command(fleet, OTHER)
        assert await journal_lines(store) == quiet


async def test_key_that_another_scope_has_answered_is_refused() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        await fleet.holds.set(by="ann", reason="flood", scope="web", idempotency_key=KEY)
        with pytest.raises(KeyConflict):
            await fleet.holds.set(by="ann", reason="flood", scope="db", idempotency_key=KEY)
        with pytest.raises(KeyConflict):
            await fleet.events.delete("db", request=new_request_id(), by="ann", idempotency_key=KEY)
        with pytest.raises(KeyConflict):
            await fleet.inventory.add_scope(scope("new"), by="ann", idempotency_key=KEY)
        with pytest.raises(KeyConflict):
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "db", key=KEY.key))


async def test_key_is_forgotten_after_a_day() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        await fleet.holds.set(by="ann", reason="flood", scope="web", idempotency_key=KEY)
        await fleet.inventory.remove_scope("db", by="ann", idempotency_key=IdempotencyKey("gone", "d1"))
        await fleet.time.advance(MAX_RECENT_AGE)
        await fleet.holds.set(by="ann", reason="other", scope="spot", idempotency_key=OTHER)
        with pytest.raises(ScopeNotFound):
            await fleet.inventory.remove_scope("db", by="ann", idempotency_key=IdempotencyKey("gone", "d1"))


async def test_repeated_removal_does_not_remove_a_new_scope_of_the_same_name() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        await fleet.inventory.remove_scope("db", by="ann", idempotency_key=KEY)
        await fleet.inventory.add_scope(db(), by="bob")
        await fleet.inventory.remove_scope("db", by="ann", idempotency_key=KEY)
        assert fleet.replica.scope("db").roster
        with pytest.raises(KeyConflict):
            await fleet.inventory.remove_scope("db", by="ann", idempotency_key=OTHER)


async def test_repeated_creation_does_not_create_a_removed_scope_again() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        await fleet.inventory.add_scope(scope("new", vm("n")), by="ann", idempotency_key=KEY)
        await fleet.inventory.remove_scope("new", by="bob")
        await fleet.inventory.add_scope(scope("new", vm("n")), by="ann", idempotency_key=KEY)
        with pytest.raises(ScopeNotFound):
            fleet.replica.scope("new")


async def test_unknown_object_is_refused_with_and_without_a_key() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        with pytest.raises(ScopeNotFound):
            await fleet.inventory.remove_scope("nowhere", by="ann", idempotency_key=KEY)
        with pytest.raises(EventNotFound):
            await fleet.events.cancel("00000000-0000-4000-8000-000000000009", by="ann", idempotency_key=KEY)
        with pytest.raises(VmNotFound):
            await fleet.events.delete("nobody", request=new_request_id(), by="ann", idempotency_key=KEY)
        with pytest.raises(ScopeExists):
            await fleet.inventory.add_scope(web_scope(), by="ann", idempotency_key=KEY)


async def test_refused_request_can_be_repeated_with_the_same_key() -> None:
    async with run_seeded_fleet(MemoryStore()) as fleet:
        await stuck(fleet)
        event = event_of(fleet, "web")
        with pytest.raises(InvalidTransition):
            await fleet.events.cancel(event, by="ann", idempotency_key=KEY)
        await fleet.events.retry(event, by="ann", idempotency_key=KEY)
