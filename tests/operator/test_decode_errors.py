"""Decoder errors in plain words."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from forewarn.operator.decode_errors import plain_message, with_choices


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct):
    colour: Colour | None = None
    size: Literal["s", "m"] = "s"


class Outer(msgspec.Struct):
    inner: Inner | None = None
    many: list[Inner] = []
    by_name: dict[str, list[Colour]] = {}


def complaint(type_: Any, value: object) -> str:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, type_)
    return str(refused.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"inner": {"colour": "green"}}, "inner.colour: 'green' is not one of red and blue"),
        ({"many": [{}, {"size": "xl"}]}, "many[1].size: 'xl' is not one of m and s"),
        ({"by_name": {"a": ["red", "pink"]}}, "by_name[...][1]: 'pink' is not one of red and blue"),
    ],
)
def test_invalid_value_is_reported_with_the_allowed_ones(value: object, message: str) -> None:
    assert with_choices(complaint(Outer, value), Outer) == message


def test_word_that_is_the_whole_value_has_no_place() -> None:
    assert with_choices(complaint(Colour, "green"), Colour) == "'green' is not one of red and blue"
    assert with_choices("Invalid enum value 'green'", list[Colour]) == "'green' is not one of red and blue"


def test_only_word_that_is_allowed_is_named_alone() -> None:
    assert with_choices("Invalid enum value 'x'", Literal["y"]) == "only y is allowed"


@pytest.mark.parametrize("message", ["Expected `int`, got `str`", "Invalid enum value 'x' - at `$.unknown`"])
def test_other_complaint_stays_as_it_is(message: str) -> None:
    assert with_choices(message, Outer) == message


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("Expected `str` of length >= 1 - at `$.name`", "name is empty"),
        ("scope: Expected `str` of length >= 1", "scope: must not be empty"),
        ("Expected `str` of length <= 512 - at `$.reason`", "reason is longer than 512 characters"),
        ("Idempotency-Key: Expected `str` of length <= 64", "Idempotency-Key: "),
        ("Object missing required field `vms`", "Object missing required field `vms`"),
    ],
)
def test_message_of_the_decoder_is_in_plain_words(message: str, word: str) -> None:
    assert plain_message(message).startswith(word)
    assert "Expected `str`" not in plain_message(message)


class Bounded(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    share: Annotated[float, msgspec.Meta(ge=0.5)] = 1.0
    many: Annotated[list[int], msgspec.Meta(max_length=2)] = []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"number": 0}, "number: must be at least 1"),
        ({"number": 1001}, "number: must be at most 1000"),
        ({"share": 0.1}, "share: must be at least 0.5"),
        ({"many": [1, 2, 3]}, "many: at most 2 items are allowed"),
    ],
)
def test_value_outside_its_bounds_is_reported_with_its_field(value: object, message: str) -> None:
    assert plain_message(complaint(Bounded, value)) == message
