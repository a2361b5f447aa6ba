"""Compatibility of two OpenAPI documents: what a client of the first would miss in the second."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Json = Any
Direction = Literal["request", "response"]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

TEXTS = frozenset({"description", "summary", "title", "example", "examples", "tags", "deprecated", "externalDocs"})
"""Keys of a schema or operation that no client depends on."""

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
HEX_PAIR = "[0-9A-Fa-f]{2}"
SHOWN_RULES: Mapping[str, list[Json]] = {
    "pattern": [
        f"^({NAME})$",
        f"^(({NAME}/)?{NAME})$",
        "^([A-Za-z0-9*?][A-Za-z0-9._*?-]{0,127})$",
        "^([0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$",
        f"^(({HEX_PAIR}([:-]?{HEX_PAIR}){{5}})?)$",
        f"^({OCTET}(?:\\.{OCTET}){{3}}|[0-9a-f:.]{{2,45}})$",
    ],
    "propertyNames": [{"maxLength": 512, "pattern": "^([^:;]*)$"}],
    "maxProperties": [50],
}
"""What the document shows since: the rules always refused other values, so this changes nothing for a client."""

ALTERNATIVES = ("anyOf", "oneOf")


def without_texts(description: Json) -> Json:
    """Return a document without its texts, which may always change."""
    match description:
        case dict():
            return {
                key: {name: without_texts(each) for name, each in value.items()}
                if key in ("properties", "schemas")
                else without_texts(value)
                for key, value in description.items()
                if key not in TEXTS
            }
        case list():
            return [without_texts(each) for each in description]
        case _:
            return description


def incompatible_changes(kept: Json, now: Json) -> list[str]:
    """Return every incompatible change of a document, with its location."""
    return list(_Comparison(without_texts(kept), without_texts(now)).changes())


class _Comparison:
    def __init__(self, kept: Json, now: Json) -> None:
        self._kept, self._now = kept, now
        self._compared: set[tuple[str, str, Direction]] = set()

    def changes(self) -> Iterator[str]:
        for path, operations in self._kept["paths"].items():
            if path not in self._now["paths"]:
                yield f"{path}: path removed"
                continue
            for method in METHODS:
                if method not in operations:
                    continue
                place = f"{method.upper()} {path}"
                if (operation := self._now["paths"][path].get(method)) is None:
                    yield f"{place}: operation removed"
                else:
                    yield from self._operation(operations[method], operation, place)

    def _operation(self, kept: Json, now: Json, place: str) -> Iterator[str]:
        if kept.get("operationId") != now.get("operationId"):
            yield f"{place}: operationId changed from {kept.get('operationId')} to {now.get('operationId')}"
        yield from self._parameters(kept.get("parameters", []), now.get("parameters", []), place)
        yield from self._body(kept.get("requestBody"), now.get("requestBody"), f"{place}, request")
        for status, response in kept.get("responses", {}).items():
            if status not in now.get("responses", {}):
                yield f"{place}: response {status} removed"
                continue
            content = self._resolve(now["responses"][status], self._now).get("content", {})
            of_kept = self._resolve(response, self._kept).get("content", {})
            yield from self._content(of_kept, content, f"{place}, response {status}", "response")

    def _parameters(self, kept: list[Json], now: list[Json], place: str) -> Iterator[str]:
        before = {(each["in"], each["name"]): each for each in (self._resolve(one, self._kept) for one in kept)}
        after = {(each["in"], each["name"]): each for each in (self._resolve(one, self._now) for one in now)}
        for key, parameter in before.items():
            name = f"{place}, {key[0]} parameter {key[1]}"
            if key not in after:
                yield f"{name}: removed"
                continue
            if after[key].get("required") and not parameter.get("required"):
                yield f"{name}: newly required"
            yield from self._schema(parameter.get("schema", {}), after[key].get("schema", {}), name, "request")
        for key in after.keys() - before.keys():
            if after[key].get("required"):
                yield f"{place}, {key[0]} parameter {key[1]}: added as required"

    def _body(self, kept: Json | None, now: Json | None, place: str) -> Iterator[str]:
        if kept is None:
            if now is not None and now.get("required"):
                yield f"{place}: body added as required"
            return
        if now is None:
            yield f"{place}: body removed"
            return
        if now.get("required") and not kept.get("required"):
            yield f"{place}: body newly required"
        yield from self._content(kept.get("content", {}), now.get("content", {}), place, "request")

    def _content(self, kept: Json, now: Json, place: str, direction: Direction) -> Iterator[str]:
        for media_type, each in kept.items():
            if media_type not in now:
                yield f"{place}: media type {media_type} removed"
            else:
                yield from self._schema(each.get("schema", {}), now[media_type].get("schema", {}), place, direction)

    def _schema(self, kept: Json, now: Json, place: str, direction: Direction) -> Iterator[str]:
        if "$ref" in kept and "$ref" in now:
            pair = (kept["$ref"], now["$ref"], direction)
            if pair in self._compared:
                return
            self._compared.add(pair)
            place = kept["$ref"].rpartition("/")[2]
        kept, now = self._resolve(kept, self._kept), self._resolve(now, self._now)
        yield from self._properties(kept, now, place, direction)
        yield from self._values(kept, now, place, direction)
        for key in ALTERNATIVES:
            if key in kept and key in now:
                yield from self._alternatives(kept[key], now[key], f"{place}.{key}", direction)
        for key in ("items", "additionalProperties"):
            if isinstance(kept.get(key), Mapping) and isinstance(now.get(key), Mapping):
                yield from self._schema(kept[key], now[key], f"{place}[]", direction)
            elif kept.get(key) != now.get(key):
                yield f"{place}: {key} changed"
        known = {"properties", "required", "type", "enum", "items", "additionalProperties", *ALTERNATIVES}
        for key in sorted((kept.keys() | now.keys()) - known):
            if key not in kept and now[key] in SHOWN_RULES.get(key, ()):
                continue
            if kept.get(key) != now.get(key):
                yield f"{place}: {key} changed from {kept.get(key)!r} to {now.get(key)!r}"
        for key in ALTERNATIVES:
            if (key in kept) is not (key in now):
                yield f"{place}: {key} {'removed' if key in kept else 'added'}"

    def _properties(self, kept: Json, now: Json, place: str, direction: Direction) -> Iterator[str]:
        after = now.get("properties", {})
        for name, each in kept.get("properties", {}).items():
            if name not in after:
                yield f"{place}.{name}: property removed"
            else:
                yield from self._schema(each, after[name], f"{place}.{name}", direction)
        was_required, is_required = set(kept.get("required", ())), set(now.get("required", ()))
        if direction == "request":
            for name in sorted(is_required - was_required):
                yield f"{place}.{name}: newly required in requests"
        else:
            for name in sorted((was_required - is_required) & after.keys()):
                yield f"{place}.{name}: no longer in every response"

    def _values(self, kept: Json, now: Json, place: str, direction: Direction) -> Iterator[str]:
        before, after = _as_set(kept.get("type")), _as_set(now.get("type"))
        if before - after or (after - before and (direction == "response" or not before)):
            yield f"{place}: type changed from {sorted(before)} to {sorted(after)}"
        if "enum" in kept and "enum" in now:
            for value in sorted(set(map(repr, kept["enum"])) - set(map(repr, now["enum"]))):
                yield f"{place}: enum value {value} removed"
        elif "enum" in kept or "enum" in now:
            yield f"{place}: enum {'removed' if 'enum' in kept else 'added'}"

    def _alternatives(self, kept: list[Json], now: list[Json], place: str, direction: Direction) -> Iterator[str]:
        """Match each alternative with the most similar one; an alternative that a response adds is incompatible."""
        left = list(now)
        for each in kept:
            found = [(self._try(each, other, place, direction), position) for position, other in enumerate(left)]
            best = min(found, key=lambda one: len(one[0]), default=None)
            if best is None or not _same_kind(self._resolve(each, self._kept), self._resolve(left[best[1]], self._now)):
                yield f"{place}: alternative {_name(each)} removed"
                continue
            yield from best[0]
            del left[best[1]]
        if direction == "response":
            yield from (f"{place}: alternative {_name(each)} added" for each in left)

    def _try(self, kept: Json, now: Json, place: str, direction: Direction) -> list[str]:
        compared = set(self._compared)
        changes = list(self._schema(kept, now, place, direction))
        if changes:
            self._compared = compared
        return changes

    @staticmethod
    def _resolve(schema: Json, description: Json) -> Json:
        while "$ref" in schema:
            target = description
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            schema = target
        return schema


def _as_set(type_: str | list[str] | None) -> set[str]:
    return set() if type_ is None else {type_} if isinstance(type_, str) else set(type_)


def _same_kind(kept: Json, now: Json) -> bool:
    return _as_set(kept.get("type")) == _as_set(now.get("type"))


def _name(schema: Json) -> str:
    return str(schema.get("$ref", schema.get("type", "of several"))).rpartition("/")[2]
