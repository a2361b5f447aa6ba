"""API types that are derived from structs of the core: a key is declared only once."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from forewarn.api.v1.common import Request, Response
from forewarn.api.v1.derived_types import DerivedTypes
from forewarn.core.campaign.spec import Limit
from forewarn.core.duration import duration_range
from forewarn.core.errors import Invalid

MOMENT = datetime(2026, 12, 24, 12, tzinfo=UTC)


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A nested struct."""

    pause: timedelta = timedelta(seconds=10)
    url: str

    def __post_init__(self) -> None:
        if " " in self.url:
            raise Invalid(f"{self.url!r} has a space")


class Whole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored struct of the core."""

    gap: Annotated[timedelta, duration_range(timedelta(0), timedelta(1)), Meta(description="Between two.")] = timedelta(
        minutes=30
    )
    most: Limit | None = None
    parts: Annotated[tuple[Part, ...], Meta(max_length=2)] = ()
    gate: Annotated[str | Part | None, Meta(description="Asked before each.")] = None
    at: datetime | None = None
    tags: dict[str, str] = {}
    after: Annotated[int, Meta(ge=1, le=9)] | None = 1


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A duration with bounds and other metadata."""

    gap: Annotated[
        timedelta,
        duration_range(timedelta(0), timedelta(1)),
        Meta(description="Between two.", examples=["5m"]),
        Meta(extra_json_schema={"deprecated": True}),
    ] = timedelta(minutes=30)


class Undescribed(msgspec.Struct, frozen=True, kw_only=True):
    """A duration with bounds and no description."""

    gap: Annotated[timedelta, duration_range(timedelta(0), timedelta(1))] = timedelta(minutes=30)


class Wider(Whole, frozen=True, kw_only=True):
    """The same with one more key, as a later version could have."""

    settle_for: timedelta = timedelta(hours=1)


NAMES: dict[type[msgspec.Struct], str] = {Part: "PartType", Whole: "WholeType", Wider: "WiderType"}
REQUESTS, RESPONSES = DerivedTypes(Request, NAMES, {}), DerivedTypes(Response, NAMES, {})

FULL = Whole(
    gap=timedelta(hours=1),
    most=Limit(percent=12.5),
    parts=(Part(url="a"), Part(url="b", pause=timedelta(seconds=1))),
    gate=Part(url="c"),
    at=MOMENT,
    tags={"team": "web"},
    after=None,
)
WRITTEN = {
    "gap": "1h",
    "most": "12.5%",
    "parts": [{"url": "a", "pause": "10s"}, {"url": "b", "pause": "1s"}],
    "gate": {"url": "c", "pause": "10s"},
    "at": "2026-12-24T12:00:00Z",
    "tags": {"team": "web"},
    "after": None,
}
DEFAULTS: dict[str, object] = {
    "gap": "30m",
    "most": None,
    "parts": [],
    "gate": None,
    "at": None,
    "tags": {},
    "after": 1,
}


def request(content: dict[str, object]) -> Whole:
    return REQUESTS.read(Whole, msgspec.convert(content, REQUESTS.derive(Whole)))


@pytest.mark.parametrize(("value", "written"), [(FULL, WRITTEN), (Whole(), DEFAULTS)], ids=["full", "defaults"])
def test_round_trip_keeps_every_key(value: Whole, written: dict[str, object]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(RESPONSES.write(value))) == written
    assert request(written) == value


def test_omitted_keys_of_a_request_have_the_defaults_of_the_core() -> None:
    assert request({}) == Whole()


def test_new_key_of_the_core_is_in_every_type_automatically() -> None:
    value = Wider(settle_for=timedelta(minutes=2))
    written = msgspec.to_builtins(RESPONSES.write(value))
    assert written["settle_for"] == "2m"
    assert REQUESTS.read(Wider, msgspec.convert(written, REQUESTS.derive(Wider))) == value
    assert REQUESTS.derive(Wider)().settle_for == "1h"


def test_keys_without_default_come_first() -> None:
    assert REQUESTS.derive(Part).__struct_fields__ == ("url", "pause")


def test_request_refuses_a_key_that_a_response_may_have() -> None:
    content = {**WRITTEN, "gate": {"url": "c", "colour": "red"}}
    with pytest.raises(msgspec.ValidationError, match=r"unknown field `colour` - at `\$.gate`"):
        msgspec.convert(content, REQUESTS.derive(Whole))
    assert msgspec.convert(content, RESPONSES.derive(Whole)).gate.url == "c"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"gap": "36501d"}, "gap: '36501d' is too long"),
        ({"most": "0%"}, "most: a limit in percent must be above 0"),
        ({"parts": [{"url": "a"}, {"url": "a b"}]}, r"parts\[1\]: 'a b' has a space"),
        ({"gate": {"url": "c", "pause": "36501d"}}, "gate.pause: '36501d' is too long"),
        ({"at": "0001-01-01T00:00:00+01:00"}, r"at: 0001-01-01T00:00:00\+01:00 is outside the range of UTC"),
    ],
)
def test_error_names_the_path_of_an_invalid_value(content: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        request(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"gap": "soon"}, r"- at `\$.gap`"),
        ({"most": 0}, r"- at `\$.most`"),
        ({"parts": [{"url": "a"}] * 3}, r"length <= 2 - at `\$.parts`"),
        ({"after": 10}, r"<= 9 - at `\$.after`"),
        ({"at": "2026-12-24T12:00:00"}, r"timezone component - at `\$.at`"),
    ],
)
def test_malformed_value_is_refused_with_its_path(content: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        request(content)


def test_times_are_converted_to_utc() -> None:
    read = request({"at": "2026-12-24T14:00:00+02:00"})
    assert read.at == MOMENT
    assert read.at is not None
    assert read.at.tzinfo == UTC


def test_schema_has_bounds_defaults_and_descriptions_of_the_core() -> None:
    _, schemas = msgspec.json.schema_components((REQUESTS.derive(Whole),))
    properties = schemas["WholeType"]["properties"]
    assert properties["gap"]["description"] == "Between two. Allowed: 0s to 1d."
    assert properties["gap"]["default"] == "30m"
    assert properties["parts"]["maxItems"] == 2
    assert schemas["WholeType"]["description"] == "A stored struct of the core."
    assert [each.get("type") for each in properties["most"]["anyOf"]] == ["integer", "string", "null"]
    assert schemas["PartType"]["additionalProperties"] is False


def test_ambiguous_union_is_refused() -> None:
    class Other(msgspec.Struct):
        value: timedelta | Limit

    with pytest.raises(TypeError, match="JSON cannot tell apart"):
        DerivedTypes(Request, {Other: "OtherType"}, {}).derive(Other)


def test_omitted_fields_of_a_change_are_not_read() -> None:
    class Change(Request, frozen=True):
        """A request with some of the fields, and an additional one."""

        gap: str | msgspec.UnsetType | None = msgspec.UNSET
        most: str | int | msgspec.UnsetType | None = msgspec.UNSET
        reason: str = ""

    assert REQUESTS.read_fields(Whole, Change(most="10%")) == {"most": Limit(percent=10)}
    assert REQUESTS.read_fields(Whole, Change(most=None, gap="5m")) == {"most": None, "gap": timedelta(minutes=5)}


def test_change_can_omit_every_field() -> None:
    changes = DerivedTypes(Request, NAMES, {}, is_change=True)
    change = msgspec.convert({"most": "10%", "gate": None}, changes.derive(Whole))
    assert changes.read_fields(Whole, change) == {"most": Limit(percent=10), "gate": None}


@pytest.mark.parametrize("is_change", [False, True])
def test_descriptions_can_be_left_out_except_for_the_bounds_of_durations(is_change: bool) -> None:
    """JSON schema has no other place for these bounds."""
    undescribed = DerivedTypes(Request, NAMES, {}, is_change=is_change, has_descriptions=False)
    _, schemas = msgspec.json.schema_components((undescribed.derive(Whole),))
    properties = schemas["WholeType"]["properties"]
    assert properties["gap"]["description"] == "Allowed: 0s to 1d."
    assert "description" not in properties["gate"]
    assert properties["parts"]["maxItems"] == 2


def test_type_gets_the_fields_that_it_does_not_declare() -> None:
    @RESPONSES.with_fields_of(Part)
    class Shown(Response, frozen=True):
        """A response with a field of its own."""

        name: str
        url: str | None

    assert msgspec.to_builtins(msgspec.convert({"name": "a", "url": None}, Shown)) == {
        "name": "a",
        "url": None,
        "pause": "10s",
    }
    assert (Shown.__name__, Shown.__doc__) == ("Shown", "A response with a field of its own.")


def test_bounds_of_a_duration_are_added_to_its_description() -> None:
    derived = DerivedTypes(Response, {Described: "DescribedType"}, {}).derive(Described)
    gap = msgspec.json.schema(derived)["$defs"]["DescribedType"]["properties"]["gap"]
    assert {key: gap[key] for key in ("description", "examples", "deprecated")} == {
        "description": "Between two. Allowed: 0s to 1d.",
        "examples": ["5m"],
        "deprecated": True,
    }


def test_duration_with_bounds_requires_a_description() -> None:
    with pytest.raises(TypeError):
        DerivedTypes(Response, {Undescribed: "UndescribedType"}, {}).derive(Undescribed)
