"""Syntax of `expect`, and comparison of facts with expected facts."""

import re
from collections.abc import Iterable, Sequence

from forewarn.core.journal import EntryKind
from forewarn.core.text import join_choices
from forewarn.testing.scenario.commands import NOTHING
from forewarn.testing.scenario.lexer import Lexeme, LexemeType, is_label
from forewarn.testing.scenario.render import (
    CAMPAIGN_ENTRIES,
    GATE_ENTRIES,
    IMPACT_ENTRIES,
    VERBS,
    VM_ENTRIES,
    WAVE_ENTRIES,
)

FACT_WORD = LexemeType(
    "a fact",
    "for instance E1 Started, E1 on web-0 done, web disabled, kernel wave 1 of web settled, or nothing",
    lambda word: word.text,
)

WITHIN = "within"
ON = "on"

SCOPE_ENTRIES = {
    EntryKind.SCOPE_CREATED,
    EntryKind.SCOPE_CHANGED,
    EntryKind.SCOPE_REMOVED,
    EntryKind.ENABLED,
    EntryKind.DISABLED,
    EntryKind.HELD,
    EntryKind.RELEASED,
}
EVENT_ENTRIES = {
    EntryKind.SCHEDULED,
    EntryKind.ANNOUNCED,
    EntryKind.APPROVED,
    EntryKind.STARTED,
    EntryKind.SHRUNK,
    EntryKind.COMPLETED,
    EntryKind.CANCELED,
    EntryKind.FAILED,
}

_EVENT_FACT = re.compile(r"E\d+ ")
_TIMES = re.compile(r"(?:[+-]\d+d )?\d\d:\d\d(?::\d\d(?:\.\d+)?)?|(?<= after )\S+|(?<= lasting )\S+|, \S+ late")
_TIMES_AND_NUMBERS = re.compile(rf"{_TIMES.pattern}|, incarnation \d+")


def _verbs(kinds: Iterable[EntryKind]) -> list[str]:
    return list(dict.fromkeys(VERBS[kind] for kind in VERBS if kind in set(kinds)))


EVENT_VERBS = _verbs(EVENT_ENTRIES)
IMPACT_VERBS = _verbs(IMPACT_ENTRIES)
SCOPE_AND_VM_VERBS = _verbs(SCOPE_ENTRIES | VM_ENTRIES)
CAMPAIGN_VERBS = _verbs(CAMPAIGN_ENTRIES)
WAVE_VERBS = _verbs(WAVE_ENTRIES)
GATE_VERBS = _verbs(GATE_ENTRIES)
WAVE, GATE = "wave", "gate"


def check_expectation(words: Sequence[Lexeme]) -> tuple[Lexeme | None, str] | None:
    """Return the first word of an expectation that no fact can have there, and a message with what is allowed."""
    parts = [(word, text) for word in _fact_of(words) for text in word.text.split() or [""]]
    (_, subject), *rest = parts
    if subject == NOTHING:
        return (rest[0][0], f"{NOTHING} must be followed by {WITHIN}") if rest else None
    second = rest[0][1] if rest else ""
    if not is_label(subject) and second == WAVE:
        position, verbs = 5, WAVE_VERBS
    elif not is_label(subject) and second == GATE:
        position, verbs = 2, GATE_VERBS
    elif not is_label(subject):
        position, verbs = 1, [*SCOPE_AND_VM_VERBS, *CAMPAIGN_VERBS]
    elif second == ON:
        position, verbs = 3, IMPACT_VERBS
    else:
        position, verbs = 1, [*EVENT_VERBS, f"{ON} VM"]
    if len(parts) > position and parts[position][1] in {verb.partition(" ")[0] for verb in verbs} - {ON}:
        return None
    wrong_word = parts[position][0] if len(parts) > position else words[len(_fact_of(words))]
    return wrong_word, f"the verb of a fact is expected here: {join_choices(verbs)}"


def _fact_of(words: Sequence[Lexeme]) -> list[Lexeme]:
    texts = [None if word.quoted else word.text for word in words]
    return list(words[: texts.index(WITHIN)])


def matches_fact(expected: str, fact: str) -> bool:
    """Return whether a fact is the expected one or begins with it."""
    return fact == expected or (fact.startswith(expected) and fact[len(expected)] in " ,")


def is_event_fact(fact: str) -> bool:
    """Return whether a fact is about an event, not about a scope or a VM."""
    return _EVENT_FACT.match(fact) is not None


def facts_equal(facts: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether the facts are exactly the expected ones."""
    return list(facts) == list(expected)


def facts_equal_except_times(facts: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether the facts are the expected ones except for times, which differ in each run on a system clock."""
    return facts_equal(_remove_matches(_TIMES, facts), _remove_matches(_TIMES, expected))


def contains_expected_facts(facts: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether all expected facts are among the facts; a program under test may have caused more of them."""
    return set(_remove_matches(_TIMES_AND_NUMBERS, expected)) - {NOTHING} <= set(
        _remove_matches(_TIMES_AND_NUMBERS, facts)
    )


def _remove_matches(pattern: re.Pattern[str], facts: Sequence[str]) -> list[str]:
    return [pattern.sub("", fact) for fact in facts]
