"""Lists, a page at a time."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from forewarn.core.scope import Scope
from forewarn.fleet.replica import Replica
from forewarn.operator.access import Caller

T = TypeVar("T")


def scopes_from(replica: Replica, only: str | None, first: str, caller: Caller) -> Iterator[Scope]:
    """Give one scope, or all that the caller may see by their ids from `first` on."""
    if only is not None:
        caller.check(only)
        yield replica.scope(only)
        return
    ids = sorted(view.id for view in replica.views() if caller.sees(view.id))
    for id_ in ids[bisect_left(ids, first) :]:
        yield replica.scope(id_)


def page_of(rest: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """Return the first of the rest, and whether there are more."""
    found = list(islice(rest, limit + 1))
    return found[:limit], len(found) > limit
