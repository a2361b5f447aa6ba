"""API tokens of people and programs for the operator API. Only hashes of their secrets are stored."""

import asyncio
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest

import msgspec

from forewarn.clock import Clock
from forewarn.core.access import SCOPE_PATTERN, Role
from forewarn.core.errors import Invalid, ResourceExists
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import SeenKey
from forewarn.core.text import check_name, truncate_text
from forewarn.fleet.errors import LastToken, SecretUnavailable, TokenNotFound
from forewarn.fleet.main_loop import Decision, MainLoop, RecordChange, RecordCodec, RecordTable
from forewarn.fleet.registry import Registry
from forewarn.store.port import NO_GUARDS, Guards, RecordKind

MAX_TOKENS = 1_000
"""How many valid tokens there can be."""

RESERVED_NAMES = frozenset({"campaigns", "clock", "guest", "platform", "restore"})
"""Names of the service's own parts in the journal; a token cannot have one."""

MAX_PATTERNS = 64
_PATTERN = re.compile(SCOPE_PATTERN)


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token with role, scopes and expiry. `scopes` are names or patterns such as `web-*`; empty means all."""

    id: str
    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    seen_keys: tuple[SeenKey, ...] = msgspec.field(default=(), name="answered")
    calendar: str = ""
    """The hash of the secret in the address of its calendar; empty if it has none."""
    entries: int = 1
    """How many entries of the journal it had before it was revoked."""

    def __post_init__(self) -> None:
        check_name(self.name, "token")
        if len(self.scopes) > MAX_PATTERNS:
            raise Invalid(f"a token can have at most {MAX_PATTERNS} scopes: use patterns such as web-*")
        for pattern in self.scopes:
            if not _PATTERN.fullmatch(pattern):
                raise Invalid(f"{pattern!r} is neither the name of a scope nor a pattern such as web-*")

    def is_valid(self, *, now: datetime) -> bool:
        """Return whether it is neither expired nor revoked."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def can_manage_tokens(self, *, now: datetime) -> bool:
        """Return whether it is a valid admin token for all scopes; a limited one cannot manage tokens."""
        return self.role is Role.ADMIN and not self.scopes and self.is_valid(now=now)


class Tokens:
    """All tokens as last saved. Their times are those of the wall clock, independent of the fleet's clock."""

    def __init__(self, main_loop: MainLoop, registry: Registry, *, clock: Clock, wall_clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self.wall_clock = wall_clock
        self._tokens = RecordTable[Token]()
        self._by_hash: dict[str, Token] = {}
        self._by_calendar: dict[str, Token] = {}
        self._name_lock = asyncio.Lock()
        """Held while a name is checked and saved; between processes the registry does the same."""
        self._loop = main_loop.add(RecordCodec(RecordKind.TOKEN, _encode, _decode), self._tokens, [self._observe])

    def all(self) -> tuple[Token, ...]:
        """Return every token, including expired and revoked ones, the oldest first."""
        return tuple(sorted(self._tokens.values(), key=lambda token: (token.created_at, token.id)))

    def find(self, secret: str) -> Token | None:
        """Return the token with this secret; None if it is unknown, revoked or expired."""
        hash_ = _hash(secret)
        token = self._by_hash.get(hash_)
        if token is None or not compare_digest(token.hash, hash_) or not token.is_valid(now=self.wall_clock.now()):
            return None
        return token

    def find_by_id(self, id_: str) -> Token | None:
        """Return the token with this id; None if it is unknown, revoked or expired."""
        token, _ = self._tokens.newest(id_)
        return token if token is not None and token.is_valid(now=self.wall_clock.now()) else None

    def find_by_calendar(self, secret: str) -> Token | None:
        """Return the token whose calendar has this secret; None if it is unknown, revoked or expired."""
        hash_ = _hash(secret)
        token = self._by_calendar.get(hash_)
        if token is None or not compare_digest(token.calendar, hash_) or not token.is_valid(now=self.wall_clock.now()):
            return None
        return token

    async def create(
        self,
        name: str,
        role: Role,
        scopes: tuple[str, ...] = (),
        *,
        by: str,
        expires_at: datetime | None = None,
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[Token, str]:
        """Create a token and return it with its secret, which cannot be shown again."""

        async def create(guards: Callable[[], Guards]) -> tuple[Token, str]:
            now = self.wall_clock.now()
            self._check_new(name, expires_at, idempotency_key, now=now)
            secret = f"fw_{secrets.token_urlsafe(32)}"
            token = Token(
                id=_token_id(secret),
                name=name,
                role=role,
                scopes=scopes,
                hash=_hash(secret),
                created_at=now,
                created_by=by,
                expires_at=expires_at,
                seen_keys=add_seen_key((), idempotency_key, now=now),
            )
            await self._loop.apply(token.id, lambda present: self._create_record(present, token, guards(), by=by))
            return token, secret

        async with self._name_lock:
            return await self._registry.run(create)

    def _check_new(
        self, name: str, expires_at: datetime | None, idempotency_key: IdempotencyKey | None, *, now: datetime
    ) -> None:
        for token in self.all() if idempotency_key is not None else ():
            if idempotency_key is not None and is_repeated_request(token.seen_keys, idempotency_key, now=now):
                raise SecretUnavailable(token.id, token.name)
        if expires_at is not None and expires_at <= now:
            raise Invalid(f"expires_at {expires_at:%Y-%m-%d %H:%M:%SZ} is in the past: the token would never be valid")
        if name.casefold() in RESERVED_NAMES:
            raise Invalid(f"token {name!r}: the journal uses this name for a part of the service; choose another name")
        in_use = self._names_in_use()
        if name.casefold() in in_use:
            raise ResourceExists(f"a token {name}")
        if len(in_use) >= MAX_TOKENS:
            raise Invalid(f"the limit of {MAX_TOKENS} tokens is reached: revoke those that are not needed")

    async def adopt(self, secret: str, *, name: str = "admin", by: str) -> None:
        """Create the token of the token file's secret. If it was revoked, it stays revoked."""

        async def create(guards: Callable[[], Guards]) -> None:
            if self._tokens.newest(_token_id(secret))[0] is not None:
                return
            token = Token(
                id=_token_id(secret),
                name=self._free_name(name),
                role=Role.ADMIN,
                hash=_hash(secret),
                created_at=self.wall_clock.now(),
                created_by=by,
            )
            await self._loop.apply(token.id, lambda present: self._create_record(present, token, guards(), by=by))

        async with self._name_lock:
            await self._registry.run(create)

    async def revoke(
        self, id_: str, *, by: str, why: str = "", force: bool = False, idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """Revoke a token, immediately and permanently; the last one that can manage tokens only by force."""

        def command(token: Token | None) -> Decision[Token, None]:
            if token is None:
                raise TokenNotFound(id_)
            now = self.wall_clock.now()
            is_repeated = idempotency_key is not None and is_repeated_request(token.seen_keys, idempotency_key, now=now)
            if token.revoked_at is not None or is_repeated:
                return Decision(token, (), None)
            guards = NO_GUARDS
            if not force and token.can_manage_tokens(now=now):
                other = self._find_other_admin(token, now=now)
                if other is None:
                    raise LastToken(token.id, token.name)
                guards = self._loop.guards(other.id)  # two admins that revoke each other: the second one is refused
            revoked = msgspec.structs.replace(
                token, revoked_at=now, seen_keys=add_seen_key(token.seen_keys, idempotency_key, now=now)
            )
            entry = self._entry(token.entries + 1, EntryKind.TOKEN_REVOKED, token, by=by, why=why)
            return Decision(revoked, (entry,), None, guards)

        await self._loop.apply(id_, command)

    async def create_calendar(self, id_: str, *, by: str, idempotency_key: IdempotencyKey | None = None) -> str:
        """Give the calendar of a token a new secret, which replaces the former one, and return it."""
        secret = f"fwc_{secrets.token_urlsafe(32)}"

        def command(token: Token | None) -> Decision[Token, None]:
            now = self.wall_clock.now()
            if token is None or not token.is_valid(now=now):
                raise TokenNotFound(id_)
            if idempotency_key is not None and is_repeated_request(token.seen_keys, idempotency_key, now=now):
                raise SecretUnavailable(token.id, token.name)
            return self._change_calendar(token, _hash(secret), EntryKind.CALENDAR_CREATED, by, idempotency_key)

        await self._loop.apply(id_, command)
        return secret

    async def revoke_calendar(self, id_: str, *, by: str, idempotency_key: IdempotencyKey | None = None) -> None:
        """Revoke the secret of a token's calendar, if it has one."""

        def command(token: Token | None) -> Decision[Token, None]:
            if token is None:
                raise TokenNotFound(id_)
            now = self.wall_clock.now()
            is_repeated = idempotency_key is not None and is_repeated_request(token.seen_keys, idempotency_key, now=now)
            if not token.calendar or token.revoked_at is not None or is_repeated:
                return Decision(token, (), None)
            return self._change_calendar(token, "", EntryKind.CALENDAR_REVOKED, by, idempotency_key)

        await self._loop.apply(id_, command)

    def _change_calendar(
        self, token: Token, hash_: str, kind: EntryKind, by: str, idempotency_key: IdempotencyKey | None
    ) -> Decision[Token, None]:
        seen = add_seen_key(token.seen_keys, idempotency_key, now=self.wall_clock.now())
        changed = msgspec.structs.replace(token, calendar=hash_, entries=token.entries + 1, seen_keys=seen)
        return Decision(changed, (self._entry(changed.entries, kind, token, by=by),), None)

    def _find_other_admin(self, token: Token, *, now: datetime) -> Token | None:
        others = (other for other in self._tokens.values() if other.id != token.id)
        return next((other for other in others if other.can_manage_tokens(now=now)), None)

    async def keep_revoked(self, revoked: Token, *, by: str, why: str) -> None:
        """Revoke a token that other data of this service names as revoked, also if it is unknown here."""

        def command(token: Token | None) -> Decision[Token, None]:
            if token is not None and token.revoked_at is not None:
                return Decision(token, (), None)
            kept = msgspec.structs.replace(token or revoked, revoked_at=revoked.revoked_at)
            entry = self._entry(kept.entries + 1, EntryKind.TOKEN_REVOKED, kept, by=by, why=why)
            return Decision(kept, (entry,), None)

        await self._loop.apply(revoked.id, command)

    def _observe(self, change: RecordChange[Token]) -> None:
        """Update the indexes by secret."""
        if change.before is not None:
            self._by_hash.pop(change.before.hash, None)
            self._by_calendar.pop(change.before.calendar, None)
        token, _ = self._tokens.newest(change.id)
        if token is not None:
            self._by_hash[token.hash] = token
            if token.calendar:
                self._by_calendar[token.calendar] = token

    def _names_in_use(self) -> set[str]:
        """Return the names of valid tokens, which must be unique, because the journal identifies holders by name."""
        now = self.wall_clock.now()
        return {token.name.casefold() for token in self.all() if token.is_valid(now=now)}

    def _free_name(self, name: str) -> str:
        in_use = self._names_in_use()
        numbered = (name if n == 1 else f"{name}-{n}" for n in range(1, len(in_use) + 2))
        return next(name for name in numbered if name.casefold() not in in_use)

    def _create_record(self, present: Token | None, token: Token, guards: Guards, *, by: str) -> Decision[Token, None]:
        if present is not None:
            return Decision(present, (), None)
        return Decision(token, (self._entry(1, EntryKind.TOKEN_CREATED, token, by=by),), None, guards)

    def _entry(self, n: int, entry_kind: EntryKind, token: Token, *, by: str, why: str = "") -> Entry:
        facts = {"name": token.name, "role": token.role.value}
        if token.scopes:
            facts["scopes"] = " ".join(token.scopes)
        return Entry(n=n, at=self._clock.now(), kind=entry_kind, by=by, why=truncate_text(why), facts=facts)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Token).decode


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token_id(secret: str) -> str:
    """Return a public id that is derived from the secret and does not reveal it."""
    return f"tk_{sha256(b'id ' + secret.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
