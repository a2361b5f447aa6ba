"""Which api-version to speak with a service: the newest that both know.

A service that does not know a version answers 404, or 400, and names the newest ones that it knows. Instance metadata
has many more versions than Scheduled Events, so what is named may be of no use here: known versions come first.
"""

import re

import msgspec

from forewarn.client.talk import Answer
from forewarn.wire.protocol import VERSIONS

EVENTS_NEWEST_FIRST = VERSIONS[::-1]

INSTANCE = "2017-08-01"
"""Old enough for every service that has instance metadata, and young enough to have the name in it."""

MOST_NAMED = 16
"""How many of the versions that a service names are tried."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class _Refusal(msgspec.Struct, rename="kebab"):
    newest_versions: list[str]


def named_versions(answer: Answer) -> tuple[str, ...] | None:
    """Return the versions that the service says it knows, newest first; None if it does not speak of versions."""
    try:
        named = msgspec.json.decode(answer.body, type=_Refusal).newest_versions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return tuple(sorted(filter(_DAY.fullmatch, named), reverse=True)[:MOST_NAMED])


def refuses_version(answer: Answer) -> bool:
    """Tell whether the answer may mean that the service does not know the api-version."""
    return answer.status == 404 or (answer.status == 400 and named_versions(answer) is not None)


def versions_to_try(known: tuple[str, ...], refused: str, answer: Answer) -> tuple[str, ...]:
    """Return the versions to speak after one was refused, the likeliest first.

    First those that both know; then all that this library knows, newest first; last what only the service knows, since
    a document of a version to come can most likely be read as well.
    """
    named = named_versions(answer) or ()
    both = [version for version in known if version in named]
    return tuple(version for version in dict.fromkeys([*both, *known, *named]) if version != refused)
