"""Message templates such as `$type of $name`: the available facts, and escaping by content type."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from string import Template
from urllib.parse import quote

import msgspec

from forewarn.agent.handlers.base import HandlerContext
from forewarn.agent.settings import TEMPLATE_FIELDS

Fact = str | int | bool | list[str] | None


def template_facts(context: HandlerContext, now: datetime) -> dict[str, Fact]:
    """Return the facts of a context; None for unknown ones. Times are ISO 8601 in UTC, durations are seconds."""
    event, left = context.event, context.time_left(now)
    values: dict[str, Fact] = {
        "id": event.id,
        "type": str(event.type),
        "status": str(event.status),
        "source": None if event.source is None else str(event.source),
        "description": event.description,
        "not_before": None if event.not_before is None else f"{event.not_before.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "duration": None if event.duration is None else -(-event.duration // timedelta(seconds=1)),
        "resources": list(event.resources),
        "name": context.name,
        "phase": context.phase.value,
        "attempt": context.attempt,
        "seconds_left": None if left is None else left // timedelta(seconds=1),
        "leader": context.is_leader,
    }
    return {name: values[name] for name in TEMPLATE_FIELDS}


def fill_template(template: str, values: Mapping[str, Fact], escape: Callable[[str], str] = str) -> str:
    """Fill a template; `escape` is applied to each fact."""
    return Template(template).safe_substitute({name: escape(_text(fact)) for name, fact in values.items()})


def escape_for(content_type: str) -> Callable[[str], str]:
    """Return the escape function for a content type, so that no fact can break the syntax of the body."""
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
