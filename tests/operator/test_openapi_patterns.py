"""The OpenAPI document shows the patterns and lengths that the rules enforce, and both agree on every value."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.access import Role
from forewarn.core.campaign.spec import Selection, Window, check_zone
from forewarn.core.duration import parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.text import check_name, is_guid
from forewarn.core.vm import MAX_TAGS, Address, check_tags
from forewarn.fleet.tokens import Token
from forewarn.operator.app import litestar_app
from forewarn.operator.openapi import openapi_document, schema_references
from tests.core.sample_scopes import TEN

Rule = Callable[[str], object]


def check_guid(text: str) -> None:
    if not is_guid(text):
        raise Invalid(text)


def check_scope_pattern(text: str) -> Token:
    return Token(id="t", name="t", role=Role.VIEWER, scopes=(text,), hash="", created_at=TEN, created_by="")


def check_vm_name(text: str) -> None:
    scope, slash, name = text.rpartition("/")
    for part in (scope, name) if slash else (name,):
        check_name(part, "VM")


def check_mac(text: str) -> Address:
    return Address(ip="10.0.0.1", mac=text)


EXACT: dict[str, Rule] = {
    "AddScope.id": lambda text: check_name(text, "scope"),
    "AddScope.placement_group": check_guid,
    "AddVm.host": lambda text: check_name(text, "host"),
    "AddVm.name": lambda text: check_name(text, "VM"),
    "AddVm.vm_id": check_guid,
    "StartCampaign.name": lambda text: check_name(text, "campaign"),
    "CampaignSelection.scopes[]": lambda text: Selection(scopes=(text,)),
    "CampaignWindow.start": lambda text: Window(start=text, end="24:00"),
    "CreateToken.name": lambda text: check_name(text, "token"),
    "CreateToken.scopes[]": check_scope_pattern,
    "NewAddress.mac": check_mac,
    "NewAddress.network": lambda text: check_name(text, "network"),
    "Operate.vm": check_vm_name,
    "AddVm.tags{}": lambda text: check_tags({text: ""}),
}
"""The rule of each kind of value, which accepts exactly what the schema allows."""

WIDER: dict[str, Rule] = {
    "CampaignPolicy.zone": check_zone,
    "NewAddress.ip": lambda text: Address(ip=text),
    "ScheduleEvents.notice": parse_duration,
}
"""Rules that an expression cannot express completely: what they accept, the schema allows."""

FREE_TEXTS = frozenset({"description", "location", "reason", "resource_group", "subscription", "why", "zone"})
"""Texts for people, of which only the length is limited."""

REPORT_TYPES = frozenset({"AddReport", "ReportFinding", "ReportProblem", "ReportResult"})
"""Types of reports, which have only texts for people."""

SAMPLES = [
    "web-0",
    "web/web-0",
    "web-*",
    "a" * 128,
    "a" * 129,
    "-a",
    ".a",
    "a.b_c",
    "",
    " ",
    "a\n",
    "ä",
    "a/b/c",
    "?x",
    "22:00",
    "24:00",
    "9:00",
    "00:0d:3a:12:34:56",
    "000d3a123456",
    "0F6F4B5E-6C5C-4E8B-9A65-0E7E6B6C1D2E",
    "10.0.0.1",
    "010.0.0.1",
    "::1",
    "2001:db8::1",
    "2001:DB8::1",
    "15m",
    "1h30m",
    "90",
    "1.5s",
    "Europe/Vienna",
    "UTC",
    "key",
    "a:b",
    "a;b",
]

ALPHABET = "aZ0-._*?/:;[]!+%\n\t ä9fF"


@cache
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = openapi_document(litestar_app())["components"]["schemas"]
    return found


def schema_of(place: str) -> Any:
    """Return the schema of a text in a request: `Type.field`, `[]` for its items, `{}` for its names."""
    type_, _, field = place.partition(".")
    schema = schemas()[type_]["properties"][field.rstrip("[]{}")]
    schema = schema["items"] if field.endswith("[]") else schema
    if field.endswith("{}"):
        return {"type": "string"} | next(_parts(schema, "object"))["propertyNames"]
    return next(_parts(schema, "string"))


def _parts(schema: Any, type_: str) -> Iterator[Any]:
    for part in schema.get("anyOf", [schema]):
        if part.get("type") == type_:
            yield part


def is_allowed(schema: Any, text: str) -> bool:
    """Return whether a text fits its schema, by the rules of JSON Schema: `$` does not match before a line feed."""
    pattern = re.sub(r"\$$", r"\\Z", schema.get("pattern", ""))
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(text))
    return least <= len(text) <= most and re.search(pattern, text) is not None


def is_accepted(rule: Rule, text: str) -> bool:
    try:
        rule(text)
    except Invalid:
        return False
    return True


TEXTS = st.sampled_from(SAMPLES) | st.text(ALPHABET, max_size=12) | st.text(max_size=5)


@pytest.mark.parametrize("place", EXACT)
@given(data=st.data())
def test_schema_allows_exactly_what_the_rule_accepts(place: str, data: st.DataObject) -> None:
    schema = schema_of(place)
    text = data.draw(TEXTS | st.from_regex(schema["pattern"]))
    assert is_allowed(schema, text) == is_accepted(EXACT[place], text)


@pytest.mark.parametrize("place", EXACT | WIDER)
def test_schema_and_rule_agree_on_samples(place: str) -> None:
    """Each rule accepts some of them, and refuses some."""
    schema, rule = schema_of(place), (EXACT | WIDER)[place]
    accepted = [text for text in SAMPLES if is_accepted(rule, text)]
    assert 0 < len(accepted) < len(SAMPLES)
    assert [text for text in accepted if not is_allowed(schema, text)] == []
    assert not all(is_allowed(schema, text) for text in SAMPLES)


@pytest.mark.parametrize("place", WIDER)
@given(text=TEXTS | st.ip_addresses().map(str))
def test_schema_allows_what_the_rule_accepts(place: str, text: str) -> None:
    assert is_allowed(schema_of(place), text) or not is_accepted(WIDER[place], text)


def request_texts() -> Iterator[tuple[str, Any]]:
    """Yield every text in the types of requests, with its schema."""
    operations = [each for path in openapi_document(litestar_app())["paths"].values() for each in path.values()]
    waiting = [name for operation in operations for name in schema_references(operation.get("requestBody", {}))]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting.extend(schema_references(schemas()[name]))
        for field, schema in schemas()[name].get("properties", {}).items():
            parts = [part for part in schema.get("anyOf", [schema]) if "$ref" not in part]
            parts += [part["items"] for part in parts if "$ref" not in part.get("items", {"$ref": ""})]
            yield from ((f"{name}.{field}", part) for part in parts if part.get("type") == "string")


def test_every_text_of_a_request_has_a_pattern_or_is_free() -> None:
    """So that a new field cannot be forgotten."""
    texts = list(request_texts())
    assert {place.partition(".")[0] for place, _ in texts} >= {"AddVm", "NewAddress", "CreateToken", "CampaignWindow"}
    without = [place for place, schema in texts if not schema.keys() & {"pattern", "enum", "format"}]
    named = [place for place in without if place.partition(".")[0] not in REPORT_TYPES]
    assert [place for place in named if place.partition(".")[2] not in FREE_TEXTS] == ["PlayScenario.text"]
    assert [place for place, schema in texts if place in without and "maxLength" not in schema] == []


def test_tags_are_limited_in_the_schema() -> None:
    for type_ in ("AddVm", "ChangeVm", "AddScope", "ChangeScope"):
        schema = next(_parts(schemas()[type_]["properties"]["tags"], "object"))
        assert schema["maxProperties"] == MAX_TAGS
        longest = "x" * schema["additionalProperties"]["maxLength"]
        check_tags({"key": longest})
        with pytest.raises(Invalid):
            check_tags({"key": f"{longest}x"})
