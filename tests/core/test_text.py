"""Names, keys and texts: which are accepted, and how longer ones are shortened."""

import json
import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.errors import Invalid
from forewarn.core.limits import (
    MAX_KEY_LENGTH,
    MAX_NAME_LENGTH,
    MAX_TEXT_LENGTH,
)
from forewarn.core.text import (
    CONTROL_CLASS,
    check_key,
    check_name,
    check_text,
    count_text,
    escape_controls,
    escape_json,
    is_guid,
    join_choices,
    natural_sort_key,
    tail_text,
    truncate_text,
)


@pytest.mark.parametrize(
    ("text", "short"),
    [("plain", "plain"), ('a "b"\n\\c', "a  b   c"), ("x" * 20, "x" * 10), ("ü" * 10, "üüü…")],
    ids=["plain", "unprintable", "long", "many bytes"],
)
def test_external_texts_are_cut_to_printable_bytes(text: str, short: str) -> None:
    assert truncate_text(text, 10) == short


NAMES = {
    "a": True,
    "Web-0.1_b": True,
    "0": True,
    "n" * MAX_NAME_LENGTH: True,
    "": False,
    "n" * (MAX_NAME_LENGTH + 1): False,
    ".a": False,
    "_a": False,
    "a b": False,
    "a/b": False,
    "a\n": False,
    "ä": False,
}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_name_has_letters_digits_and_a_few_signs(name: str) -> None:
    if NAMES[name]:
        check_name(name, "scope")
    else:
        with pytest.raises(Invalid, match=rf"^scope {re.escape(repr(name))}"):
            check_name(name, "scope")


def test_text_has_a_limit_in_characters() -> None:
    check_text("ü" * MAX_TEXT_LENGTH, "reason")
    with pytest.raises(Invalid, match=rf"^reason\b.*\b{MAX_TEXT_LENGTH + 1}\b.*\b{MAX_TEXT_LENGTH}\b"):
        check_text("x" * (MAX_TEXT_LENGTH + 1), "reason")


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"], ids=ascii)
def test_text_with_half_a_surrogate_pair_is_refused(text: str) -> None:
    """No encoder can write it, so no store could save it."""
    with pytest.raises(UnicodeEncodeError):
        text.encode()
    with pytest.raises(Invalid, match=r"^reason "):
        check_text(text, "reason")


def test_guid_has_its_usual_form_in_any_case() -> None:
    guid = "01234567-89ab-cdef-0123-456789ABCDEF"
    wrong = (guid[:-1], guid + "0", f"{{{guid}}}", guid.replace("-", ""), guid.replace("a", "g"), f"{guid}\n", "")
    assert is_guid(guid)
    assert [text for text in wrong if is_guid(text)] == []


@pytest.mark.parametrize("key", ["k", "!~", "k" * MAX_KEY_LENGTH, "a#b'c[d]"])
def test_request_key_may_have_any_printable_character_that_json_does_not_escape(key: str) -> None:
    check_key(key)
    assert msgspec.json.encode(key) == f'"{key}"'.encode()


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("", ""),
        ("one\ntwo\n\n", "one\ntwo"),
        ("a\tb\x00c  \r\nd", "a b c\nd"),
        ("0123456789abc", "3456789abc"),
        ("x\n" * 20, "x\nx\nx\nx\nx"),
        ("ü" * 10, "…üüü"),
    ],
    ids=["empty", "blank lines at the end", "unprintable", "long", "many lines", "many bytes"],
)
def test_output_of_a_program_is_cut_to_the_end_of_it(text: str, tail: str) -> None:
    assert tail_text(text, 10) == tail
    assert len(tail.encode()) <= 10


def test_output_with_half_a_surrogate_pair_can_be_saved() -> None:
    assert tail_text("a\udc00b").encode() == b"a b"


def test_choices_are_joined_as_in_a_sentence() -> None:
    assert [join_choices(words) for words in (("a",), ("a", "b"), ("a", "b", "c"))] == ["a", "a or b", "a, b or c"]


def test_names_are_sorted_by_the_numbers_in_them() -> None:
    names = ["web-10", "Web-2", "web-2", "db", "web-1", "10", "9"]
    assert sorted(names, key=natural_sort_key) == ["9", "10", "db", "web-1", "Web-2", "web-2", "web-10"]


@given(st.text(max_size=30))
def test_escaped_text_is_one_line_without_control_characters(text: str) -> None:
    escaped = escape_controls(text)
    assert len(escaped.splitlines()) <= 1
    assert not [char for char in escaped if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    assert (escaped == text) is not any(map(re.compile(CONTROL_CLASS).fullmatch, text))


def test_escape_sequences_are_those_of_python() -> None:
    assert escape_controls("a\tb\n\x1b[2J\x9b\u202ec\\nä") == r"a\tb\n\x1b[2J\x9b\u202ec\nä"


@given(st.text(max_size=30))
def test_escaped_json_has_the_same_value(text: str) -> None:
    escaped = escape_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(escaped) == text
    assert not re.search(CONTROL_CLASS, escaped)


@pytest.mark.parametrize(("number", "text"), [(0, "0 VMs"), (1, "1 VM"), (2, "2 VMs")])
def test_noun_of_a_number_is_in_the_plural_unless_there_is_one(number: int, text: str) -> None:
    assert count_text(number, "VM") == text
