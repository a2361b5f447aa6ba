"""The description of the API, OpenAPI 3.1: the paths as the framework knows them, the types as they are read."""

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router
from litestar.enums import MediaType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, Reference, SecurityScheme, Tag

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.access import needs
from forewarn.operator.examples import EXAMPLES
from forewarn.operator.parameters import before_handling

Document = dict[str, Any]

SCHEMAS = "#/components/schemas/"

TAGS = {
    "inventory": "Scopes, VMs and hosts, and the fleet file as a whole.",
    "operations": "What owners of VMs ask for, and what happens to hardware.",
    "campaigns": "Maintenance over many scopes, wave by wave: planned, started, followed.",
    "events": "Events from their announcement to their end, and what a person does about them.",
    "holds": "Letting nothing planned start, in one scope or anywhere.",
    "faults": "What the emulator's endpoint does wrong on purpose.",
    "journal": "What happened, when, by whom and why: to ask and to follow.",
    "tokens": "Who may ask, and for what.",
    "clock": "The service's time.",
    "service": "The service itself.",
}

FILE = {
    "application/toml": {"schema": {"type": "string"}},
    "application/json": {"schema": {"type": "object", "title": "The same in JSON"}},
}
"""A fleet file: the framework describes one way to write a body, and here there are two."""

PROGRESS = {"/v1/fleet/import": "ImportProgress", "/v1/campaigns/plan": "PlanProgress"}
"""The paths that can tell how far they are, and the type of each of their lines."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Plugin(JsonRenderPlugin):
    """Serves the description as JSON."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: Document) -> bytes:
        """Return the description that was prepared."""
        del openapi_schema
        return _encode(description_of(request.app))


async def _prepare(request: Request[Any, Any, Any]) -> Response[None] | None:
    """Make the description in a thread: it takes longer than others should wait."""
    if (answer := await before_handling(request)) is None:
        await asyncio.to_thread(description_of, request.app)
    return answer


@lru_cache(maxsize=1)
def description_of(app: Litestar) -> Document:
    """Return the description of an application; the first time this takes a while."""
    return described(app.openapi_schema.to_schema())


def description_config() -> OpenAPIConfig:
    """Tell the framework what the description says and where it is. Nothing here loads anything from elsewhere."""
    schemes: dict[str, SecurityScheme | Reference] = {
        "token": SecurityScheme(type="http", scheme="bearer", description="A token, as `forewarn token create` makes."),
        "password": SecurityScheme(
            type="http", scheme="basic", description="For browsers, to read: any user name, and the token as password."
        ),
    }
    return OpenAPIConfig(
        title="Forewarn operator API",
        version="1",
        summary="What the people who run a fleet ask of Forewarn.",
        openapi_router=Router(
            "/openapi.json", route_handlers=[], before_request=_prepare, opt=needs(Role.VIEWER), include_in_schema=False
        ),
        render_plugins=[_Plugin(path="/", media_type=MediaType.JSON)],
        components=Components(security_schemes=schemes),
        security=[{"token": []}, {"password": []}],
        tags=[Tag(name=name, description=text) for name, text in TAGS.items()],
        use_handler_docstrings=True,
    )


def described(document: Document) -> Document:
    """Return the framework's description with the types as msgspec reads and writes them, and with examples.

    The framework's own types lack bounds, descriptions, and that requests take no unknown fields.
    """
    _, schemas = msgspec.json.schema_components(tuple(_types()), ref_template=SCHEMAS + "{name}")
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    used = {name: schemas[name] for name in (*document["components"]["schemas"], *PROGRESS.values()) if name in schemas}
    components = {**document["components"], "schemas": {**document["components"]["schemas"], **_whole(used, schemas)}}
    return {**document, "components": components, "paths": _with_schemes(_with_files(document["paths"]))}


def _with_schemes(paths: Document) -> Document:
    """Return the paths with the way in which a token has to come to those that change something."""
    return {
        path: {
            method: operation if method == "get" else {**operation, "security": [{"token": []}]}
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }


def _with_files(paths: Document) -> Document:
    """Return the paths with what is sent and answered besides JSON."""
    if "/v1/fleet" not in paths:
        return paths
    export = paths["/v1/fleet"]["get"]
    exported = {**export["responses"], "200": {**export["responses"]["200"], "content": FILE}}
    told = {path: {"post": _with_progress(paths[path]["post"], type_)} for path, type_ in PROGRESS.items()}
    told["/v1/fleet/import"]["post"]["requestBody"] = {"content": FILE, "required": True}
    return {**paths, "/v1/fleet": {"get": {**export, "responses": exported}}, **told}


def _with_progress(operation: Document, type_: str) -> Document:
    """Return an operation that can also answer with a line for each step."""
    answer = operation["responses"]["200"]
    lines = {"application/x-ndjson": {"schema": {"$ref": f"{SCHEMAS}{type_}"}}}
    answers = {**operation["responses"], "200": {**answer, "content": {**answer["content"], **lines}}}
    return {**operation, "responses": answers}


def _types() -> Iterator[type[msgspec.Struct]]:
    """Give every type of the API."""
    for name in v1.__all__:
        type_ = getattr(v1, name)
        if isinstance(type_, type) and issubclass(type_, v1.Answer | v1.Request):
            yield type_


def _whole(used: Document, schemas: Document) -> Document:
    """Return the schemas that are used, and those that they use."""
    found = dict(used)
    waiting = list(used.values())
    while waiting:
        for name in references(waiting.pop()):
            if name not in found:
                found[name] = schemas[name]
                waiting.append(schemas[name])
    return dict(sorted(found.items()))


def references(schema: object) -> Iterator[str]:
    """Give the name of every schema that this one mentions."""
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.removeprefix(SCHEMAS)
        schema = list(schema.values())
    if isinstance(schema, list):
        for value in schema:
            yield from references(value)
