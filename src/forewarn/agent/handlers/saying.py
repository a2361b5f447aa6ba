"""What is said of an errand, and templates in which it is said: `$type of $name`."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from string import Template
from urllib.parse import quote

import msgspec

from forewarn.agent.handlers.port import Errand
from forewarn.agent.settings import SAYABLE

Fact = str | int | bool | list[str] | None


def facts(errand: Errand, now: datetime) -> dict[str, Fact]:
    """Return what is known; None where it is not. Times are ISO 8601 in UTC, durations are seconds."""
    event, left = errand.event, errand.time_left(now)
    said: dict[str, Fact] = {
        "id": event.id,
        "type": str(event.type),
        "status": str(event.status),
        "source": None if event.source is None else str(event.source),
        "description": event.description,
        "not_before": None if event.not_before is None else f"{event.not_before.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "duration": None if event.duration is None else -(-event.duration // timedelta(seconds=1)),
        "resources": list(event.resources),
        "name": errand.name,
        "phase": errand.phase.value,
        "attempt": errand.attempt,
        "seconds_left": None if left is None else left // timedelta(seconds=1),
        "leader": errand.is_leader,
    }
    return {name: said[name] for name in SAYABLE}


def filled(template: str, said: Mapping[str, Fact], written: Callable[[str], str] = str) -> str:
    """Fill a template; `written` makes each fact fit the place at which it stands."""
    return Template(template).safe_substitute({name: written(_text(fact)) for name, fact in said.items()})


def written_for(content_type: str) -> Callable[[str], str]:
    """Return how facts are written in a body of this type, so that none of them can break out of its place."""
    kind = content_type.partition(";")[0].strip().casefold()
    if kind == "application/x-www-form-urlencoded":
        return lambda text: quote(text, safe="")
    if kind == "application/json" or kind.endswith("+json"):
        return lambda text: msgspec.json.encode(text).decode()[1:-1]
    return str


def _text(fact: Fact) -> str:
    match fact:
        case None:
            return "unknown"
        case bool():
            return "yes" if fact else "no"
        case list():
            return ", ".join(fact)
        case _:
            return str(fact)
