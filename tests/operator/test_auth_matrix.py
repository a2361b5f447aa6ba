"""Every operation × role × scope: a token that is limited to scopes cannot tell another scope from a missing one.

The requests are generated from the OpenAPI document. A parameter or a field that this file does not list fails the
test, so that a new operation cannot be forgotten.
"""

import asyncio
import http.client
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from forewarn.core.access import Role
from forewarn.operator.app import litestar_app
from forewarn.operator.auth import Permission
from tests.operator.running_api import GUARD, TOKEN, ApiResponse, FakeGuests, RunningApi, run_api
from tests.operator.sample_campaign import asked, start

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0"]
tags = { team = "wwww" }
vms = [{ name = "web-{n}", count = 2 }]

[[scopes]]
name = "hushed"
kind = "availability-set"
hosts = ["hv-7"]
tags = { team = "hhhh" }
vms = [{ name = "db-{n}", count = 2 }]
"""

OWN = ("web", "web-*")
"""The scopes of the limited tokens."""


class Names(msgspec.Struct, frozen=True):
    """One thing of the token's scope, one of another scope, and one that does not exist; the last two equally long."""

    own: str
    foreign: str
    missing: str

    def __post_init__(self) -> None:
        assert len(self.foreign) == len(self.missing)


class World(msgspec.Struct, frozen=True):
    """A running service with the same things in the token's scope and in another one."""

    service: RunningApi
    tokens: dict[str, str]
    events: Names
    campaigns: Names

    def names(self, kind: str) -> Iterable[Names]:
        """Return the ways to name a thing of this kind."""
        match kind:
            case "scope":
                yield Names("web", "hushed", "absent")
            case "pattern":
                yield Names("web*", "hush*", "abse*")
            case "vm":
                yield Names("web-0", "db-0", "db-9")
                yield Names("web/web-0", "hushed/db-0", "absent/db-0")
                yield Names("web/web-0", "hushed/db-0", "hushed/db-9")
            case "host":
                yield Names("hv-0", "hv-7", "hv-9")
            case "tag":
                yield Names("team=wwww", "team=hhhh", "team=aaaa")
            case "event":
                yield self.events
            case "campaign":
                yield Names("own-kernel", "far-kernel", "any-kernel")
                yield self.campaigns
            case "fault":
                yield Names("F1", "F2", "F9")
            case "token":
                yield Names("tk_000000000000", self.service.fleet.tokens.all()[0].id, "tk_999999999999")
            case "actor":
                yield Names("own-team", "far-team", "any-team")
            case _:
                raise AssertionError(f"{kind} is no kind of thing")

    def reveals_foreign(self, text: str) -> bool:
        """Return whether a text names anything of the other scope."""
        ids = set(GUID.findall(text.upper()))
        words = GUID.sub("", text)
        return not ids.isdisjoint({self.events.foreign.upper(), self.campaigns.foreign.upper()}) or any(
            word in words for word in FOREIGN
        )


GUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

FOREIGN = ("hushed", "db-0", "db-1", "hv-7", "hhhh", "far-kernel", "far-team")
"""The names of the other scope and of what belongs to it."""

REFERENCES = {
    "scope": "scope",
    "scope_id": "scope",
    "scopes": "scope",
    "exclude_scopes": "scope",
    "vm": "vm",
    "vms": "vm",
    "exclude_vms": "vm",
    "host": "host",
    "hosts": "host",
    "exclude_hosts": "host",
    "tag": "tag",
    "tags": "tag",
    "exclude_tags": "tag",
    "event": "event",
    "campaign": "campaign",
    "fault_id": "fault",
    "token_id": "token",
    "actor": "actor",
    ("listScopes", "name"): "pattern",
    ("listVms", "name"): "vm",
    ("listHosts", "name"): "host",
    ("addScope", "id"): "scope",
    ("addVm", "name"): "scope",
    ("startCampaign", "name"): "campaign",
    ("planCampaign", "name"): "campaign",
}
"""Parameters and fields that name a thing which belongs to a scope, by name or by operation and name."""

PLAIN: dict[str | tuple[str, str], object] = {
    "type": "Reboot",
    "reason": "a test",
    "now": False,
    "unannounced": False,
    "notice": "1d",
    "done": True,
    "kind": "slow",
    "format": "toml",
    "role": "viewer",
    "name": "new",
    "duration": "1m",
    "advance": "1m",
    "selection": {"scopes": ["web"]},
    "speed": 2,
    "run_id": "S1",
    "report_id": "R1",
    ("addReport", "kind"): "exam",
    "subject": "./handler",
    "passed": True,
    "summary": "1 scenario: 1 passed.",
    ("playScenario", "name"): "user-restart",
    ("addScope", "kind"): "availability-set",
    ("addScope", "instance"): None,
    ("addVm", "instance"): None,
    ("changeVm", "instance"): None,
    ("changeScope", "instance"): None,
    ("addScope", "tags"): None,
    ("addVm", "tags"): None,
    ("changeVm", "tags"): None,
    ("changeScope", "tags"): None,
    ("createToken", "scopes"): None,
}
"""Values of required parameters and fields that name nothing of a scope."""

NEEDLESS = """
Accept Idempotency-Key Last-Event-ID action addresses after all amount approval auto_approve description dry_run enabled
expires_at failure fault_domain force held limit location newest_first not_before open os placement_group policy
priority prune resource_group role_instance scale_set since source start_at state status subscription terminate_notice
times to_next_change until update_domain vm_id zone after_revision text version problems results findings
"""
OPTIONAL = frozenset(NEEDLESS.split())
"""Parameters and fields that name nothing of a scope and can be left out."""


FORBIDDEN_OWN = {(operation, field) for operation in ("startCampaign", "planCampaign") for field in ("hosts", "tags")}
"""References that a limited token cannot use at all, because they could select VMs of other scopes."""


class Field(msgspec.Struct, frozen=True):
    """A parameter or a field of the body."""

    place: str
    name: str
    required: bool
    is_list: bool = False
    is_map: bool = False
    is_nested: bool = False


class Operation(msgspec.Struct, frozen=True):
    """One operation of the document."""

    id: str
    method: str
    path: str
    fields: tuple[Field, ...]
    media_type: str | None

    def kind_of(self, field: Field) -> str | None:
        """Return what the field names; None if it names nothing of a scope."""
        if (self.id, field.name) in PLAIN:
            return None
        return REFERENCES.get((self.id, field.name), REFERENCES.get(field.name))

    @property
    def references(self) -> tuple[Field, ...]:
        """The fields that name something."""
        return tuple(field for field in self.fields if self.kind_of(field) is not None)

    def unlisted(self) -> list[str]:
        """Return the fields about which this file says nothing."""
        return [
            f"{self.id}: {field.name}"
            for field in self.fields
            if self.kind_of(field) is None
            and (self.id, field.name) not in PLAIN
            and field.name not in PLAIN
            and (field.required or field.name not in OPTIONAL)
        ]


def operations(document: Any) -> Iterator[Operation]:
    """Return every operation of an OpenAPI document."""
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            fields = [
                Field(each["in"], each["name"], each.get("required", False)) for each in described.get("parameters", ())
            ]
            content = described.get("requestBody", {}).get("content", {})
            media_type = "application/json" if "application/json" in content else next(iter(content), None)
            if media_type is not None:
                fields += body_fields(document, content[media_type]["schema"])
            yield Operation(described["operationId"], method.upper(), path, tuple(fields), media_type)


def body_fields(document: Any, schema: Any, *, is_nested: bool = False) -> Iterator[Field]:
    """Return the fields of a body, and those of the selection of a campaign."""
    schema = resolved(document, schema)
    for name, described in schema.get("properties", {}).items():
        if name == "selection":
            yield from body_fields(document, described, is_nested=True)
        types = {described.get("type"), *(each.get("type") for each in described.get("oneOf", ()))}
        yield Field(
            "body",
            name,
            name in schema.get("required", ()),
            is_list="array" in types,
            is_map="object" in types and name != "selection",
            is_nested=is_nested,
        )


def resolved(document: Any, schema: Any) -> Any:
    """Follow references."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


DOCUMENT = msgspec.to_builtins(litestar_app().openapi_schema.to_schema())
OPERATIONS = {operation.id: operation for operation in operations(DOCUMENT)}


def test_every_parameter_and_field_of_every_operation_is_listed() -> None:
    assert [text for operation in OPERATIONS.values() for text in operation.unlisted()] == []


@pytest.mark.parametrize(
    "description",
    [
        {"parameters": [{"in": "query", "name": "neighbour"}]},
        {"requestBody": {"content": {"application/json": {"schema": {"properties": {"neighbour": {}}}}}}},
    ],
    ids=["parameter", "field"],
)
def test_operation_with_an_unknown_parameter_is_noticed(description: Any) -> None:
    (new,) = operations({"paths": {"/v1/new": {"get": {"operationId": "new", **description}}}})
    assert new.unlisted() == ["new: neighbour"]


@asynccontextmanager
async def run_world() -> AsyncIterator[World]:
    """Run a service with events, a campaign, a fault, a hold and a host in the token's scope and in another one."""
    async with run_api(fleet_file=FLEET, guests=FakeGuests()) as service:
        tokens = {"admin": TOKEN} | {
            f"{role.value} of web": await service.token(f"{role.value}-team", role, *OWN) for role in Role
        }
        events, campaigns = [], []
        for scope, vm, team in (("web", "web-1", "own"), ("hushed", "db-1", "far")):
            token = await service.token(f"{team}-team", Role.OPERATOR)
            body = {"type": "Reboot", "vms": [f"{scope}/{vm}"], "notice": "1d"}
            made = await service.request("POST", "/v1/events", body, token=token)
            events.append(made.json["created"][0]["id"])
            await service.request("POST", "/v1/faults", {"kind": "slow", "vm": f"{scope}/{vm}"}, token=token)
            await service.request("POST", "/v1/holds", {"reason": team, "scope": scope}, token=token)
            campaigns.append((await start(service, asked(f"{team}-kernel", scope))).id)
        for host in ("hv-0", "hv-7"):  # a process has served them, and has gone
            await service.fleet.cluster.hosts.claim(host, "process", "hypervisor", {})
            await service.fleet.cluster.hosts.release(host, "process")
        missing_event = "E0E0E0E0-0000-0000-0000-000000000000"
        yield World(
            service,
            tokens,
            Names(events[0], events[1], missing_event),
            Names(campaigns[0], campaigns[1], missing_event),
        )


class Worlds:
    """Worlds for one operation: after a request that has changed something, the next one gets a new world."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._context: Any = None

    async def current(self) -> World:
        """Return a world in which nothing has changed."""
        if self._world is None:
            self._context = run_world()
            self._world = await self._context.__aenter__()
        return self._world

    async def discard(self) -> None:
        """End the world."""
        if self._world is not None:
            self._world = None
            await self._context.__aexit__(None, None, None)

    async def send(self, operation: Operation, caller: str, request: "Request") -> tuple[Any, ...]:
        """Send a request in an unchanged world, and return the comparable answer."""
        world = await self.current()
        before = await world.service.stored_state()
        answer = await asyncio.to_thread(_send, world, operation, world.tokens[caller], request)
        changed = operation.method != "GET" and (answer.status < 300 or await world.service.stored_state() != before)
        if changed:
            assert answer.status < 300, (operation.id, request, answer)
            await self.discard()
        return comparable(world, operation, request, answer)


class Request(msgspec.Struct, frozen=True):
    """Which thing each reference names: its field, the way to name it, and own, foreign or missing."""

    chosen: tuple[tuple[Field, int, str], ...]

    def values(self, world: World, operation: Operation) -> dict[Field, str]:
        """Return the name of each reference."""
        return {
            field: getattr(list(world.names(operation.kind_of(field) or ""))[way], which)
            for field, way, which in self.chosen
        }


def _send(world: World, operation: Operation, token: str, request: Request) -> ApiResponse:
    values = request.values(world, operation)
    path, query, body = operation.path, {}, {}
    selection: dict[str, object] = {}
    for field in operation.fields:
        value: object = values.get(field)
        if value is None:
            value = PLAIN.get((operation.id, field.name), PLAIN.get(field.name)) if field.required else None
        if value is None:
            continue
        if field.is_list:
            value = [value]
        elif field.is_map:
            key, _, text = str(value).partition("=")
            value = {key: text}
        if field.place == "path":
            path = path.replace(f"{{{field.name}}}", str(value))
        elif field.place == "query":
            query[field.name] = value
        elif field.is_nested:
            selection[field.name] = value
        else:
            body[field.name] = value
    if selection:
        body["selection"] = {"scopes": ["web"]} | selection
    content = None if operation.media_type is None else msgspec.json.encode(body)
    connection = http.client.HTTPConnection("127.0.0.1", world.service.port, timeout=GUARD)
    try:
        connection.request(
            operation.method,
            f"{path}?{urlencode(query)}" if query else path,
            content,
            {"Authorization": f"Bearer {token}", "Content-Type": operation.media_type or "application/json"},
        )
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        is_stream = "event-stream" in headers.get("content-type", "")
        return ApiResponse(answer.status, headers, b"" if is_stream else answer.read())
    finally:
        connection.close()


def comparable(world: World, operation: Operation, request: Request, answer: ApiResponse) -> tuple[Any, ...]:
    """Return status, headers and body, without the names that were asked for, random ids, date and position."""
    text = answer.body.decode()
    for field, name in request.values(world, operation).items():
        for part in (name, *name.split("/")):
            text = text.replace(part, f"<{field.name}>")
    text = GUID.sub("<id>", text)
    return answer.status, {**answer.headers, "date": "", "forewarn-position": ""}, text


def requests(world: World, operation: Operation) -> Iterator[tuple[bool, Request, Request, Request]]:
    """Return each reference as own, foreign and missing: alone, and then together with each other one as own."""
    required = tuple((field, 0, "own") for field in operation.references if field.required)

    def with_target(others: tuple[tuple[Field, int, str], ...], field: Field, way: int, which: str) -> Request:
        return Request((*(each for each in others if each[0] != field), (field, way, which)))

    for field in operation.references:
        for way, _ in enumerate(world.names(operation.kind_of(field) or "")):
            optional = ((other, 0, "own") for other in operation.references if not other.required and other != field)
            for others in (required, *((*required, other) for other in optional)):
                own, foreign, missing = (
                    with_target(others, field, way, which) for which in ("own", "foreign", "missing")
                )
                yield others == required, own, foreign, missing


def permission(operation: Operation) -> Permission:
    """Return what the operation requires."""
    for route in litestar_app().routes:
        for handler in getattr(route, "route_handlers", ()):
            if handler.operation_id == operation.id:
                need: Permission = handler.opt["need"]
                return need
    raise AssertionError(f"{operation.id} has no handler")


@pytest.mark.parametrize("id_", OPERATIONS)
async def test_another_scope_is_answered_like_a_missing_one(id_: str) -> None:
    operation = OPERATIONS[id_]
    need = permission(operation)
    worlds = Worlds()
    told_apart: list[tuple[Any, ...]] = []
    wrong_own = []
    try:
        world = await worlds.current()
        cases = list(requests(world, operation))
        for role in Role:
            caller = f"{role.value} of web"
            is_permitted = need.role is None or (role.includes(need.role) and not need.all_scopes)
            for is_alone, own, foreign, missing in cases:
                answers = [await worlds.send(operation, caller, request) for request in (foreign, missing)]
                if answers[0] != answers[1]:
                    told_apart.append((caller, _described(foreign), *answers))
                if is_alone and (operation.id, own.chosen[-1][0].name) not in FORBIDDEN_OWN:
                    own_status, *_ = await worlds.send(operation, caller, own)
                    if (own_status == 403) is is_permitted or own_status in (400, 401, 422, 500):
                        wrong_own.append((caller, _described(own), own_status))
    finally:
        await worlds.discard()
    assert told_apart == []
    assert wrong_own == []


async def test_reading_reveals_nothing_of_another_scope() -> None:
    """Every operation that reads, also lists, which name no scope. Streams have tests of their own."""
    revealed: dict[str, set[str]] = {}
    worlds = Worlds()
    try:
        world = await worlds.current()
        for operation in OPERATIONS.values():
            own = Request(tuple((field, 0, "own") for field in operation.references if field.required))
            for caller, token in world.tokens.items() if operation.method == "GET" else ():
                answer = await asyncio.to_thread(_send, world, operation, token, own)
                assert answer.status in (200, 403, 404, 409), (operation.id, caller, answer)
                if answer.status == 200 and world.reveals_foreign(answer.body.decode()):
                    revealed.setdefault(caller, set()).add(operation.id)
    finally:
        await worlds.discard()
    assert set(revealed) == {"admin"}
    assert revealed["admin"] > {"listEvents", "listVms", "listHolds", "listFaults", "listCampaigns", "readJournal"}


def _described(request: Request) -> tuple[str, ...]:
    return tuple(f"{field.name}={which} ({way})" for field, way, which in request.chosen)


async def test_unlimited_token_tells_other_scopes_from_missing_ones() -> None:
    """The other scope exists: without a limit, every operation answers differently."""
    differing = set()
    for operation in OPERATIONS.values():
        worlds = Worlds()
        try:
            for _, _, foreign, missing in requests(await worlds.current(), operation):
                answers = [await worlds.send(operation, "admin", request) for request in (foreign, missing)]
                if answers[0] != answers[1]:
                    differing.add(operation.id)
                    break
        finally:
            await worlds.discard()
    with_references = {operation.id for operation in OPERATIONS.values() if operation.references}
    assert with_references - differing == set()
