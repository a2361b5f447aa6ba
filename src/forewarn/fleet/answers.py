"""Requests that were answered before are found again wherever that is remembered, even where the scope is gone."""

from collections.abc import Callable

from forewarn.core.change import Change
from forewarn.core.errors import KeyConflict
from forewarn.core.idempotency import IdempotencyKey, apply_once, has_key
from forewarn.core.journal import EntryKind
from forewarn.core.limits import MAX_RECENT_AGE
from forewarn.core.scope import Scope
from forewarn.fleet.errors import NoSuchScope, NotSaved
from forewarn.fleet.replica import View
from forewarn.fleet.scopes import Scopes
from forewarn.store.port import JournalQuery, JournalRow, Key, Kind, Store, StoreError

LIVES = (EntryKind.SCOPE_CREATED, EntryKind.SCOPE_REMOVED)
"""With these a scope's life begins and ends: their facts say which request it was."""


class Answers:
    """Applies rules once per request."""

    def __init__(self, scopes: Scopes, store: Store) -> None:
        self._scopes = scopes
        self._store = store

    async def apply(self, id_: str, rule: Callable[[Scope], Change[None]], asked: IdempotencyKey | None) -> bool:
        """Apply a rule to a scope, unless this request was answered before; tell whether it was applied."""
        self.check(asked, id_)
        try:
            return await self._scopes.apply(
                id_, lambda scope: apply_once(scope, asked, rule, now=self._scopes.clock.now())
            )
        except NoSuchScope:
            if await self.began_or_ended(id_, asked):
                return False
            raise

    def check(self, asked: IdempotencyKey | None, id_: str) -> None:
        """Refuse a key under which another scope has answered."""
        if asked is not None and any(view.id != id_ for view in self._answered(asked)):
            raise KeyConflict(asked.key)

    def home(self, asked: IdempotencyKey | None) -> View | None:
        """Return the scope that has answered a request of this key, if one that exists has."""
        return next(iter(self._answered(asked)), None) if asked is not None else None

    def _answered(self, asked: IdempotencyKey) -> list[View]:
        return self._scopes.replica.answered(asked.key, now=self._scopes.clock.now())

    async def began_or_ended(self, id_: str | None, asked: IdempotencyKey | None) -> bool:
        """Tell whether the request has made or removed the scope, or any scope, within the time that is remembered."""
        if asked is None:
            return False
        since = self._scopes.clock.now() - MAX_RECENT_AGE
        rows = await self._rows(
            JournalQuery(
                key=None if id_ is None else Key(Kind.SCOPE, id_),
                request=asked.key,
                dids=LIVES,
                since=since,
                newest_first=True,
            )
        )
        return any(row.entry.at > since and has_key(row.entry, asked) for row in rows)

    async def _rows(self, query: JournalQuery) -> list[JournalRow]:
        try:
            return await self._store.journal(query)
        except StoreError as error:
            raise NotSaved(f"whether it was asked before cannot be read: {error}") from error
