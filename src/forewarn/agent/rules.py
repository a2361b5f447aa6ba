"""Rules that choose the handlers of an event: the first matching rule wins. Pure."""

import re
from datetime import timedelta
from fnmatch import translate

import msgspec

from forewarn.agent.settings import AgentSettings, Rule
from forewarn.client.document import Event


class RuleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers of an event, and the index of the rule that chose them; None if no rule matched."""

    handlers: tuple[str, ...]
    rule: int | None = None


def choose_handlers(settings: AgentSettings, event: Event) -> RuleMatch:
    """Return the handlers of the first rule that matches; if none does, the notify-only handlers."""
    for number, rule in enumerate(settings.rules):
        if matches(rule, event):
            return RuleMatch(handlers=rule.handlers, rule=number)
    return RuleMatch(handlers=tuple(each.name for each in settings.handlers if each.is_notify_only))


def matches(rule: Rule, event: Event) -> bool:
    """Return whether an event meets all conditions of a rule."""
    return (
        _is_among(event.type, rule.types)
        and _is_among(event.source, rule.sources)
        and _matches_description(event.description, rule.description)
        and _matches_duration(event.duration, rule.at_least, rule.at_most)
    )


def _is_among(value: str | None, allowed: tuple[str, ...]) -> bool:
    return not allowed or value in allowed


def _matches_description(description: str | None, pattern: str | None) -> bool:
    """Match case-insensitively and across line breaks. An event without description matches no pattern."""
    if pattern is None:
        return True
    return description is not None and re.fullmatch(translate(pattern.casefold()), description.casefold()) is not None


def _matches_duration(duration: timedelta | None, least: timedelta | None, most: timedelta | None) -> bool:
    """Compare the duration. An unknown duration satisfies any `at_least` and no `at_most`."""
    if duration is None:
        return most is None
    return (least is None or duration >= least) and (most is None or duration <= most)
