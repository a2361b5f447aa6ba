"""Which event is meant: by its id, or by as much of it as tells it from others."""

import re
from itertools import islice

from forewarn.api.client import ApiClient
from forewarn.cli.exits import Exit, Stop

LEAST = 4
"""Fewer characters than this are hardly meant as the beginning of an id."""

LINES = 2_000
"""How far back in the journal an event is looked for that has ended."""

_WHOLE = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_BEGINNING = re.compile(r"[0-9A-F][0-9A-F-]*")


def find_event(api: ApiClient, said: str) -> str:
    """Return the id of the event that is meant. Open ones come before ended ones."""
    wanted = said.upper()
    if _WHOLE.fullmatch(wanted):
        return wanted
    if len(wanted) < LEAST or not _BEGINNING.fullmatch(wanted):
        raise Stop(
            Exit.USAGE,
            f"{said} is no event: give its id as `forewarn event list` shows it, "
            f"at least {LEAST} characters, which are digits and A to F",
        )
    found = {event.id for event in api.events() if event.id.startswith(wanted)} or _recent(api, wanted)
    if len(found) > 1:
        raise Stop(Exit.USAGE, f"{said} is the beginning of several events: {' or '.join(sorted(found))}")
    if not found:
        raise Stop(Exit.NOT_FOUND, f"there is no event {said}…; `forewarn event list` shows those that are open")
    return found.pop()


def _recent(api: ApiClient, wanted: str) -> set[str]:
    lines = islice(api.history(newest_first=True), LINES)
    return {line.event for line in lines if line.event is not None and line.event.startswith(wanted)}
