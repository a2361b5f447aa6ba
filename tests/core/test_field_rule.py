"""Bounds in the metadata of fields are rules, also when code creates a value."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from forewarn.core.campaign import spec
from forewarn.core.campaign.spec import Blackout, CampaignSpec, HttpCheck, Selection, Window
from forewarn.core.duration import duration_range
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.field_rule import check_fields, field_rules
from forewarn.core.text import Guid, Name, Text
from forewarn.core.vm import Address, Traits
from tests.core.builders import NOW, a_vm


class WiderTraits(Traits, frozen=True, kw_only=True):
    """Traits with one more, as a later version could have."""

    rack: Annotated[Text | None, Meta(description="The rack.")] = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A struct with each kind of field."""

    name: Name
    id: Guid | None = None
    motto: Annotated[str, Meta(max_length=3)] = ""
    count: Annotated[int, Meta(ge=1, le=9)] | None = 1
    least: Annotated[int, Meta(ge=1)] = 1
    most: Annotated[int, Meta(le=9)] = 9
    items: Annotated[tuple[str, ...], Meta(max_length=1, extra={"advice": "; use fewer"})] = ()
    time: Annotated[timedelta | None, duration_range(timedelta(seconds=1), timedelta(minutes=1))] = None
    gate: Name | HttpCheck | None = None
    free: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "name: 'a b': use 1 to 128 letters"),
        ({"id": "1"}, "id: '1' is not a GUID"),
        ({"motto": "abcd"}, "motto: 4 characters: at most 3 are allowed"),
        ({"count": 10}, "count: must be 1 to 9, got 10"),
        ({"least": 0}, "least: must be at least 1, got 0"),
        ({"most": 10}, "most: must be at most 9, got 10"),
        ({"items": ("a", "b")}, "items: 2 items: at most 1 are allowed; use fewer"),
        ({"time": timedelta(0)}, "time: must be 1s to 1m, got 0s"),
        ({"gate": "a b"}, "gate: 'a b': use 1 to 128 letters"),
    ],
)
def test_value_outside_the_bounds_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Sample(**{"name": "a", **fields})
    assert str(refusal.value).startswith(message)
    assert [refusal.value.field] == list(fields)


def test_value_within_the_bounds_is_accepted() -> None:
    Sample(
        name="a", motto="abc", count=None, least=9, most=0, items=("a",), time=timedelta(seconds=9), free="x" * 9_999
    )
    Sample(name="a", count=9, gate=HttpCheck(url="http://host/"))


def test_new_text_of_a_vm_is_limited() -> None:
    with pytest.raises(Invalid, match="rack: 5000 characters: at most 512 are allowed"):
        WiderTraits(rack="x" * 5_000)


SAMPLES = (
    Address(ip="10.0.0.4"),
    Traits(),
    a_vm("v"),
    Selection(scopes=("web",)),
    Window(start="22:00", end="04:00"),
    Blackout(start=NOW, end=NOW + timedelta(1)),
    HttpCheck(url="http://host/"),
    spec.CampaignPolicy(),
    CampaignSpec(name="kernel", type=EventType.REBOOT, selection=Selection(all=True)),
)
OUTSIDE: dict[type, tuple[object, ...]] = {
    str: ("x y" * 9_999,),
    int: (-1, 10**9),
    tuple: ((None,) * 9_999,),
    timedelta: (timedelta(-1), timedelta(9_999)),
}


def outside_values() -> Iterator[tuple[msgspec.Struct, str, object]]:
    for sample in SAMPLES:
        for rule in field_rules(type(sample)):
            for value in OUTSIDE[rule.type]:
                yield sample, rule.field, value


@pytest.mark.parametrize(
    ("sample", "field", "value"),
    [pytest.param(*each, id=f"{type(each[0]).__name__}-{each[1]}") for each in outside_values()],
)
def test_struct_enforces_the_bounds_of_its_fields(sample: msgspec.Struct, field: str, value: object) -> None:
    with pytest.raises(Invalid) as refusal:
        msgspec.structs.replace(sample, **{field: value})
    assert refusal.value.field == field


def test_every_struct_of_a_campaign_is_tested() -> None:
    structs = {each for each in vars(spec).values() if isinstance(each, msgspec.StructMeta)}
    assert {each for each in structs if field_rules(each)} <= {type(sample) for sample in SAMPLES}


class Either(msgspec.Struct, frozen=True):
    """A field of two types with bounds of their own, and a default of one of them."""

    value: Annotated[int, Meta(le=10)] | Annotated[str, Meta(max_length=3)] = 5

    def __post_init__(self) -> None:
        check_fields(self)


def test_each_type_of_a_field_has_its_own_bounds() -> None:
    assert (Either(7).value, Either("abc").value) == (7, "abc")
    with pytest.raises(Invalid, match="value: must be at most 10, got 11"):
        Either(11)
    with pytest.raises(Invalid, match="value: 4 characters"):
        Either("abcd")


class Unsupported(msgspec.Struct, frozen=True):
    """A field with a bound that has no rule."""

    value: Annotated[int, Meta(gt=1)] = 2

    def __post_init__(self) -> None:
        check_fields(self)


def test_bound_without_a_rule_is_refused_at_once() -> None:
    """Otherwise it would only apply to decoded values."""
    with pytest.raises(TypeError, match="gt: use ge, le or max_length"):
        Unsupported()
