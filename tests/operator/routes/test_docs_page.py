"""The OpenAPI document and the documentation page: complete, correct, without external resources."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.operator.openapi import EXAMPLES, TAGS, schema_references
from forewarn.operator.routes.docs_page import render_page
from tests.operator.running_api import TOKEN, run_api

UNKEYED = (
    "/v1/clock/advance",
    "/v1/clock/speed",
    "/v1/scenario-runs/{run_id}/cancel",
    "/v1/fleet/import",
    "/v1/campaigns/plan",
    "/v1/sockets",
)
"""Operations without an idempotency key: advancing the clock, and repeatable operations."""

LOADING = {"src", "href", "action", "data", "poster", "srcset", "formaction", "background", "ping", "manifest"}
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The parsed page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "no scripts in attributes"
            assert name != "style"
            if name in LOADING:
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def description() -> dict[str, Any]:
    async with run_api() as service:
        reply = await service.request("GET", "/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    document: dict[str, Any] = reply.json
    return document


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, said) for path, methods in document["paths"].items() for method, said in methods.items()]


async def test_page_shows_every_operation_and_type_without_external_resources() -> None:
    async with run_api() as service:
        document = (await service.request("GET", "/openapi.json")).json
        reply = await service.request("GET", "/docs")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/html")
    page = Page(reply.body.decode())
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "form", "base"})
    assert {link for link in page.links if not link.startswith("#")} == {"/openapi.json"}
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    for path, method, said in operations(document):
        assert said["operationId"] in page.ids
        assert said["summary"] in page.text
        assert f"{method.upper()} {path}" in page.text
    assert {f"type-{name}" for name in document["components"]["schemas"]} <= set(page.ids)


async def test_content_security_policy_allows_only_the_own_style() -> None:
    async with run_api() as service:
        reply = await service.request("GET", "/docs")
    (style,) = re.findall("<style>(.*?)</style>", reply.body.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert reply.headers["content-security-policy"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert re.search(r"url\(|@import", style) is None


async def test_page_accepts_the_token_as_password() -> None:
    async with run_api() as service:
        asked = await service.request("GET", "/docs", token=None)
        pair = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        given = await service.request("GET", "/docs", token=None, Authorization=f"Basic {pair}")
    assert (asked.status, "Basic" in asked.headers["www-authenticate"], given.status) == (401, True, 200)


async def test_every_example_of_the_page_is_a_valid_shell_command() -> None:
    page = render_page(await description())
    examples = [
        example.replace("&#34;", '"').replace("&#39;", "'")
        for example in re.findall("<pre><code>(.*?)</code>", page, re.DOTALL)
    ]
    assert len(examples) == len(operations(await description()))
    assert all(example.startswith('curl \\\n  -H "Authorization: Bearer $FOREWARN_TOKEN"') for example in examples)
    (cancel,) = [example for example in examples if "{event}/cancel" in example]
    assert cancel == (
        'curl \\\n  -H "Authorization: Bearer $FOREWARN_TOKEN" \\\n'
        '  -X POST \\\n  -H "Idempotency-Key: $(uuidgen)" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        '  -d \'{"reason": "the patch was withdrawn"}\' \\\n'
        '  "$FOREWARN_URL/v1/events/{event}/cancel"'
    )


async def test_every_operation_is_described_in_full() -> None:
    document = await description()
    ids = [said["operationId"] for _, _, said in operations(document)]
    assert len(ids) == len(set(ids))
    for path, method, said in operations(document):
        assert said["summary"], path
        assert said["description"], path
        assert said["tags"][0] in TAGS, path
        if said.get("security") == [{}]:
            continue
        assert {"400", "401", "403"} <= said["responses"].keys(), (path, method)
        if method != "get" and path not in UNKEYED:
            assert "Idempotency-Key" in {parameter["name"] for parameter in said["parameters"]}, (path, method)
        for status, answer in said["responses"].items():
            if int(status) >= 400:
                assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorResponse"}
    assert document["security"] == [{"token": []}, {"password": []}]


async def test_schemas_match_the_types() -> None:
    document = await description()
    schemas = document["components"]["schemas"]
    assert set(schema_references(document)) <= set(schemas)
    for name, schema in schemas.items():
        type_ = getattr(v1, name, None)
        if isinstance(type_, type) and issubclass(type_, v1.Request):
            is_strict = type_.__struct_config__.forbid_unknown_fields  # requests that are also part of responses
            assert (schema.get("additionalProperties") is False) is is_strict, name
            assert schema["description"], name
    domain = schemas["ScheduleEvents"]["properties"]["update_domain"]["anyOf"][0]
    assert domain == {"type": "integer", "minimum": 0, "maximum": 1000}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_example_is_a_valid_request(name: str) -> None:
    read = msgspec.convert(EXAMPLES[name], getattr(v1, name))
    whole, example = (msgspec.json.decode(msgspec.json.encode(each)) for each in (read, EXAMPLES[name]))
    assert {key: whole[key] for key in example} == example


async def test_every_request_has_an_example() -> None:
    document = await description()
    bodies = (said["requestBody"]["content"] for _, _, said in operations(document) if "requestBody" in said)
    schemas = (each["application/json"]["schema"] for each in bodies if "application/toml" not in each)
    assert {schema["$ref"].rpartition("/")[2] for schema in schemas} == set(EXAMPLES)
