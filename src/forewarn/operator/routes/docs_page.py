"""API documentation page (`/docs`): the OpenAPI document rendered to HTML on the server, without external resources."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader
from litestar import Litestar, MediaType, Request, Response, get
from markupsafe import Markup, escape

from forewarn.core.access import Role
from forewarn.operator.auth import requires
from forewarn.operator.openapi import SCHEMAS, TAGS, OpenApiDocument, openapi_document

BOUNDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {:g}",
    "maximum": "at most {:g}",
    "maxItems": "at most {} items",
    "minItems": "at least {} items",
}
"""Texts for the bounds of a value."""

MAX_PATTERN_LENGTH = 24
"""Longer patterns are unreadable and not shown."""


class Field(NamedTuple):
    """A parameter, or a field of a type."""

    name: str
    place: str
    type: Markup
    required: bool
    default: str
    bounds: str
    description: str


class ResponseContent(NamedTuple):
    """A possible response of an operation."""

    status: str
    description: str
    type: Markup


class Operation(NamedTuple):
    """An operation: a method of a path."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: Sequence[Field]
    body: Markup
    fields: Sequence[Field]
    answers: Sequence[ResponseContent]
    curl: str


class Group(NamedTuple):
    """The operations on one subject."""

    name: str
    description: str
    operations: Sequence[Operation]


class Type(NamedTuple):
    """A type that several operations share."""

    name: str
    description: str
    fields: Sequence[Field]
    values: Sequence[str]


@get("/docs", include_in_schema=False, media_type=MediaType.HTML, opt=requires(Role.VIEWER))
async def docs(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Show the documentation of the API; it is rendered once, in a thread."""
    content, policy = await asyncio.to_thread(_rendered, request.app)
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=MediaType.HTML, headers=headers)


@lru_cache(maxsize=1)
def _rendered(app: Litestar) -> tuple[bytes, str]:
    """Return the page and its Content-Security-Policy, which allows only its own style sheet."""
    page = render_page(openapi_document(app))
    style, _, _ = page.partition("<style>")[2].partition("</style>")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return page.encode(), f"{policy}; frame-ancestors 'none'"


def render_page(document: OpenApiDocument) -> str:
    """Render the page of an OpenAPI document."""
    environment = Environment(loader=PackageLoader("forewarn.operator"), autoescape=True, trim_blocks=True)
    environment.lstrip_blocks = True
    environment.filters["prose"] = _prose
    operations = list(_operations(document))
    groups = [
        Group(tag, text, [operation for subject, operation in operations if subject == tag])
        for tag, text in TAGS.items()
    ]
    return environment.get_template("docs.html").render(
        info=document["info"],
        groups=[group for group in groups if group.operations],
        types=list(_types(document)),
    )


def _operations(document: OpenApiDocument) -> Iterator[tuple[str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield operation["tags"][0], _operation(document, path, method, operation)


def _operation(document: OpenApiDocument, path: str, method: str, spec: OpenApiDocument) -> Operation:
    parameters = [_parameter(parameter) for parameter in spec.get("parameters", ())]
    media, body = _first_content(spec.get("requestBody", {}).get("content", {}))
    return Operation(
        id=spec["operationId"],
        method=method.upper(),
        path=path,
        summary=spec["summary"],
        description=spec.get("description", ""),
        parameters=parameters,
        body=_type(body) if media else Markup(""),
        fields=list(_fields(_resolved(document, body))),
        answers=[_response_content(status, answer) for status, answer in spec["responses"].items()],
        curl=_curl(document, path, method, parameters, media, body),
    )


def _parameter(spec: OpenApiDocument) -> Field:
    schema = spec.get("schema", {})
    return Field(
        name=spec["name"],
        place=spec["in"],
        type=_type(schema),
        required=spec.get("required", False),
        default=_default(schema),
        bounds=_bounds(schema),
        description=spec.get("description") or "",
    )


def _fields(schema: OpenApiDocument) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, spec in schema.get("properties", {}).items():
        yield Field(
            name=name,
            place="body",
            type=_type(spec),
            required=name in required,
            default=_default(spec),
            bounds=_bounds(spec),
            description=spec.get("description", ""),
        )


def _response_content(status: str, spec: OpenApiDocument) -> ResponseContent:
    media, schema = _first_content(spec.get("content", {}))
    return ResponseContent(status, spec["description"], _type(schema) if schema else escape(media))


def _types(document: OpenApiDocument) -> Iterator[Type]:
    for name, schema in document["components"]["schemas"].items():
        values = [str(value) for value in schema.get("enum", ())]
        yield Type(name, schema.get("description", ""), list(_fields(schema)), values)


def _first_content(content: Mapping[str, OpenApiDocument]) -> tuple[str, OpenApiDocument]:
    """Return the first media type and its schema."""
    for media, spec in content.items():
        return media, spec.get("schema", {})
    return "", {}


def _resolved(document: OpenApiDocument, schema: OpenApiDocument) -> OpenApiDocument:
    name = schema.get("$ref", "").removeprefix(SCHEMAS)
    found: OpenApiDocument = document["components"]["schemas"][name] if name else schema
    return found


def _type(schema: OpenApiDocument) -> Markup:
    """Return a type in plain words; names link to their description."""
    if name := schema.get("$ref", "").removeprefix(SCHEMAS):
        return Markup('<a href="#type-{0}">{0}</a>').format(name)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return Markup(" or ").join(_type(choice) for choice in choices)
    if values := schema.get("enum"):
        return Markup(" or ").join(Markup("<code>{}</code>").format(value) for value in values)
    match schema.get("type"):
        case "array" if members := schema.get("prefixItems"):
            return Markup("list of ") + Markup(" and ").join(_type(member) for member in members)
        case "array":
            return Markup("list of ") + _type(schema.get("items", {}))
        case "object":
            return Markup("map of ") + _type(schema.get("additionalProperties") or {})
        case "string" if schema.get("format") == "date-time":
            return Markup("time")
        case "string":
            return Markup("text")
        case "boolean":
            return Markup("true or false")
        case str() as plain:
            return escape(plain)
        case _:
            return Markup("anything")


def _bounds(schema: OpenApiDocument) -> str:
    texts = [text.format(schema[name]) for name, text in BOUNDS.items() if name in schema]
    if (pattern := schema.get("pattern")) and len(pattern) <= MAX_PATTERN_LENGTH:
        texts.append(f"matches {pattern}")
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        texts += [_bounds(inner)] if _bounds(inner) else []
    return ", ".join(texts)


def _default(schema: OpenApiDocument) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) else json.dumps(value)


def _curl(
    document: OpenApiDocument, path: str, method: str, parameters: Sequence[Field], media: str, body: OpenApiDocument
) -> str:
    """Return a curl command for the operation."""
    words = ["curl", '-H "Authorization: Bearer $FOREWARN_TOKEN"']
    if method != "get":
        words.append(f"-X {method.upper()}")
    if any(parameter.name == "Idempotency-Key" for parameter in parameters):
        words.append('-H "Idempotency-Key: $(uuidgen)"')
    if media:
        words.append(f"-H 'Content-Type: {media}'")
        examples = _resolved(document, body).get("examples")
        words.append(f"-d '{json.dumps(examples[0])}'" if examples else "--data-binary @FILE")
    query = "&".join(f"{field.name}=…" for field in parameters if field.place == "query" and field.required)
    words.append(f'"$FOREWARN_URL{path}{"?" + query if query else ""}"')
    return " \\\n  ".join(words)


def _prose(text: str) -> Markup:
    """Render paragraphs, with text between backticks as code."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return Markup("").join(Markup("<p>{}</p>").format(_coded(paragraph)) for paragraph in paragraphs if paragraph)


def _coded(text: str) -> Markup:
    parts = (
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )
    return Markup("").join(parts)
