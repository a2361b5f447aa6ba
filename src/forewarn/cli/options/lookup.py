"""Look up an event by its id or by a unique prefix of it."""

import re
from itertools import islice

from forewarn.api.client import ApiClient
from forewarn.cli.errors import CliError, ExitCode

MIN_PREFIX_LENGTH = 4
"""Fewer characters than this are hardly meant as the beginning of an id."""

MAX_JOURNAL_LINES = 2_000
"""How far back in the journal an event is looked for that has ended."""

_FULL_ID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_ID_PREFIX = re.compile(r"[0-9A-F][0-9A-F-]*")


def find_event(api: ApiClient, id_prefix: str) -> str:
    """Return the id of the event that is meant. Open ones come before ended ones."""
    wanted = id_prefix.upper()
    if _FULL_ID.fullmatch(wanted):
        return wanted
    if len(wanted) < MIN_PREFIX_LENGTH or not _ID_PREFIX.fullmatch(wanted):
        raise CliError(
            ExitCode.USAGE,
            f"invalid event ID: {id_prefix}; give it as `forewarn event list` shows it, "
            f"at least {MIN_PREFIX_LENGTH} characters, which are digits and A to F",
        )
    found = {event.id for event in api.events() if event.id.startswith(wanted)} or _ended_events(api, wanted)
    if len(found) > 1:
        raise CliError(ExitCode.USAGE, f"{id_prefix} is the beginning of several events: {' or '.join(sorted(found))}")
    if not found:
        raise CliError(
            ExitCode.NOT_FOUND, f"unknown event: {id_prefix}…; `forewarn event list` shows those that are open"
        )
    return found.pop()


def _ended_events(api: ApiClient, wanted: str) -> set[str]:
    lines = islice(api.journal(newest_first=True), MAX_JOURNAL_LINES)
    return {line.event for line in lines if line.event is not None and line.event.startswith(wanted)}
