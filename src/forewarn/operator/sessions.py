"""Sessions of browsers in the dashboard, and the one-time codes of sign-in links.

Both are kept in memory only: a restart of the service ends all sessions. A session has the rights of its token, which
is looked up at each request, so a session ends when its token is revoked or expires.
"""

import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest

import msgspec

from forewarn.clock import Clock

IDLE_LIMIT = timedelta(hours=2)
"""A session ends after this time without a request of its user; updates of an open page do not count."""

AGE_LIMIT = timedelta(hours=12)
"""A session ends after this time in any case."""

SESSIONS_PER_TOKEN = 20
"""How many sessions a token can have; a further one ends the one that was not used for the longest time."""

CODE_LIMIT = timedelta(minutes=1)
"""How long the code of a sign-in link is valid."""

MAX_CODES = 16
"""How many codes can be valid at a time; a further one replaces the oldest."""


class Session(msgspec.Struct, kw_only=True):
    """A browser that has signed in with a token. `id` is public; the cookie has the secret."""

    id: str
    token: str
    csrf: str
    """The token that each change must repeat, so that only pages of the dashboard can make it."""
    address: str
    created_at: datetime
    used_at: datetime

    def ends_at(self) -> datetime:
        """Return when the session ends if it is not used again."""
        return min(self.used_at + IDLE_LIMIT, self.created_at + AGE_LIMIT)


class Sessions:
    """All sessions. `is_valid` returns whether the token with an id is still valid."""

    def __init__(self, clock: Clock, is_valid: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_valid = is_valid
        self._by_hash: dict[str, Session] = {}
        self._codes: dict[str, tuple[str, datetime]] = {}
        """The token and the end of each code, oldest first."""

    def create(self, token: str, *, address: str) -> tuple[Session, str]:
        """Create a session with the rights of a token; return it with the secret for the cookie."""
        now = self._clock.now()
        self._remove_ended()
        present = sorted(
            (pair for pair in self._by_hash.items() if pair[1].token == token), key=lambda pair: pair[1].used_at
        )
        for hash_, _ in present[: max(0, len(present) + 1 - SESSIONS_PER_TOKEN)]:
            del self._by_hash[hash_]
        secret = secrets.token_urlsafe(32)
        session = Session(
            id=secrets.token_hex(6),
            token=token,
            csrf=secrets.token_urlsafe(32),
            address=address,
            created_at=now,
            used_at=now,
        )
        self._by_hash[_hash(secret)] = session
        return session, secret

    def find(self, secret: str, *, is_background: bool = False) -> Session | None:
        """Return the session with this secret, if it has not ended; a background request does not prolong it."""
        hash_ = _hash(secret)
        session = self._by_hash.get(hash_)
        if session is None:
            return None
        now = self._clock.now()
        if now >= session.ends_at() or not self._is_valid(session.token):
            del self._by_hash[hash_]
            return None
        if not is_background:
            session.used_at = now
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session has not ended."""
        return session in self.all()

    def all(self) -> tuple[Session, ...]:
        """Return the sessions that have not ended, the oldest first."""
        self._remove_ended()
        return tuple(self._by_hash.values())

    def end(self, id_: str) -> None:
        """End a session, if it has not ended."""
        self._remove(session for session in self._by_hash.values() if session.id == id_)

    def create_code(self, token: str) -> str:
        """Return a code that signs in once, within a minute, with the rights of a token."""
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[_hash(code)] = token, self._clock.now() + CODE_LIMIT
        return code

    def redeem_code(self, code: str) -> str | None:
        """Return the token of a code, which is then used up; None if the code is unknown, used or too old."""
        token, ends_at = self._codes.pop(_hash(code), ("", None))
        return token if ends_at is not None and self._clock.now() < ends_at and self._is_valid(token) else None

    def _remove_ended(self) -> None:
        now = self._clock.now()
        self._remove(
            session
            for session in self._by_hash.values()
            if now >= session.ends_at() or not self._is_valid(session.token)
        )

    def _remove(self, ended: Iterator[Session]) -> None:
        ids = {session.id for session in ended}
        self._by_hash = {hash_: session for hash_, session in self._by_hash.items() if session.id not in ids}


def is_same_secret(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
