"""Idempotency keys: recognise a repeated request, so that it has an effect only once."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.errors import Invalid, KeyConflict
from forewarn.core.journal import REQUEST_KEY, Entry
from forewarn.core.limits import DIGEST_LENGTH, MAX_CALLER_LENGTH, MAX_RECENT_AGE, MAX_RECENT_ITEMS
from forewarn.core.scope import Scope, SeenKey
from forewarn.core.text import check_key

T = TypeVar("T")


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A request's idempotency key, and a digest of the request that detects a different request with the same key.

    Keys belong to their caller: `caller` is the id of its token, and the keys of two callers are independent.
    """

    key: str
    digest: str
    caller: str = ""

    def __post_init__(self) -> None:
        check_key(self.key)
        if len(self.digest) > DIGEST_LENGTH or not self.digest.isascii():
            raise Invalid(f"a digest is at most {DIGEST_LENGTH} ASCII characters")
        if len(self.caller) > MAX_CALLER_LENGTH or not self.caller.isascii():
            raise Invalid(f"a caller is at most {MAX_CALLER_LENGTH} ASCII characters")


def apply_once(
    scope: Scope, idempotency_key: IdempotencyKey | None, rule: Callable[[Scope], Change[None]], *, now: datetime
) -> Change[bool]:
    """Apply the rule unless the scope has already answered this request; return whether it was applied.

    The key is saved together with the change. If the rule removes the scope, the last journal entry keeps the key.
    """
    if idempotency_key is not None and is_repeated_request(
        scope.seen_keys, idempotency_key, now=max(now, scope.changed_at)
    ):
        return Change(scope, (), False)
    change = rule(scope)
    if idempotency_key is None:
        return Change(change.scope, change.entries, True)
    if change.scope is None:
        return Change(None, attach_key(change.entries, idempotency_key), True)
    draft = Draft(change.scope, now)
    draft.remember_key(idempotency_key.key, "", idempotency_key.digest, idempotency_key.caller)
    return Change(draft.finish(None).scope, change.entries, True)


def is_repeated_request(seen_keys: Sequence[SeenKey], idempotency_key: IdempotencyKey, *, now: datetime) -> bool:
    """Return whether the request was answered before; raise KeyConflict if its key was used for another request."""
    found = next(
        (
            item
            for item in seen_keys
            if item.belongs_to(idempotency_key.key, idempotency_key.caller) and item.at > now - MAX_RECENT_AGE
        ),
        None,
    )
    if found is not None and found.digest != idempotency_key.digest:
        raise KeyConflict(idempotency_key.key)
    return found is not None


def add_seen_key(
    seen_keys: Sequence[SeenKey], idempotency_key: IdempotencyKey | None, *, now: datetime
) -> tuple[SeenKey, ...]:
    """Return the remembered keys with this one added, within the same limits of number and age as in a scope."""
    kept = tuple(item for item in seen_keys if item.at > now - MAX_RECENT_AGE)
    new = (
        ()
        if idempotency_key is None
        else (
            SeenKey(
                key=idempotency_key.key,
                request="",
                at=now,
                digest=idempotency_key.digest,
                caller=idempotency_key.caller,
            ),
        )
    )
    return (*kept, *new)[-MAX_RECENT_ITEMS:]


MAX_RESULTS = 256
"""How many results a memory keeps."""


class ResultMemory(Generic[T]):
    """The results of the last requests by their idempotency keys, for changes that are stored nowhere."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], tuple[str, T]] = {}

    def find(self, idempotency_key: IdempotencyKey | None) -> T | None:
        """Return the result of an earlier request; raise KeyConflict if its key was used for another request."""
        if idempotency_key is None:
            return None
        digest, result = self._results.get((idempotency_key.caller, idempotency_key.key), (None, None))
        if digest is not None and digest != idempotency_key.digest:
            raise KeyConflict(idempotency_key.key)
        return result

    def add(self, idempotency_key: IdempotencyKey | None, result: T) -> None:
        """Remember the result of a request, and forget the oldest one if there are too many."""
        if idempotency_key is not None:
            self._results[idempotency_key.caller, idempotency_key.key] = (idempotency_key.digest, result)
            if len(self._results) > MAX_RESULTS:
                del self._results[next(iter(self._results))]


REQUEST_DIGEST = "digest"
"""The fact, next to the request's key, that has the digest of the request."""

REQUEST_CALLER = "caller"
"""The fact, next to the request's key, that has the token of the caller; older entries have none."""

REQUEST_FACTS = frozenset({REQUEST_KEY, REQUEST_DIGEST, REQUEST_CALLER})
"""The facts that identify repeated requests: readers of the journal need not see them."""


def attach_key(entries: tuple[Entry, ...], idempotency_key: IdempotencyKey) -> tuple[Entry, ...]:
    """Return the entries, with key, digest and caller of the request in the facts of the last one."""
    *others, last = entries
    facts = {**last.facts, REQUEST_KEY: idempotency_key.key, REQUEST_DIGEST: idempotency_key.digest}
    if idempotency_key.caller:
        facts[REQUEST_CALLER] = idempotency_key.caller
    return (*others, msgspec.structs.replace(last, facts=facts))


def has_key(entry: Entry, idempotency_key: IdempotencyKey) -> bool:
    """Return whether this request wrote the entry; raise KeyConflict if its key was used for another request."""
    if entry.facts.get(REQUEST_KEY) != idempotency_key.key:
        return False
    if entry.facts.get(REQUEST_CALLER, idempotency_key.caller) != idempotency_key.caller:
        return False
    if entry.facts.get(REQUEST_DIGEST) != idempotency_key.digest:
        raise KeyConflict(idempotency_key.key)
    return True
