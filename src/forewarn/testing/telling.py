"""What a service has seen, for people who look for the reason of a failed test."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from forewarn.api import v1
from forewarn.api.errors import ApiError
from forewarn.core.journal import EntryKind
from forewarn.guest.observer import Observed
from forewarn.testing.errors import NotRunning
from forewarn.testing.service import Forewarn

LINES = 50
"""How many lines of a kind are told at the most, the newest."""

BEFORE_THE_TEST = frozenset({EntryKind.SCOPE_CREATED, EntryKind.TOKEN_CREATED})
"""What happens in every service before a test begins."""


def sections(service: Forewarn) -> Iterator[tuple[str, str]]:
    """Give what happened in a service, and what VMs asked of it, each with its heading."""
    yield "Forewarn: what happened", _newest(_history(service), "nothing")
    yield "Forewarn: what VMs asked", _newest([*_dropped(service), *_requests(service.newest_requests())], "nothing")


def _history(service: Forewarn) -> Sequence[str]:
    try:
        return [_entry(entry) for entry in service.api.history() if entry.did not in BEFORE_THE_TEST]
    except (ApiError, NotRunning) as error:
        return [f"the service cannot be asked any more: {error}"]


def _entry(entry: v1.JournalEntry) -> str:
    whom = f" {', '.join(entry.vms)}" if entry.vms else ""
    event = f" event {entry.event}" if entry.event is not None else ""
    why = f" ({entry.why})" if entry.why else ""
    return f"{entry.at:%H:%M:%S} {entry.record}{whom}:{event} {entry.did.value} by {entry.by}{why}"


def _dropped(service: Forewarn) -> list[str]:
    number = service.dropped_requests
    return [f"… {number} older requests were not remembered"] if number else []


def _requests(requests: Iterable[Observed]) -> list[str]:
    """Write requests; a poll that was repeated again and again takes one line."""
    lines = []
    for line, alike in groupby(requests, key=_request):
        first, *more = alike
        lines.append(f"{first.wall:%H:%M:%S} {line}" + (f" ({1 + len(more)} times)" if more else ""))
    return lines


def _request(request: Observed) -> str:
    answer = f"answered {request.status}" if request.status is not None else "not answered"
    approving = f" approving {', '.join(request.approved)}" if request.approved else ""
    return f"{request.vm} {request.method} {request.target}{approving}: {answer}"


def _newest(lines: Sequence[str], none: str) -> str:
    left_out = [f"… {len(lines) - LINES} lines before these"] if len(lines) > LINES else []
    return "\n".join([*left_out, *lines[-LINES:]]) or none
