"""`/v1` may only grow: /openapi.json and the error codes are compared with stored copies."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forewarn.operator.error_responses import statuses_by_code
from tests.operator.openapi_compatibility import incompatible_changes, without_texts
from tests.operator.running_api import run_api

KEPT = Path(__file__).parent / "openapi-v1.json"
KEPT_CODES = Path(__file__).parent / "error-codes-v1.txt"

WHAT_TO_DO = "/v1 is frozen: keep the old name or value, and add the new one beside it"


async def test_openapi_document_only_grows(rewrite: bool) -> None:
    async with run_api() as service:
        served = without_texts((await service.request("GET", "/openapi.json")).json)
    changes = incompatible_changes(json.loads(KEPT.read_text()), served)
    assert not changes, "\n".join(["not additions to /openapi.json:", *changes, WHAT_TO_DO])
    if rewrite:
        content = {key: served[key] for key in ("openapi", "paths", "components")}
        KEPT.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def test_error_codes_only_grow(rewrite: bool) -> None:
    codes = set(statuses_by_code())
    removed = set(KEPT_CODES.read_text().split()) - codes
    assert not removed, f"error codes removed: {', '.join(sorted(removed))}; {WHAT_TO_DO}"
    if rewrite:
        KEPT_CODES.write_text("".join(f"{code}\n" for code in sorted(codes)))


# The comparison itself, with sample changes.


def sample() -> dict[str, Any]:
    """Return a small document: one list, one change."""
    vm = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "its name"},
            "priority": {"enum": ["low", "regular"], "type": "string"},
            "hold": {"oneOf": [{"$ref": "#/components/schemas/Hold"}, {"type": "null"}]},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["name", "priority"],
    }
    add = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "host": {"type": "string"}},
        "required": ["name"],
    }
    hold = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    page = {"type": "array", "items": {"$ref": "#/components/schemas/Vm"}}
    limit = {"in": "query", "name": "limit", "required": False, "schema": {"type": "integer"}}
    return {
        "paths": {
            "/v1/vms": {
                "get": {
                    "operationId": "listVms",
                    "parameters": [limit],
                    "responses": {"200": {"content": {"application/json": {"schema": page}}}},
                },
                "post": {
                    "operationId": "addVm",
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/AddVm"}}},
                    },
                    "responses": {
                        "201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Vm"}}}}
                    },
                },
            }
        },
        "components": {"schemas": {"Vm": vm, "AddVm": add, "Hold": hold}},
    }


class Parts(NamedTuple):
    """The path /v1/vms of a document, and its schemas."""

    path: Any
    schemas: Any


Change = Callable[[Parts], object]


def rename(properties: dict[str, Any], old: str, new: str) -> None:
    """Rename a property."""
    properties[new] = properties.pop(old)


ADDITIONS: dict[str, Change] = {
    "nothing": lambda _: None,
    "operation": lambda api: api.path.update(delete={"operationId": "removeVm", "responses": {}}),
    "optional parameter": lambda api: api.path["get"]["parameters"].append(
        {"in": "query", "name": "tag", "required": False, "schema": {"type": "string"}}
    ),
    "property of a response": lambda api: api.schemas["Vm"]["properties"].update(os={"type": "string"}),
    "property of every response": lambda api: (
        api.schemas["Vm"]["properties"].update(os={"type": "string"}),
        api.schemas["Vm"]["required"].append("os"),
    ),
    "optional property of a request": lambda api: api.schemas["AddVm"]["properties"].update(os={"type": "string"}),
    "required property that becomes optional": lambda api: api.schemas["AddVm"]["required"].remove("name"),
    "enum value": lambda api: api.schemas["Vm"]["properties"]["priority"]["enum"].append("high"),
    "status": lambda api: api.path["get"]["responses"].update({"404": {}}),
    "text": lambda api: api.schemas["Vm"]["properties"]["name"].update(description="another"),
    "request that takes more": lambda api: api.schemas["AddVm"]["properties"]["host"].update(type=["string", "null"]),
}

NO_ADDITIONS: dict[str, tuple[Change, str]] = {
    "operation removed": (lambda api: api.path.pop("post"), "POST /v1/vms: operation removed"),
    "operation renamed": (lambda api: api.path["get"].update(operationId="vms"), "operationId changed"),
    "parameter removed": (lambda api: api.path["get"]["parameters"].clear(), "query parameter limit: removed"),
    "parameter renamed": (
        lambda api: api.path["get"]["parameters"][0].update(name="count"),
        "query parameter limit: removed",
    ),
    "parameter required": (
        lambda api: api.path["get"]["parameters"][0].update(required=True),
        "query parameter limit: newly required",
    ),
    "required parameter added": (
        lambda api: api.path["get"]["parameters"].append({"in": "query", "name": "tag", "required": True}),
        "query parameter tag: added as required",
    ),
    "parameter of another type": (
        lambda api: api.path["get"]["parameters"][0].update(schema={"type": "string"}),
        "query parameter limit: type changed",
    ),
    "status removed": (lambda api: api.path["post"]["responses"].clear(), "response 201 removed"),
    "media type removed": (
        lambda api: api.path["get"]["responses"]["200"]["content"].clear(),
        "media type application/json removed",
    ),
    "property removed": (lambda api: api.schemas["Vm"]["properties"].pop("tags"), "Vm.tags: property removed"),
    "property renamed": (
        lambda api: rename(api.schemas["Vm"]["properties"], "hold", "held"),
        "Vm.hold: property removed",
    ),
    "property of a nested object": (
        lambda api: rename(api.schemas["Hold"]["properties"], "reason", "why"),
        "Hold.reason: property removed",
    ),
    "property of a request removed": (
        lambda api: api.schemas["AddVm"]["properties"].pop("host"),
        "AddVm.host: property removed",
    ),
    "property of a request required": (
        lambda api: api.schemas["AddVm"]["required"].append("host"),
        "AddVm.host: newly required in requests",
    ),
    "property not always present": (
        lambda api: api.schemas["Vm"]["required"].remove("name"),
        "Vm.name: no longer in every response",
    ),
    "another type": (lambda api: api.schemas["Vm"]["properties"]["name"].update(type="integer"), "type changed"),
    "null in a response": (
        lambda api: api.schemas["Vm"]["properties"]["name"].update(type=["string", "null"]),
        "Vm.name: type changed",
    ),
    "alternative removed": (
        lambda api: api.schemas["Vm"]["properties"]["hold"]["oneOf"].pop(),
        "alternative null removed",
    ),
    "alternative added to a response": (
        lambda api: api.schemas["Vm"]["properties"]["hold"]["oneOf"].append({"type": "string"}),
        "alternative string added",
    ),
    "enum value removed": (
        lambda api: api.schemas["Vm"]["properties"]["priority"]["enum"].remove("low"),
        "enum value 'low' removed",
    ),
    "narrower request": (
        lambda api: api.schemas["AddVm"]["properties"]["name"].update(maxLength=5),
        "AddVm.name: maxLength changed from 10 to 5",
    ),
    "new bound": (
        lambda api: api.schemas["AddVm"]["properties"]["host"].update(pattern="^hv"),
        "AddVm.host: pattern changed from None",
    ),
    "values of a map": (
        lambda api: api.schemas["Vm"]["properties"]["tags"].update(additionalProperties={"type": "integer"}),
        "Vm.tags[]: type changed",
    ),
}


def changed(change: Change) -> list[str]:
    """Return the result of the comparison for a change."""
    now = copy.deepcopy(sample())
    change(Parts(now["paths"]["/v1/vms"], now["components"]["schemas"]))
    return incompatible_changes(sample(), now)


@pytest.mark.parametrize("change", ADDITIONS.values(), ids=ADDITIONS)
def test_addition_is_allowed(change: Change) -> None:
    assert changed(change) == []


@pytest.mark.parametrize(("change", "told"), NO_ADDITIONS.values(), ids=NO_ADDITIONS)
def test_incompatible_change_is_named(change: Change, told: str) -> None:
    assert any(told in each for each in changed(change)), changed(change)


def test_removed_path_is_named() -> None:
    assert incompatible_changes(sample(), {"paths": {}}) == ["/v1/vms: path removed"]
