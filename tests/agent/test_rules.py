"""The rules that choose the handlers of an event: the first matching rule wins."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from forewarn.agent.rules import RuleMatch, choose_handlers, matches
from forewarn.agent.settings import AgentSettings, ExecSettings, LogHandlerSettings, NotifySettings, Rule
from forewarn.client.document import Event, Status
from forewarn.core.event import EventType, Source

EVENT = Event(
    id="602D9444-D2CD-49C7-8624-8643E7171297",
    status=Status.SCHEDULED,
    type=EventType.REBOOT,
    resources=("web_0",),
    source=Source.PLATFORM,
    duration=timedelta(seconds=9),
    description="Host server is undergoing\nmaintenance.",
)
HANDLERS = (ExecSettings(name="own"), LogHandlerSettings(name="log"), NotifySettings(name="people"))


def rule(**said: Any) -> Rule:
    return Rule(handlers=("own",), **said)


def settings(*rules: Rule) -> AgentSettings:
    return AgentSettings(handlers=HANDLERS, rules=rules)


MATCHES: dict[str, tuple[Rule, dict[str, Any], bool]] = {
    "rule without conditions matches": (rule(), {}, True),
    "type": (rule(types=(EventType.REBOOT,)), {}, True),
    "one of several types": (rule(types=(EventType.FREEZE, EventType.REBOOT)), {}, True),
    "another type": (rule(types=(EventType.FREEZE,)), {}, False),
    "unknown type": (rule(types=(EventType.REBOOT,)), {"type": "Hibernate"}, False),
    "rule without conditions matches an unknown type": (rule(), {"type": "Hibernate"}, True),
    "source": (rule(sources=(Source.PLATFORM,)), {}, True),
    "another source": (rule(sources=(Source.USER,)), {}, False),
    "no source": (rule(sources=(Source.PLATFORM,)), {"source": None}, False),
    "exactly at_most": (rule(at_most=timedelta(seconds=9)), {}, True),
    "too long": (rule(at_most=timedelta(seconds=8)), {}, False),
    "exactly at_least": (rule(at_least=timedelta(seconds=9)), {}, True),
    "too short": (rule(at_least=timedelta(seconds=10)), {}, False),
    "unknown duration satisfies at_least": (rule(at_least=timedelta(hours=1)), {"duration": None}, True),
    "unknown duration does not satisfy at_most": (rule(at_most=timedelta(hours=1)), {"duration": None}, False),
    "zero duration": (rule(at_most=timedelta(0)), {"duration": timedelta(0)}, True),
    "pattern is case-insensitive": (rule(description="*MAINTENANCE*"), {}, True),
    "pattern must match the whole description": (rule(description="maintenance"), {}, False),
    "no description": (rule(description="*"), {"description": None}, False),
    "all conditions must hold": (rule(types=(EventType.REBOOT,), sources=(Source.USER,)), {}, False),
}


@pytest.mark.parametrize(("rule", "facts", "is_match"), MATCHES.values(), ids=MATCHES)
def test_rule_matches(rule: Rule, facts: dict[str, Any], is_match: bool) -> None:
    assert matches(rule, msgspec.structs.replace(EVENT, **facts)) is is_match


def test_first_match_wins() -> None:
    first = Rule(types=(EventType.FREEZE,), handlers=("log",))
    second = Rule(types=(EventType.REBOOT,), handlers=("own", "log"))
    third = Rule(handlers=("people",))
    assert choose_handlers(settings(first, second, third), EVENT) == RuleMatch(handlers=("own", "log"), rule=1)
    assert choose_handlers(settings(third, second), EVENT) == RuleMatch(handlers=("people",), rule=0)


def test_rule_may_choose_no_handlers() -> None:
    assert choose_handlers(settings(Rule(handlers=()), rule()), EVENT) == RuleMatch(handlers=(), rule=0)


def test_event_without_matching_rule_gets_notify_only_handlers() -> None:
    only_told = RuleMatch(handlers=("log", "people"), rule=None)
    assert choose_handlers(settings(), EVENT) == only_told
    assert choose_handlers(settings(rule(types=(EventType.FREEZE,))), EVENT) == only_told
