"""The lexer of the scenario language: words of a line, and how each type of word is read."""

from datetime import timedelta

import pytest

from forewarn.core.errors import CoreError
from forewarn.core.fault import FaultKind
from forewarn.testing.scenario import lexer
from forewarn.testing.scenario.lexer import (
    Lexeme,
    LexemeType,
    ScenarioError,
    closest_match,
    is_label,
    one_of,
    split_line,
    time_text,
)


def test_line_is_split_into_words_with_their_columns() -> None:
    assert split_line('at +1d 10:15  say "two words" → E1', 3) == [
        Lexeme("at", 1, 3),
        Lexeme("+1d 10:15", 4, 13),
        Lexeme("say", 15, 18),
        Lexeme("two words", 19, 30, quoted=True),
        Lexeme("→", 31, 32),
        Lexeme("E1", 33, 35),
    ]
    assert split_line("  ", 1) == []


def test_quotation_mark_that_is_not_closed_is_refused_with_its_place() -> None:
    with pytest.raises(ScenarioError) as refused:
        split_line('say "two words', 3)
    assert (refused.value.line, refused.value.column, refused.value.word) == (3, 5, '"two words')
    assert str(ScenarioError("no", line=1, column=2)).startswith("line 1, column 2: ")


HOUR = timedelta(hours=1)
READ: list[tuple[LexemeType, str, object]] = [
    (lexer.TIME, "10:15", 10.25 * HOUR),
    (lexer.TIME, "+1d 10:15", 34.25 * HOUR),
    (lexer.TIME, "-1d 00:00:00.5", -24 * HOUR + timedelta(seconds=0.5)),
    (lexer.DURATION, "1h30m", 1.5 * HOUR),
    (lexer.DURATION_OR_NEVER, "never", None),
    (lexer.NAME, "web-0", "web-0"),
    (lexer.HOST, "unknown", None),
    (lexer.VM, "web/web-0", "web/web-0"),
    (lexer.EVENT, "E12", "E12"),
    (lexer.WHOLE_NUMBER, "60", 60),
    (lexer.NUMBER, "0.5", 0.5),
    (lexer.LIMIT, "10%", "10%"),
    (lexer.WINDOW, "22:00-04:00", (22 * HOUR, 4 * HOUR)),
    (lexer.FAULT, "410", FaultKind.STATUS_410),
    (lexer.AMOUNT, "-1h", -HOUR),
]
REFUSED: list[tuple[LexemeType, str]] = [
    (lexer.TIME, "24:00"),
    (lexer.TIME, "10:60"),
    (lexer.TIME, "10"),
    (lexer.DURATION, "never"),
    (lexer.NAME, "a/b"),
    (lexer.VM, "a/b/c"),
    (lexer.EVENT, "E0"),
    (lexer.WHOLE_NUMBER, "-1"),
    (lexer.NUMBER, "1e3"),
    (lexer.LIMIT, "0"),
    (lexer.WINDOW, "22:00"),
    (lexer.FAULT, "404"),
    (lexer.EVENT_TYPE, "reboot"),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ, ids=[text for _, text, _ in READ])
def test_word_of_the_type_is_read(kind: LexemeType, text: str, value: object) -> None:
    assert kind.read(Lexeme(text, 1, 2)) == value
    assert kind.accepts(Lexeme(text, 1, 2))


@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_word_of_another_type_is_refused(kind: LexemeType, text: str) -> None:
    assert not kind.accepts(Lexeme(text, 1, 2))
    with pytest.raises(CoreError):
        kind.read(Lexeme(text, 1, 2))


def test_quoted_word_is_no_keyword_and_no_time() -> None:
    assert not one_of("a word", ["on", "off"]).accepts(Lexeme("on", 1, 2, quoted=True))
    assert not lexer.TIME.accepts(Lexeme("10:15", 1, 2, quoted=True))
    assert lexer.EVENT.accepts(Lexeme("any text", 1, 2, quoted=True))


@pytest.mark.parametrize("text", ["10:15", "10:15:30", "10:15:30.25", "+1d 00:00", "-2d 23:59:59"])
def test_time_is_written_as_it_is_read(text: str) -> None:
    value = lexer.TIME.read(Lexeme(text, 1, 2))
    assert isinstance(value, timedelta)
    assert time_text(value) == text


def test_misspelt_word_has_a_closest_match() -> None:
    assert closest_match("shedule", ["schedule", "cancel"]) == "schedule"
    assert closest_match("xyz", ["schedule", "cancel"]) is None
    assert [text for text in ("E1", "E999999", "E0", "e1", "E1x") if is_label(text)] == ["E1", "E999999"]
