"""What `expect` may say, and when a fact that is told is the one that was expected."""

import re
from collections.abc import Iterable, Sequence

from forewarn.core.journal import EntryKind
from forewarn.testing.scenario.commands import NOTHING
from forewarn.testing.scenario.telling import OF_IMPACTS, OF_VMS, VERBS
from forewarn.testing.scenario.words import Kind, Word, is_label, listed

FACT_WORD = Kind(
    "a fact",
    "what happens, as it is told: E1 Started, E1 on web-0 done, web disabled, or nothing",
    lambda word: word.text,
)

WITHIN = "within"
ON = "on"

OF_SCOPES = {
    EntryKind.SCOPE_CREATED,
    EntryKind.SCOPE_CHANGED,
    EntryKind.SCOPE_REMOVED,
    EntryKind.ENABLED,
    EntryKind.DISABLED,
    EntryKind.HELD,
    EntryKind.RELEASED,
}
OF_EVENTS = {
    EntryKind.SCHEDULED,
    EntryKind.ANNOUNCED,
    EntryKind.APPROVED,
    EntryKind.STARTED,
    EntryKind.SHRUNK,
    EntryKind.COMPLETED,
    EntryKind.CANCELED,
    EntryKind.FAILED,
}

_OF_EVENT = re.compile(r"E\d+ ")
_TIMES = re.compile(r"(?:[+-]\d+d )?\d\d:\d\d(?::\d\d(?:\.\d+)?)?|(?<= after )\S+|(?<= lasting )\S+|, \S+ late")
_TIMES_AND_NUMBERS = re.compile(rf"{_TIMES.pattern}|, incarnation \d+")


def _verbs(dids: Iterable[EntryKind]) -> list[str]:
    return list(dict.fromkeys(VERBS[did] for did in VERBS if did in set(dids)))


HAPPENS_TO_EVENTS = _verbs(OF_EVENTS)
HAPPENS_IN_WORK = _verbs(OF_IMPACTS)
HAPPENS_TO_OTHERS = _verbs(OF_SCOPES | OF_VMS)


def misspelt(words: Sequence[Word]) -> tuple[Word | None, str] | None:
    """Find the first word of an expectation that can be no part of a fact; say what may stand there."""
    parts = [(word, text) for word in _fact_of(words) for text in word.text.split() or [""]]
    (_, subject), *rest = parts
    if subject == NOTHING:
        return (rest[0][0], f"after {NOTHING} comes {WITHIN}") if rest else None
    if not is_label(subject):
        place, verbs = 1, HAPPENS_TO_OTHERS
    elif rest and rest[0][1] == ON:
        place, verbs = 3, HAPPENS_IN_WORK
    else:
        place, verbs = 1, [*HAPPENS_TO_EVENTS, f"{ON} VM"]
    if len(parts) > place and parts[place][1] in {verb.partition(" ")[0] for verb in verbs} - {ON}:
        return None
    wrong = parts[place][0] if len(parts) > place else words[len(_fact_of(words))]
    return wrong, f"what happens to it is expected here: {listed(verbs)}"


def _fact_of(words: Sequence[Word]) -> list[Word]:
    texts = [None if word.quoted else word.text for word in words]
    return list(words[: texts.index(WITHIN)])


def is_meant(said: str, told: str) -> bool:
    """Tell whether a fact is the one that was said, in full or as far as it was."""
    return told == said or (told.startswith(said) and told[len(said)] in " ,")


def is_of_event(told: str) -> bool:
    """Tell whether a fact is about an event, and not about a scope or a VM."""
    return _OF_EVENT.match(told) is not None


def agree(told: Sequence[str], expected: Sequence[str]) -> bool:
    """Tell whether exactly this was expected."""
    return list(told) == list(expected)


def agree_but_for_times(told: Sequence[str], expected: Sequence[str]) -> bool:
    """Tell whether this was expected, whenever it happened: in real time nothing happens twice at the same moment."""
    return agree(_without(_TIMES, told), _without(_TIMES, expected))


def agree_as_far_as_known(told: Sequence[str], expected: Sequence[str]) -> bool:
    """Tell whether all that was expected is there: a program that acts on its own may have done more by then."""
    return set(_without(_TIMES_AND_NUMBERS, expected)) - {NOTHING} <= set(_without(_TIMES_AND_NUMBERS, told))


def _without(what: re.Pattern[str], facts: Sequence[str]) -> list[str]:
    return [what.sub("", fact) for fact in facts]
