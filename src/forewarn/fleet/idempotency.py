"""Idempotency across scopes: recognises repeated requests by their key, even if the scope has been removed since."""

from collections.abc import Callable

from forewarn.core.change import Change
from forewarn.core.errors import KeyConflict
from forewarn.core.idempotency import IdempotencyKey, apply_once, has_key
from forewarn.core.journal import EntryKind
from forewarn.core.limits import MAX_RECENT_AGE
from forewarn.core.scope import Scope
from forewarn.fleet.duty import no_guards
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes, guarded
from forewarn.store.port import Guards, JournalQuery, JournalRow, RecordKey, RecordKind, Store, StoreError

LIFECYCLE_KINDS = (EntryKind.SCOPE_CREATED, EntryKind.SCOPE_REMOVED)
"""The entries that begin and end a scope's life; their facts have the key of the request."""


class IdempotentScopes:
    """Applies rules once per idempotency key."""

    def __init__(self, scopes: Scopes, store: Store) -> None:
        self._scopes = scopes
        self._store = store

    async def apply(
        self,
        id_: str,
        rule: Callable[[Scope], Change[None]],
        idempotency_key: IdempotencyKey | None,
        guards: Callable[[], Guards] = no_guards,
    ) -> bool:
        """Apply a rule to a scope, unless this request was answered before; return whether it was applied."""
        self.check(idempotency_key, id_)
        try:
            return await self._scopes.apply(
                id_,
                lambda scope: guarded(apply_once(scope, idempotency_key, rule, now=self._scopes.clock.now()), guards()),
            )
        except ScopeNotFound:
            if await self.was_created_or_removed(id_, idempotency_key):
                return False
            raise

    def check(self, idempotency_key: IdempotencyKey | None, id_: str) -> None:
        """Refuse a key that another scope has answered."""
        if idempotency_key is not None and any(view.id != id_ for view in self._views_with_key(idempotency_key)):
            raise KeyConflict(idempotency_key.key)

    def scope_of(self, idempotency_key: IdempotencyKey | None) -> ScopeView | None:
        """Return the existing scope that has answered a request with this key, if there is one."""
        return next(iter(self._views_with_key(idempotency_key)), None) if idempotency_key is not None else None

    def _views_with_key(self, idempotency_key: IdempotencyKey) -> list[ScopeView]:
        return self._scopes.replica.views_with_key(
            idempotency_key.key, idempotency_key.caller, now=self._scopes.clock.now()
        )

    async def was_created_or_removed(self, id_: str | None, idempotency_key: IdempotencyKey | None) -> bool:
        """Return whether the request has created or removed this scope, or any scope, as far as keys are remembered."""
        if idempotency_key is None:
            return False
        since = self._scopes.clock.now() - MAX_RECENT_AGE
        rows = await self._rows(
            JournalQuery(
                key=None if id_ is None else RecordKey(RecordKind.SCOPE, id_),
                request=idempotency_key.key,
                kinds=LIFECYCLE_KINDS,
                since=since,
                newest_first=True,
            )
        )
        return any(row.entry.at > since and has_key(row.entry, idempotency_key) for row in rows)

    async def _rows(self, query: JournalQuery) -> list[JournalRow]:
        try:
            return await self._store.journal(query)
        except StoreError as error:
            raise SaveFailed(f"could not read whether the request was answered before: {error}") from error
