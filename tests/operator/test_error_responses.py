"""Every error of the rules, the fleet and the operator API has its response."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar import Request
from litestar.exceptions import HTTPException, ImproperlyConfiguredException, InternalServerException
from litestar.types import HTTPScope

import forewarn.fleet.importer
from forewarn.core.errors import CoreError
from forewarn.fleet.errors import AmbiguousVm, FleetError, PositionNotReached, ScopeNotFound, VmNotFound
from forewarn.operator.error_responses import (
    CLIENT_GONE,
    OTHER_ERRORS,
    STATUS_BY_ERROR,
    http_error_response,
    meaning_of,
    statuses_by_code,
)
from forewarn.operator.errors import OperatorError, ScopeNotAllowed, TokenNotAllowed, TokenVmNotFound
from tests.operator.running_api import GUARD, TOKEN, run_api

NEVER_ASKED_FOR = {forewarn.fleet.importer.FleetFileConflict}
"""Raised only while the service starts."""


def tree(error: type[Exception]) -> Iterator[type[Exception]]:
    yield error
    for below in error.__subclasses__():
        yield from tree(below)


@pytest.mark.parametrize("root", [CoreError, FleetError, OperatorError])
def test_every_error_has_a_row(root: type[Exception]) -> None:
    ours = {error for error in tree(root) if error.__module__.startswith("forewarn.")}
    ours = {error for error in ours if not error.__module__.startswith("forewarn.testing.")}
    assert ours - NEVER_ASKED_FOR - set(STATUS_BY_ERROR) == set()


def test_errors_with_one_code_have_one_status() -> None:
    statuses = statuses_by_code()
    assert {error: status for error, status in STATUS_BY_ERROR.items() if statuses[error.code] != status} == {}


async def test_openapi_document_lists_every_code_with_its_status() -> None:
    async with run_api() as service:
        description = (await service.request("GET", "/openapi.json")).json
    text = description["components"]["schemas"]["ErrorBody"]["properties"]["code"]["description"]
    assert dict(re.findall(r"^- `([a-z-]+)` \((\d+)\)", text, re.MULTILINE)) == {
        code: str(status) for code, status in statuses_by_code().items()
    }
    assert "- `notice-too-short` (409) The event would start before the minimum notice of its type is over." in text


async def test_openapi_document_describes_the_errors_of_a_path_by_status() -> None:
    async with run_api() as service:
        path = (await service.request("GET", "/openapi.json")).json["paths"]["/v1/vms/{vm}"]
    responses = {status: response["description"] for status, response in path["get"]["responses"].items()}
    assert {status: text for status, text in responses.items() if status >= "400"} == {
        "400": "The request is malformed.",
        "401": "The request has no token. The token is wrong, expired or revoked.",
        "403": f"{meaning_of(TokenNotAllowed)} {meaning_of(ScopeNotAllowed)}",
        "404": f"{meaning_of(VmNotFound)} {meaning_of(TokenVmNotFound)} {meaning_of(ScopeNotFound)}",
        "409": meaning_of(AmbiguousVm),
        "421": "The request is for another host name.",
        "429": "Too many wrong tokens came from this address.",
        "503": meaning_of(PositionNotReached),
    }


@pytest.mark.parametrize(
    ("path", "status", "fact"),
    [
        ("/v1/campaigns", "409", "A VM, address, token or open campaign of that name already exists."),
        ("/v1/tokens", "409", "A VM, address, token or open campaign of that name already exists."),
        ("/v1/fleet/import", "422", "`key` and `problem`"),
        ("/v1/scenario-runs", "422", "`line` and `column`"),
    ],
)
async def test_openapi_document_has_the_reason_and_the_details_of_an_error(path: str, status: str, fact: str) -> None:
    async with run_api() as service:
        post = (await service.request("GET", "/openapi.json")).json["paths"][path]["post"]
    assert fact in post["responses"][status]["description"]


async def test_openapi_document_has_the_rule_for_advancing_the_clock() -> None:
    async with run_api() as service:
        post = (await service.request("GET", "/openapi.json")).json["paths"]["/v1/clock/advance"]["post"]
    assert "exactly one of `duration` and `to_next_change`" in post["description"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InternalServerException(CLIENT_GONE), 400, "invalid-request"),
        (InternalServerException(), 500, "internal-error"),
        (ImproperlyConfiguredException("Unable to serialize response content"), 500, "internal-error"),
    ],
)
def test_only_a_client_that_leaves_turns_an_error_of_litestar_into_a_malformed_request(
    error: HTTPException, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    scope: HTTPScope = {"type": "http", "method": "GET", "path": "/v1/events", "headers": []}  # type: ignore[typeddict-item]  # nothing else is read
    response = http_error_response(Request(scope), error)
    assert (response.status_code, response.content.error.code) == (status, code)
    assert [record.getMessage() for record in caplog.records] == ["GET /v1/events failed"] * (status == 500)


async def test_client_that_leaves_within_its_body_is_no_error_of_the_service(caplog: pytest.LogCaptureFixture) -> None:
    fields = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}", "Content-Length": "99", "Expect": "100-continue"}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    async with run_api() as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(f"POST /v1/events HTTP/1.1\r\n{head}\r\n".encode())
        async with asyncio.timeout(GUARD):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        writer.write(b"{")
        writer.transport.abort()
        await service.request("GET", "/v1/events")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_openapi_document_has_every_operation() -> None:
    files = (Path(__file__).parents[2] / "src/forewarn/operator").rglob("*.py")
    declared = {id_ for path in files for id_ in re.findall(r'operation_id="(\w+)"', path.read_text())}
    async with run_api() as service:
        paths = (await service.request("GET", "/openapi.json")).json["paths"]
    described = {operation["operationId"] for operations in paths.values() for operation in operations.values()}
    assert declared - described == set()


def test_meaning_of_an_error_is_a_sentence() -> None:
    assert [error for error in (*STATUS_BY_ERROR, *OTHER_ERRORS) if not meaning_of(error).endswith(".")] == []


def test_codes_are_kebab_case() -> None:
    assert {error.code for error in STATUS_BY_ERROR if not error.code.replace("-", "").isalpha()} == set()


@pytest.mark.parametrize(
    ("method", "path", "headers", "name"),
    [
        ("GET", "/v1/journal?action=exploded", {}, "action"),
        ("GET", "/v1/events?status=x", {}, "status"),
        ("GET", "/v1/events?limit=0", {}, "limit"),
        ("GET", "/v1/vms?name=", {}, "name"),
        ("GET", "/v1/journal?actor=", {}, "actor"),
        ("GET", "/v1/watch", {"Last_Event_ID": "x"}, "Last-Event-ID"),
        ("POST", "/v1/holds", {"Idempotency_Key": "a b"}, "Idempotency-Key"),
    ],
)
async def test_error_has_the_public_name_of_the_parameter(
    method: str, path: str, headers: dict[str, str], name: str
) -> None:
    async with run_api() as service:
        body = {"reason": "x"} if method == "POST" else None
        reply = await service.request(method, path, body, **headers)
    assert (reply.status, reply.json["error"]["message"].partition(":")[0]) == (400, name)


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/v1/events?status=x", None, "status: 'x' is not one of Scheduled and Started"),
        ("/v1/journal?action=held&action=x", None, "action: 'x' is not one of scope-created, "),
        ("/v1/scopes", {"id": "x", "kind": "y"}, "kind: 'y' is not one of standalone, cloud-service, "),
        ("/v1/scopes", {"id": "x", "kind": "standalone", "os": "y"}, "os: 'y' is not one of linux and windows"),
        (
            "/v1/scopes",
            {"id": "x", "kind": "standalone", "auto_approve": ["y"]},
            "auto_approve[0]: 'y' is not one of Reboot and Redeploy",
        ),
    ],
)
async def test_invalid_enum_value_is_reported_with_allowed_values(path: str, body: object, sentence: str) -> None:
    async with run_api() as service:
        reply = await service.request("GET" if body is None else "POST", path, body)
    assert (reply.status, reply.json["error"]["message"][: len(sentence)]) == (400, sentence)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/v1/vms/x", "there is no VM x; `forewarn vm list` shows them"),
        ("/v1/scopes/x", "there is no scope x; `forewarn scope list` shows them"),
        ("/v1/hosts/x", "no VM is on a host x; `forewarn host list` shows them"),
        ("/v1/campaigns/x", "there is no campaign x; `forewarn campaign list --all` shows them"),
    ],
)
async def test_not_found_errors_have_a_hint(path: str, sentence: str) -> None:
    async with run_api() as service:
        reply = await service.request("GET", path)
    assert (reply.status, reply.json["error"]["message"]) == (404, sentence)


@pytest.mark.parametrize("path", ["scopes?name", "vms?scope", "vms?tag", "events?host", "events?vm", "journal?event"])
async def test_empty_filter_is_refused(path: str) -> None:
    name = path.partition("?")[2]
    async with run_api() as service:
        reply = await service.request("GET", f"/v1/{path}=")
    sentence = f"{name}: must not be empty; omit it to match everything (see /openapi.json)"
    assert (reply.status, reply.json["error"]["message"]) == (400, sentence)
