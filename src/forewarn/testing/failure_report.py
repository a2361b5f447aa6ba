"""Report sections for a failed test: the service's journal and the requests of VMs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from forewarn.api import v1
from forewarn.api.errors import ApiError
from forewarn.core.journal import EntryKind
from forewarn.guest.observer import Observed
from forewarn.testing.errors import NotRunning
from forewarn.testing.service import Forewarn

MAX_LINES = 50
"""The most lines that a section has: the newest ones."""

SETUP_ENTRIES = frozenset({EntryKind.SCOPE_CREATED, EntryKind.TOKEN_CREATED})
"""Entries that every service writes before a test begins; the report leaves them out."""


def report_sections(service: Forewarn) -> Iterator[tuple[str, str]]:
    """Yield heading and text of two sections: the service's journal and the requests of VMs."""
    yield "Forewarn: journal", _newest_lines(_journal_lines(service), "no entries")
    yield (
        "Forewarn: requests of VMs",
        _newest_lines([*_dropped_lines(service), *_request_lines(service.newest_requests())], "no requests"),
    )


def _journal_lines(service: Forewarn) -> Sequence[str]:
    try:
        return [_journal_line(entry) for entry in service.api.journal() if entry.action not in SETUP_ENTRIES]
    except (ApiError, NotRunning) as error:
        return [f"the journal could not be read: {error}"]


def _journal_line(entry: v1.JournalEntry) -> str:
    vms = f" {', '.join(entry.vms)}" if entry.vms else ""
    event = f" event {entry.event}" if entry.event is not None else ""
    why = f" ({entry.reason})" if entry.reason else ""
    return f"{entry.at:%H:%M:%S} {entry.record_id}{vms}:{event} {entry.action.value} by {entry.actor}{why}"


def _dropped_lines(service: Forewarn) -> list[str]:
    number = service.dropped_requests
    return [f"… {number} older requests were dropped"] if number else []


def _request_lines(requests: Iterable[Observed]) -> list[str]:
    """Return one line per request; equal requests in a row share a line."""
    lines = []
    for line, alike in groupby(requests, key=_request_line):
        first, *more = alike
        lines.append(f"{first.wall:%H:%M:%S} {line}" + (f" ({1 + len(more)} times)" if more else ""))
    return lines


def _request_line(request: Observed) -> str:
    answer = f"answered {request.status}" if request.status is not None else "not answered"
    approving = f" approving {', '.join(request.approved)}" if request.approved else ""
    return f"{request.vm} {request.method} {request.target}{approving}: {answer}"


def _newest_lines(lines: Sequence[str], empty_text: str) -> str:
    left_out = [f"… {len(lines) - MAX_LINES} earlier lines omitted"] if len(lines) > MAX_LINES else []
    return "\n".join([*left_out, *lines[-MAX_LINES:]]) or empty_text
