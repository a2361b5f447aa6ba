"""Lexer of the scenario language: split a line into words, and read each type of word.

Times are offsets from midnight of the scenario's first day, so that a backend can run it on any day."""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from difflib import get_close_matches
from typing import NamedTuple

from forewarn.core.base_error import BaseError
from forewarn.core.campaign.spec import Limit
from forewarn.core.duration import parse_duration
from forewarn.core.errors import CoreError, Invalid
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind, parse_fault_kind, parse_signed_duration
from forewarn.core.text import check_name, is_guid, join_choices

_WORD = re.compile(r'"(?P<text>[^"]*)"|(?P<days>[+-]\d+d)\s+(?P<time>\d\S*)|(?P<open>".*)|\S+')
_TIME = re.compile(
    r"(?:(?P<days>[+-]\d{1,4})d )?(?P<h>\d{1,2}):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?"
)
_LABEL = re.compile(r"E[1-9]\d{0,5}")

ARROWS = ("→", "->")
DAY = timedelta(days=1)


class ScenarioError(BaseError):
    """A scenario is invalid or cannot be run: the problem and its position. Lines and columns count from 1."""

    template = "line {line}, column {column}{at}: {problem}"
    problem: str
    line: int
    column: int
    word: str = ""

    @property
    def at(self) -> str:
        """The wrong word, if the problem is one word."""
        return f", at {self.word!r}" if self.word else ""


class Lexeme(NamedTuple):
    """One word of a line, without its quotes, with its first column and the column after its last."""

    text: str
    column: int
    end: int
    quoted: bool = False


def split_line(line: str, number: int) -> list[Lexeme]:
    """Split a line into words; an arrow is a word, too."""
    words = []
    for found in _WORD.finditer(line):
        column, end = found.start() + 1, found.end() + 1
        if found["open"] is not None:
            raise ScenarioError("the quotation mark is not closed", line=number, column=column, word=found[0])
        if found["days"] is not None:
            words.append(Lexeme(f"{found['days']} {found['time']}", column, end))
        elif found["text"] is not None:
            words.append(Lexeme(found["text"], column, end, quoted=True))
        else:
            words.append(Lexeme(found[0], column, end))
    return words


class LexemeType(NamedTuple):
    """A type of word: its label, the allowed values, and the function that reads it, which may raise a CoreError.

    `choices` are the allowed words if there are only a few.
    """

    label: str
    allowed: str
    read: Callable[[Lexeme], object]
    choices: tuple[str, ...] = ()

    def accepts(self, word: Lexeme) -> bool:
        """Return whether a word is of this type."""
        try:
            self.read(word)
        except CoreError:
            return False
        return True


def time_text(time: timedelta) -> str:
    """Write a time of the scenario in the form that the lexer reads."""
    days, rest = divmod(time, DAY)
    seconds, fraction = divmod(rest, timedelta(seconds=1))
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or fraction:
        text += f":{seconds % 60:02}"
    if fraction:
        text += f".{fraction.microseconds:06}".rstrip("0")
    return f"{days:+}d {text}" if days else text


def _time(word: Lexeme) -> timedelta:
    found = _TIME.fullmatch(word.text)
    if found is None or word.quoted:
        raise Invalid("not a time")
    hours, minutes, seconds = int(found["h"]), int(found["m"]), int(found["s"] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise Invalid("not a time of day")
    microseconds = int((found["fraction"] or "").ljust(6, "0"))
    return timedelta(
        days=int(found["days"] or 0), hours=hours, minutes=minutes, seconds=seconds, microseconds=microseconds
    )


def _duration(word: Lexeme) -> timedelta:
    return parse_duration(word.text)


def _duration_or_never(word: Lexeme) -> timedelta | None:
    return None if word.text == "never" else parse_duration(word.text)


def _name(word: Lexeme) -> str:
    check_name(word.text, "name")
    return word.text


def _host(word: Lexeme) -> str | None:
    return None if word.text == "unknown" else _name(word)


def _vm(word: Lexeme) -> str:
    scope, slash, name = word.text.rpartition("/")
    if slash:
        check_name(scope, "scope")
    check_name(name, "VM")
    return word.text


def _event(word: Lexeme) -> str:
    if not (word.quoted or is_label(word.text) or is_guid(word.text)):
        raise Invalid("not an event")
    return word.text


def _whole_number(word: Lexeme) -> int:
    if not re.fullmatch(r"\d{1,6}", word.text):
        raise Invalid("not a whole number")
    return int(word.text)


def _number(word: Lexeme) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", word.text):
        raise Invalid("not a number")
    return float(word.text)


def _limit(word: Lexeme) -> str:
    return str(Limit.parse(word.text))


def _window(word: Lexeme) -> tuple[timedelta, timedelta]:
    start, dash, end = word.text.partition("-")
    if not dash:
        raise Invalid("not a window")
    return tuple(_time(Lexeme(text, word.column, word.end)) for text in (start, end))  # type: ignore[return-value]  # two


def _fault(word: Lexeme) -> FaultKind:
    return parse_fault_kind(word.text)


def _amount(word: Lexeme) -> timedelta:
    return parse_signed_duration(word.text)


def is_label(text: str) -> bool:
    """Return whether the text is the label of an event: E1, E2, … in order of appearance."""
    return _LABEL.fullmatch(text) is not None


def one_of(what: str, choices: Iterable[str]) -> LexemeType:
    """Return the type of a word that is one of a few choices."""
    known = {str(choice): choice for choice in choices}

    def read(word: Lexeme) -> object:
        if word.quoted or word.text not in known:
            raise Invalid(f"not {what}")
        return known[word.text]

    return LexemeType(what, join_choices(known), read, tuple(known))


def closest_match(text: str, words: Iterable[str], *, min_similarity: float = 0.6) -> str | None:
    """Return the word most similar to a misspelt one, or None."""
    known = {word.casefold(): word for word in words}
    found = get_close_matches(text.casefold(), known, n=1, cutoff=min_similarity)
    return known[found[0]] if found else None


TIME = LexemeType("a time of day", "for instance 10:15 or 10:15:30, on a later day +1d 10:15", _time)
DURATION = LexemeType("a duration", "for instance 90s, 15m, 1h30m or 2d", _duration)
DURATION_OR_NEVER = LexemeType("a duration", "for instance 90s, 15m, 1h30m or 2d, or never", _duration_or_never)
NAME = LexemeType("a name", "letters, digits, '.', '_', '-', beginning with a letter or digit", _name)
HOST = LexemeType("a host", "its name, or unknown", _host)
VM = LexemeType("a VM", "its name, or scope/name", _vm)
EVENT = LexemeType("an event", "E1, E2, … in order of appearance, an id, or a quoted text", _event)
WHOLE_NUMBER = LexemeType("a whole number", "for instance 0 or 60", _whole_number)
NUMBER = LexemeType("a number", "for instance 60 or 0.5", _number)
LIMIT = LexemeType("a limit", "a number such as 10, or a percentage such as 10%", _limit)
WINDOW = LexemeType("a window", "from one time of day to another, for instance 22:00-04:00", _window)
TEXT = LexemeType("a text", 'a word, or a text in "quotation marks"', lambda word: word.text)
EVENT_TYPE = one_of("an event type", EventType)
FAULT = LexemeType("a fault", f"{join_choices(FaultKind)}, a status also by its number", _fault)
AMOUNT = LexemeType("a duration", "for instance 5s, 2m or 1h; for a date in the past, -1h", _amount)
