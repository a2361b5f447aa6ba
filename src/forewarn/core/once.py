"""Doing what is asked once, however often it is asked: a request's key, and what a record remembers of it."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.errors import Invalid, KeyReused
from forewarn.core.journal import REQUEST_KEY, Entry
from forewarn.core.limits import DIGEST_LENGTH, RECENT_AGE, RECENT_ITEMS
from forewarn.core.scope import Answered, Scope
from forewarn.core.text import check_key


class Once(msgspec.Struct, frozen=True):
    """A request's key, and a digest that stands for all that it asks: another request with this key is noticed."""

    key: str
    digest: str

    def __post_init__(self) -> None:
        check_key(self.key)
        if len(self.digest) > DIGEST_LENGTH or not self.digest.isascii():
            raise Invalid(f"a digest is at most {DIGEST_LENGTH} ASCII characters")


def once(scope: Scope, asked: Once | None, rule: Callable[[Scope], Change[None]], *, now: datetime) -> Change[bool]:
    """Apply the rule unless the scope has answered this request before; tell whether it was applied.

    The key is saved with what the rule changes. Where it removes the scope, the last journal entry keeps the key.
    """
    if asked is not None and was_answered(scope.answered, asked, now=max(now, scope.changed_at)):
        return Change(scope, (), False)
    change = rule(scope)
    if asked is None:
        return Change(change.scope, change.entries, True)
    if change.scope is None:
        return Change(None, signed(change.entries, asked), True)
    draft = Draft(change.scope, now)
    draft.remember(asked.key, "", asked.digest)
    return Change(draft.finish(None).scope, change.entries, True)


def was_answered(answered: Sequence[Answered], asked: Once, *, now: datetime) -> bool:
    """Tell whether the request is among those answered; refuse it where its key stands for another one."""
    found = next((item for item in answered if item.key == asked.key and item.at > now - RECENT_AGE), None)
    if found is not None and found.digest != asked.digest:
        raise KeyReused(asked.key)
    return found is not None


def remembered(answered: Sequence[Answered], asked: Once | None, *, now: datetime) -> tuple[Answered, ...]:
    """Return what is remembered once the request is answered: no more and no longer than a scope does."""
    kept = tuple(item for item in answered if item.at > now - RECENT_AGE)
    new = () if asked is None else (Answered(key=asked.key, request="", at=now, digest=asked.digest),)
    return (*kept, *new)[-RECENT_ITEMS:]


DIGEST = "digest"
"""The fact, beside the request's key, that stands for all that it asked."""


def signed(entries: tuple[Entry, ...], asked: Once) -> tuple[Entry, ...]:
    """Return the entries with the request in the facts of the last one."""
    *others, last = entries
    facts = {**last.facts, REQUEST_KEY: asked.key, DIGEST: asked.digest}
    return (*others, msgspec.structs.replace(last, facts=facts))


def is_signed(entry: Entry, asked: Once) -> bool:
    """Tell whether the entry is the work of this request; refuse the request where its key stands for another one."""
    if entry.facts.get(REQUEST_KEY) != asked.key:
        return False
    if entry.facts.get(DIGEST) != asked.digest:
        raise KeyReused(asked.key)
    return True
