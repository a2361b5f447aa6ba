"""The OpenAPI 3.1 document: paths from the framework, schemas from msgspec, and an example for each request."""

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from inspect import cleandoc
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router
from litestar.enums import MediaType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, Reference, SecurityScheme, Tag

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.campaign.spec import Weekday
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Priority
from forewarn.fleet.errors import PositionNotReached
from forewarn.fleet.position import POSITIONS
from forewarn.operator.auth import requires
from forewarn.operator.error_responses import (
    OTHER_ERRORS,
    STATUS_BY_ERROR,
    meaning_of,
    status_of,
    statuses_by_code,
)
from forewarn.operator.parameters import before_request

_REQUESTS: tuple[v1.Request, ...] = (
    v1.ScheduleEvents(
        type=EventType.REBOOT,
        vms=("web/web-0",),
        notice="20m",
        duration="90s",
        description="The host gets a new kernel.",
        reason="ticket 4711",
    ),
    v1.Operate(vm="web/web-0", reason="it hangs"),
    v1.Restart(vm="web/web-0", notice="30m", reason="it hangs"),
    v1.Evict(vm="batch/batch_1", notice="45s"),
    v1.Fail(host="hv-1", reason="memory error"),
    v1.PredictFailure(host="hv-1", notice="7d", reason="a disk reports errors"),
    v1.CancelEvent(reason="the patch was withdrawn"),
    v1.ApproveEvent(vm="web-0", reason="drained by hand"),
    v1.RetryImpact(vm="web-0", reason="the host is back"),
    v1.ResolveImpact(vm="web-0", done=True, reason="restarted by hand"),
    v1.StartCampaign(
        name="kernel-6.1",
        type=v1.CampaignType.REBOOT,
        selection=v1.CampaignSelection(scopes=("web", "shop-*"), exclude_tags={"critical": "yes"}),
        duration="90s",
        description="The host gets a new kernel.",
        policy=v1.CampaignPolicy(
            gap="1h",
            scopes_at_once="10%",
            windows=(
                v1.CampaignWindow(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00", zone="Europe/Vienna"),
            ),
        ),
        reason="ticket 4711",
    ),
    v1.PauseCampaign(reason="checking the first wave"),
    v1.ResumeCampaign(reason="the first wave is fine"),
    v1.AbandonHost(reason="the mainboard of hv-7 was replaced"),
    v1.AbortCampaign(reason="the kernel was withdrawn"),
    v1.RetryWave(scope="web", reason="the host is back"),
    v1.SkipWave(scope="web", reason="rebooted by hand"),
    v1.CreateHold(scope="web", reason="quarter-end closing"),
    v1.ReleaseHold(scope="web", reason="closing is done"),
    v1.SetFault(kind=FaultKind.STATUS_410, vm="web/web-0", times=3, reason="test of the retries"),
    v1.OpenSocket(vm="web-0"),
    v1.AddScope(id="cache", kind=ScopeKind.AVAILABILITY_SET, approval=ApprovalRule.ALL),
    v1.ChangeScope(approval=ApprovalRule.ALL),
    v1.AddVm(
        name="cache-0",
        scope="cache",
        host="hv-1",
        addresses=(v1.NewAddress(ip="10.20.9.4"),),
        priority=Priority.LOW,
        tags={"role": "cache"},
    ),
    v1.ChangeVm(host="hv-2"),
    v1.CreateToken(name="night-shift", role=Role.OPERATOR, scopes=("web", "shop-*")),
    v1.AdvanceClock(duration="15m"),
    v1.SetSpeed(speed=60),
    v1.PlayScenario(name="user-restart"),
    v1.CancelScenario(reason="the wrong fleet"),
    v1.AddReport(
        kind=v1.ReportKind.CONFORMANCE,
        subject="http://127.0.0.1:8180",
        passed=True,
        summary="103 passed, 0 wrong, 0 differ, 53 not checked",
        version="0.1.0",
    ),
)

SCHEMAS = "#/components/schemas/"

TAGS = {
    "inventory": "Scopes, VMs and hosts, and the fleet file as a whole.",
    "operations": "Operations for owners of VMs, evictions and hardware failures.",
    "campaigns": "Maintenance of many scopes, wave by wave: plan, start, follow, control.",
    "events": "Scheduled events: list, create, approve, cancel, retry, resolve.",
    "holds": "Stop planned maintenance from starting, in one scope or in the whole fleet.",
    "faults": "Fault injection in the emulator's guest endpoint.",
    "scenarios": "Scenarios that the emulator plays: list, play, follow, cancel.",
    "reports": "Reports of exams and conformance checks, which the emulator shows.",
    "journal": "What happened, when, by whom and why: query it or follow it.",
    "tokens": "API tokens with roles and scopes.",
    "clock": "The service's time.",
    "service": "The service itself.",
}

FLEET_FILE_CONTENT = {
    "application/toml": {"schema": {"type": "string"}},
    "application/json": {"schema": {"type": "object", "title": "The fleet file in JSON"}},
}
"""The two formats of a fleet file; the framework can describe only one."""

AFTER = {
    "name": v1.AFTER_HEADER,
    "in": "header",
    "schema": {
        "type": "string",
        "pattern": POSITIONS,
    },
    "description": (
        f"`{v1.POSITION_HEADER}` of earlier responses, with commas; the node waits up to 2 s to reach its own."
    ),
    "required": False,
    "deprecated": False,
}
POSITION = {
    v1.POSITION_HEADER: {
        "schema": {"type": "string"},
        "description": f"The position of what the response rests on, for `{v1.AFTER_HEADER}` of later requests.",
    }
}
"""The headers with which a caller reads its own writes at any control node."""

PROGRESS_TYPES = {"/v1/fleet/import": "ImportProgress", "/v1/campaigns/plan": "PlanProgress"}
"""The paths that can stream their progress, and the type of each line."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def _example(request: v1.Request) -> dict[str, Any]:
    """Return the request without the fields that have their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(request)}
    given = (name for name, value in defaults.items() if getattr(request, name) not in (value, msgspec.UNSET))
    return {name: msgspec.to_builtins(getattr(request, name)) for name in given}


EXAMPLES: dict[str, dict[str, Any]] = {type(request).__name__: _example(request) for request in _REQUESTS}
"""An example for each type of request."""


OpenApiDocument = dict[str, Any]


class _Plugin(OpenAPIRenderPlugin):
    """Serves the OpenAPI document as JSON."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: OpenApiDocument) -> bytes:
        """Return the prepared document."""
        del openapi_schema
        return _encode(openapi_document(request.app))


async def _build_in_thread(request: Request[Any, Any, Any]) -> Response[None] | None:
    """Build the document in a thread, because this would block the event loop for too long."""
    if (response := await before_request(request)) is None:
        await asyncio.to_thread(openapi_document, request.app)
    return response


@lru_cache(maxsize=1)
def openapi_document(app: Litestar) -> OpenApiDocument:
    """Return the OpenAPI document of an application; the first call takes a while."""
    return complete_document(app.openapi_schema.to_schema())


def openapi_config() -> OpenAPIConfig:
    """Configure the OpenAPI document and its path. It refers to no external resources."""
    schemes: dict[str, SecurityScheme | Reference] = {
        "token": SecurityScheme(type="http", scheme="bearer", description="A token from `forewarn token create`."),
        "password": SecurityScheme(
            type="http",
            scheme="basic",
            description="For browsers, read-only: any user name, and the token as password.",
        ),
    }
    return OpenAPIConfig(
        title="Forewarn operator API",
        version="1",
        summary="Manage a fleet and its scheduled maintenance.",
        openapi_router=Router(
            "/openapi.json",
            route_handlers=[],
            before_request=_build_in_thread,
            opt=requires(Role.VIEWER),
            include_in_schema=False,
        ),
        render_plugins=[_Plugin(path="/", media_type=MediaType.JSON)],
        components=Components(security_schemes=schemes),
        security=[{"token": []}, {"password": []}],
        tags=[Tag(name=name, description=text) for name, text in TAGS.items()],
        use_handler_docstrings=True,
    )


def complete_document(document: OpenApiDocument) -> OpenApiDocument:
    """Return the framework's document with msgspec's schemas of the types, and with examples.

    The framework's own schemas lack bounds, descriptions, and that requests refuse unknown fields.
    """
    _, schemas = msgspec.json.schema_components(tuple(_types()), ref_template=SCHEMAS + "{name}")
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    schemas["ErrorBody"]["properties"]["code"]["description"] = _describe_codes()
    used = {
        name: schemas[name]
        for name in (*document["components"]["schemas"], *PROGRESS_TYPES.values())
        if name in schemas
    }
    components = {
        **document["components"],
        "schemas": {**document["components"]["schemas"], **_with_referenced(used, schemas)},
    }
    return {
        **document,
        "components": components,
        "paths": _with_positions(_with_write_schemes(_with_files(document["paths"]))),
    }


def _describe_codes() -> str:
    """Return a list of the error codes, each with its status and its meaning: the docstrings of its classes."""
    meanings: dict[str, list[str]] = {code: [other.meaning] for code, other in OTHER_ERRORS.items()}
    for error in STATUS_BY_ERROR:
        meanings.setdefault(error.code, []).append(cleandoc(error.__doc__ or ""))
    codes = (
        f"- `{code}` ({status})" + "".join(f" {text}" for text in dict.fromkeys(meanings.get(code, [])))
        for code, status in statuses_by_code().items()
    )
    return "\n".join(["One of these codes, with its status; more may be added.", "", *codes])


def _with_write_schemes(paths: OpenApiDocument) -> OpenApiDocument:
    """Return the paths; those that change something accept only a Bearer token."""
    return {
        path: {
            method: operation if method == "get" else {**operation, "security": [{"token": []}]}
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }


def _with_positions(paths: OpenApiDocument) -> OpenApiDocument:
    """Return the paths of the API with the headers of read-your-writes."""
    return {
        path: {method: _with_position(operation) for method, operation in operations.items()}
        if path.startswith("/v1/")
        else operations
        for path, operations in paths.items()
    }


def _with_position(operation: OpenApiDocument) -> OpenApiDocument:
    successes = {
        status: {**response, "headers": {**response.get("headers", {}), **POSITION}}
        for status, response in operation["responses"].items()
        if status < "300"
    }
    status = str(status_of(PositionNotReached))
    own = operation["responses"].get(status, {}).get("description", "")
    behind = {
        "description": f"{own} {meaning_of(PositionNotReached)}".strip(),
        "content": {"application/json": {"schema": {"$ref": f"{SCHEMAS}ErrorResponse"}}},
    }
    return {
        **operation,
        "parameters": [*operation.get("parameters", []), AFTER],
        "responses": {**operation["responses"], status: behind, **successes},
    }


def _with_files(paths: OpenApiDocument) -> OpenApiDocument:
    """Return the paths with the bodies that are not JSON."""
    if "/v1/fleet" not in paths:
        return paths
    export = paths["/v1/fleet"]["get"]
    exported = {**export["responses"], "200": {**export["responses"]["200"], "content": FLEET_FILE_CONTENT}}
    streamed = {
        path: {**paths[path], "post": _with_progress(paths[path]["post"], type_)}
        for path, type_ in PROGRESS_TYPES.items()
    }
    streamed["/v1/fleet/import"]["post"]["requestBody"] = {"content": FLEET_FILE_CONTENT, "required": True}
    return {**paths, "/v1/fleet": {"get": {**export, "responses": exported}}, **streamed}


def _with_progress(operation: OpenApiDocument, type_: str) -> OpenApiDocument:
    """Return an operation that can also stream its progress, one line per step."""
    response = operation["responses"]["200"]
    lines = {"application/x-ndjson": {"schema": {"$ref": f"{SCHEMAS}{type_}"}}}
    responses = {**operation["responses"], "200": {**response, "content": {**response["content"], **lines}}}
    return {**operation, "responses": responses}


def _types() -> Iterator[type[msgspec.Struct]]:
    """Yield every type of the API."""
    for name in v1.__all__:
        type_ = getattr(v1, name)
        if isinstance(type_, type) and issubclass(type_, v1.Response | v1.Request):
            yield type_


def _with_referenced(used: OpenApiDocument, schemas: OpenApiDocument) -> OpenApiDocument:
    """Return the used schemas and those that they refer to."""
    found = dict(used)
    waiting = list(used.values())
    while waiting:
        for name in schema_references(waiting.pop()):
            if name not in found:
                found[name] = schemas[name]
                waiting.append(schemas[name])
    return dict(sorted(found.items()))


def schema_references(schema: object) -> Iterator[str]:
    """Yield the name of every schema that this one refers to."""
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.removeprefix(SCHEMAS)
        schema = list(schema.values())
    if isinstance(schema, list):
        for value in schema:
            yield from schema_references(value)
