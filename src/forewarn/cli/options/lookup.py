"""Look up an event by its id or by a unique prefix of it."""

import re
from itertools import islice

from forewarn.api.client import ApiClient
from forewarn.cli.errors import CliError, ExitCode

MIN_PREFIX_LENGTH = 4
"""A shorter prefix of an id is probably a mistake."""

MAX_JOURNAL_LINES = 2_000
"""How many journal entries are searched for an ended event."""

_FULL_ID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_ID_PREFIX = re.compile(r"[0-9A-F][0-9A-F-]*")


def is_full_id(text: str) -> bool:
    """Return whether the text is a whole id."""
    return _FULL_ID.fullmatch(text.upper()) is not None


def find_event(api: ApiClient, id_prefix: str) -> str:
    """Return the id of the event with this id prefix. Open events take precedence over ended ones."""
    wanted = id_prefix.upper()
    if is_full_id(wanted):
        return wanted
    if len(wanted) < MIN_PREFIX_LENGTH or not _ID_PREFIX.fullmatch(wanted):
        raise CliError(
            ExitCode.USAGE,
            f"EVENT: {id_prefix} is not the id of an event; specify at least {MIN_PREFIX_LENGTH} characters "
            "(digits and A to F) of an id from `forewarn event list`",
        )
    found = {event.id for event in api.events() if event.id.startswith(wanted)} or _ended_events(api, wanted)
    if len(found) > 1:
        raise CliError(ExitCode.USAGE, f"EVENT: {id_prefix} is ambiguous: {' or '.join(sorted(found))}")
    if not found:
        raise CliError(ExitCode.NOT_FOUND, f"unknown event: {id_prefix}…; `forewarn event list` shows the open events")
    return found.pop()


def _ended_events(api: ApiClient, wanted: str) -> set[str]:
    lines = islice(api.journal(newest_first=True), MAX_JOURNAL_LINES)
    return {line.event for line in lines if line.event is not None and line.event.startswith(wanted)}
