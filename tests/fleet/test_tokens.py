"""Tokens: created once, stored as hashes, expired by the wall clock, revoked permanently, known to every process."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import pytest

from forewarn.clock import Clock, ManualClock
from forewarn.core.access import Role
from forewarn.core.errors import Invalid, ResourceExists
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR
from forewarn.fleet.errors import LastToken, SaveFailed, SecretUnavailable, TokenNotFound
from forewarn.fleet.service import Fleet
from forewarn.fleet.tokens import MAX_TOKENS, Token
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, Record, RecordKind, SnapshotEnd, Store
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import FailingStore, read_journal, until

HOUR = timedelta(hours=1)


def fleet_on(store: Store, wall: Clock, clock: Clock | None = None) -> AbstractAsyncContextManager[Fleet]:
    """Run a fleet whose tokens expire by this clock."""
    clock = clock or ManualClock(TEN)
    return Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, wall_clock=wall)


async def values(store: Store) -> list[bytes]:
    """Return everything that is kept of tokens."""
    kept: list[bytes] = []
    async with store.watch() as changes:
        async for change in changes:
            if isinstance(change, SnapshotEnd):
                return kept
            if isinstance(change, Record) and change.key.kind is RecordKind.TOKEN:
                kept.append(change.value)
    raise AssertionError("the snapshot has an end")


async def test_secret_is_valid_and_not_stored() -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as fleet:
        token, secret = await fleet.tokens.create("ci", Role.OPERATOR, ("web-*", "db"), by="ann")
        assert fleet.tokens.find(secret) == token
        assert fleet.tokens.find(secret[:-1]) is None
        assert fleet.tokens.find(token.id) is None
        assert fleet.tokens.find(token.hash) is None
        assert fleet.tokens.all() == (token,)
        (kept,) = await values(store)
        assert secret.encode() not in kept
        assert (token.id[:3], token.name, token.role, token.scopes) == ("tk_", "ci", Role.OPERATOR, ("web-*", "db"))
        assert (token.created_at, token.created_by, token.expires_at, token.revoked_at) == (TEN, "ann", None, None)


async def test_journal_has_creation_and_revocation_of_a_token_without_secret_or_hash() -> None:
    store = MemoryStore()
    async with fleet_on(store, ManualClock(TEN + HOUR)) as fleet:
        token, secret = await fleet.tokens.create("ci", Role.VIEWER, ("web-*",), by="ann")
        await fleet.tokens.revoke(token.id, by="bob", why="leaked")
        entries = [row.entry for row in await read_journal(store) if row.key.kind is RecordKind.TOKEN]
        assert [(entry.n, entry.at, entry.kind, entry.by, entry.why, entry.facts) for entry in entries] == [
            (1, TEN, EntryKind.TOKEN_CREATED, "ann", "", {"name": "ci", "role": "viewer", "scopes": "web-*"}),
            (2, TEN, EntryKind.TOKEN_REVOKED, "bob", "leaked", {"name": "ci", "role": "viewer", "scopes": "web-*"}),
        ]
        assert not {secret, token.hash} & {value for entry in entries for value in entry.facts.values()}


async def test_token_expires_by_the_wall_clock_and_not_by_a_manual_clock() -> None:
    wall = ManualClock(TEN)
    async with fleet_on(MemoryStore(), wall) as fleet:
        token, secret = await fleet.tokens.create("ci", Role.VIEWER, by="ann", expires_at=TEN + HOUR)
        wall.set(TEN + HOUR - timedelta(microseconds=1))
        assert fleet.tokens.find(secret) == token
        wall.set(TEN + HOUR)
        assert fleet.tokens.find(secret) is None
        assert fleet.tokens.all() == (token,)


async def test_revoked_token_is_invalid_and_revoked_once() -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as fleet:
        token, secret = await fleet.tokens.create("ci", Role.VIEWER, by="ann")
        await fleet.tokens.revoke(token.id, by="ann")
        wall.set(TEN + HOUR)
        await fleet.tokens.revoke(token.id, by="bob")
        assert fleet.tokens.find(secret) is None
        assert [each.revoked_at for each in fleet.tokens.all()] == [TEN]
        assert len(await read_journal(store)) == 2
        with pytest.raises(TokenNotFound):
            await fleet.tokens.revoke("tk_nobody", by="ann")


async def test_token_of_the_token_file_is_created_once_and_stays_revoked() -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as fleet:
        await asyncio.gather(*(fleet.tokens.adopt("the owner's", by="owner") for _ in range(3)))
        found = fleet.tokens.find("the owner's")
        assert found is not None
        assert (found.name, found.role, found.scopes) == ("admin", Role.ADMIN, ())
    async with fleet_on(store, wall) as fleet:
        await fleet.tokens.adopt("the owner's", by="owner")
        assert fleet.tokens.all() == (found,)
        await fleet.tokens.revoke(found.id, by="ann", force=True)
        await fleet.tokens.adopt("the owner's", by="owner")
        assert fleet.tokens.find("the owner's") is None
        await fleet.tokens.adopt("a new one", by="owner")
        await fleet.tokens.adopt("another one", by="owner")
        assert {token.name for token in fleet.tokens.all() if token.revoked_at is None} == {"admin", "admin-2"}
        assert len(await read_journal(store)) == 4


@pytest.mark.parametrize("name", ["clock", "Platform", "guest", "campaigns"])
async def test_token_cannot_have_the_name_of_a_part_of_the_service(name: str) -> None:
    async with fleet_on(MemoryStore(), ManualClock(TEN)) as fleet:
        with pytest.raises(Invalid, match="choose another name"):
            await fleet.tokens.create(name, Role.OPERATOR, by="admin")


async def test_name_of_a_valid_token_is_taken_and_free_again_when_it_is_not() -> None:
    wall = ManualClock(TEN)
    async with fleet_on(MemoryStore(), wall) as fleet:
        await fleet.tokens.create("ci", Role.VIEWER, by="ann", expires_at=TEN + HOUR)
        with pytest.raises(ResourceExists, match="a token CI already exists"):
            await fleet.tokens.create("CI", Role.VIEWER, by="ann")
        wall.set(TEN + HOUR)
        await fleet.tokens.create("ci", Role.VIEWER, by="ann")
        made = await asyncio.gather(
            *(fleet.tokens.create("other", Role.VIEWER, by="ann") for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in made] == [tuple, ResourceExists, ResourceExists]


async def test_calendar_of_a_token_has_one_secret_that_ends_with_the_token() -> None:
    wall, store = ManualClock(TEN), MemoryStore()
    async with fleet_on(store, wall) as fleet:
        token, secret = await fleet.tokens.create("ci", Role.VIEWER, ("web",), by="ann")
        first = await fleet.tokens.create_calendar(token.id, by="ci")
        second = await fleet.tokens.create_calendar(token.id, by="ci")
        found = [fleet.tokens.find_by_calendar(each) for each in (first, second, secret, "")]
        assert [None if each is None else each.id for each in found] == [None, token.id, None, None]
        assert fleet.tokens.find(second) is None
        stored = fleet.tokens.all()[0]
        assert second not in repr(stored)
    async with fleet_on(store, wall) as fleet:
        assert fleet.tokens.find_by_calendar(second) is not None
        await fleet.tokens.revoke_calendar(token.id, by="ci")
        await fleet.tokens.revoke_calendar(token.id, by="ci")
        assert (fleet.tokens.find_by_calendar(second), fleet.tokens.find(secret) is None) == (None, False)
        third = await fleet.tokens.create_calendar(token.id, by="ci")
        await fleet.tokens.revoke(token.id, by="ann")
        assert fleet.tokens.find_by_calendar(third) is None
        await fleet.tokens.revoke_calendar(token.id, by="ci")
        with pytest.raises(TokenNotFound):
            await fleet.tokens.create_calendar(token.id, by="ci")
        with pytest.raises(TokenNotFound):
            await fleet.tokens.revoke_calendar("tk_none", by="ci")
        rows = await store.journal(JournalQuery(limit=20))
    entries = [(row.entry.n, row.entry.kind.value, row.entry.by) for row in rows if row.key.id == token.id]
    assert entries == [
        (1, "token-created", "ann"),
        (2, "calendar-created", "ci"),
        (3, "calendar-created", "ci"),
        (4, "calendar-revoked", "ci"),
        (5, "calendar-created", "ci"),
        (6, "token-revoked", "ann"),
    ]


async def test_calendar_ends_when_its_token_expires_and_a_repeated_request_shows_nothing() -> None:
    wall, key = ManualClock(TEN), IdempotencyKey("k", "d")
    async with fleet_on(MemoryStore(), wall) as fleet:
        token, _ = await fleet.tokens.create("ci", Role.VIEWER, by="ann", expires_at=TEN + timedelta(hours=1))
        secret = await fleet.tokens.create_calendar(token.id, by="ci", idempotency_key=key)
        with pytest.raises(SecretUnavailable):
            await fleet.tokens.create_calendar(token.id, by="ci", idempotency_key=key)
        assert fleet.tokens.find_by_calendar(secret) is not None
        wall.set(TEN + HOUR)
        assert fleet.tokens.find_by_calendar(secret) is None


async def test_lost_secret_is_not_shown_again() -> None:
    wall = ManualClock(TEN)
    async with fleet_on(MemoryStore(), wall) as fleet:
        token, _ = await fleet.tokens.create("ci", Role.VIEWER, by="ann", idempotency_key=IdempotencyKey("k", "d"))
        with pytest.raises(SecretUnavailable, match="revoke it and create another") as refused:
            await fleet.tokens.create("ci", Role.VIEWER, by="ann", idempotency_key=IdempotencyKey("k", "d"))
        assert (refused.value.token, len(fleet.tokens.all())) == (token.id, 1)


@pytest.mark.parametrize(
    ("name", "scopes", "expires_at"),
    [
        ("", (), None),
        ("a b", (), None),
        ("ci", ("we b",), None),
        ("ci", ("",), None),
        ("ci", ("[a]",), None),
        ("ci", tuple(f"s{n}" for n in range(65)), None),
        ("ci", (), TEN),
    ],
    ids=["no name", "bad name", "bad scope", "empty scope", "other patterns", "too many scopes", "expired already"],
)
async def test_invalid_token_is_refused(name: str, scopes: tuple[str, ...], expires_at: datetime | None) -> None:
    async with fleet_on(MemoryStore(), ManualClock(TEN)) as fleet:
        with pytest.raises(Invalid):
            await fleet.tokens.create(name, Role.VIEWER, scopes, by="ann", expires_at=expires_at)
        assert fleet.tokens.all() == ()


async def test_tokens_of_another_process_arrive() -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as here, fleet_on(store, wall) as there:
        token, secret = await here.tokens.create("ci", Role.VIEWER, by="ann")
        await until(lambda: there.tokens.find(secret) == token)
        await there.tokens.revoke(token.id, by="bob")
        await until(lambda: here.tokens.find(secret) is None)
        assert here.tokens.all() == there.tokens.all()


async def test_token_that_could_not_be_saved_is_invalid() -> None:
    store = FailingStore()
    async with fleet_on(store, ManualClock(TEN)) as fleet:
        store.full = True
        with pytest.raises(SaveFailed):
            await fleet.tokens.create("ci", Role.VIEWER, by="ann")
        store.full = False
        assert fleet.tokens.all() == ()
        await fleet.tokens.create("ci", Role.VIEWER, by="ann")


async def test_number_of_tokens_is_limited() -> None:
    async with fleet_on(MemoryStore(), ManualClock(TEN)) as fleet:
        for n in range(MAX_TOKENS):
            await fleet.tokens.create(f"t{n}", Role.VIEWER, by="ann")
        with pytest.raises(Invalid, match="revoke those that are not needed"):
            await fleet.tokens.create("one-more", Role.VIEWER, by="ann")
        await fleet.tokens.revoke(fleet.tokens.all()[0].id, by="ann")
        await fleet.tokens.create("one-more", Role.VIEWER, by="ann")


def test_token_is_valid_until_it_expires_or_is_revoked() -> None:
    token = Token(
        id="tk_1", name="t", role=Role.VIEWER, hash="h", created_at=TEN, created_by="ann", expires_at=TEN + HOUR
    )
    assert token.is_valid(now=TEN)
    assert not token.is_valid(now=TEN + HOUR)


OTHERS: dict[str, tuple[Role, tuple[str, ...], timedelta | None, bool]] = {
    "another admin": (Role.ADMIN, (), None, True),
    "an admin whose token expires later": (Role.ADMIN, (), 2 * HOUR, True),
    "an admin whose token has expired": (Role.ADMIN, (), HOUR, False),
    "an admin of some scopes": (Role.ADMIN, ("*",), None, False),
    "an operator": (Role.OPERATOR, (), None, False),
}


@pytest.mark.parametrize(("role", "scopes", "valid_for", "is_enough"), OTHERS.values(), ids=OTHERS)
async def test_last_token_that_can_manage_tokens_is_revoked_only_by_force(
    role: Role, scopes: tuple[str, ...], valid_for: timedelta | None, is_enough: bool
) -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as fleet:
        await fleet.tokens.adopt("secret", by="owner")
        admin = fleet.tokens.all()[0].id
        expires_at = None if valid_for is None else TEN + valid_for
        other, _ = await fleet.tokens.create("other", role, scopes, by="ann", expires_at=expires_at)
        wall.set(TEN + HOUR)
        if is_enough:
            await fleet.tokens.revoke(admin, by="ann")
        else:
            before = await values(store)
            with pytest.raises(LastToken, match="create another admin token first, or revoke it with force"):
                await fleet.tokens.revoke(admin, by="ann")
            assert (await values(store), fleet.tokens.find("secret") is not None) == (before, True)
            await fleet.tokens.revoke(other.id, by="ann")  # this one is not the last
            await fleet.tokens.revoke(admin, by="ann", force=True)
        assert fleet.tokens.find("secret") is None


async def test_two_admins_cannot_revoke_each_other() -> None:
    async with fleet_on(MemoryStore(), ManualClock(TEN)) as fleet:
        made = [(await fleet.tokens.create(name, Role.ADMIN, by="test"))[0].id for name in ("ann", "bob")]
        results = await asyncio.gather(*(fleet.tokens.revoke(id_, by="test") for id_ in made), return_exceptions=True)
        assert [type(each) for each in results] == [type(None), LastToken]


async def test_two_admins_in_two_processes_cannot_revoke_each_other() -> None:
    """Both revocations are decided before either process knows the other one's."""
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as one, fleet_on(store, wall) as other:
        ann, _ = await one.tokens.create("ann", Role.ADMIN, by="x")
        bob, _ = await one.tokens.create("bob", Role.ADMIN, by="x")
        await until(lambda: len(other.tokens.all()) == 2)
        results = await asyncio.gather(
            one.tokens.revoke(bob.id, by="ann"), other.tokens.revoke(ann.id, by="bob"), return_exceptions=True
        )
        assert [type(result) for result in results] == [type(None), LastToken]
        await until(lambda: one.tokens.all() == other.tokens.all())
        assert [token.name for token in one.tokens.all() if token.can_manage_tokens(now=TEN)] == ["ann"]


async def test_revoking_a_revoked_admin_token_again_changes_nothing() -> None:
    async with fleet_on(MemoryStore(), ManualClock(TEN)) as fleet:
        token, _ = await fleet.tokens.create("ann", Role.ADMIN, by="test")
        await fleet.tokens.revoke(token.id, by="test", force=True)
        await fleet.tokens.revoke(token.id, by="test")


async def test_token_is_found_by_its_id_until_it_expires_or_is_revoked() -> None:
    store, wall = MemoryStore(), ManualClock(TEN)
    async with fleet_on(store, wall) as fleet:
        short, _ = await fleet.tokens.create("short", Role.VIEWER, by="ann", expires_at=TEN + HOUR)
        revoked, secret = await fleet.tokens.create("revoked", Role.VIEWER, by="ann")
        assert [fleet.tokens.find_by_id(id_) for id_ in (short.id, revoked.id, secret)] == [short, revoked, None]
        await fleet.tokens.revoke(revoked.id, by="ann")
        wall.set(TEN + HOUR)
        assert [fleet.tokens.find_by_id(id_) for id_ in (short.id, revoked.id)] == [None, None]
