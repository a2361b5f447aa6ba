"""Idempotency keys: which requests share a digest."""

from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.core.errors import KeyConflict
from forewarn.core.idempotency import IdempotencyKey
from forewarn.fleet.errors import ScopeNotFound, VmNotFound
from forewarn.operator.parameters import change_error_specs, error_specs, provide_idempotency_key


class FakeRequest:
    """A request, as far as its key is concerned."""

    def __init__(self, path: str, body: bytes, query: bytes, user: str, method: str) -> None:
        self.scope = {"path": path, "query_string": query}
        self.user, self.method = SimpleNamespace(name=user, token=f"tk_{user}"), method
        self._body = body

    async def body(self) -> bytes:
        return self._body


async def key_of(
    path: str = "/v1/events", body: bytes = b"{}", *, query: bytes = b"", user: str = "ann", method: str = "POST"
) -> IdempotencyKey:
    request: Any = FakeRequest(path, body, query, user, method)
    key = await provide_idempotency_key(request, "k")
    assert key is not None
    return key


async def test_request_without_a_key_has_none() -> None:
    request: Any = FakeRequest("/", b"", b"", "ann", "POST")
    assert await provide_idempotency_key(request, None) is None


async def test_digest_stands_for_method_path_query_caller_and_body() -> None:
    keys = [
        await key_of(),
        await key_of("/v1/other"),
        await key_of(body=b"{ }"),
        await key_of(query=b"force=true"),
        await key_of(user="bob"),
        await key_of(method="PUT"),
    ]
    assert {(key.key, key.caller) for key in keys} == {("k", "tk_ann"), ("k", "tk_bob")}
    assert len({key.digest for key in keys}) == len(keys)
    assert await key_of() == keys[0]


@pytest.mark.parametrize(
    ("path", "now", "first"),
    [
        ("/v1/events", b'{"reason":"x"}', b'{"why":"x"}'),
        ("/v1/faults", b'{"duration":"1m"}', b'{"lasting":"1m"}'),
        ("/v1/operations/predict-failure", b'{"notice":"1d"}', b'{"ahead":"1d"}'),
    ],
)
async def test_renamed_field_has_the_digest_that_was_stored_under_its_first_name(
    path: str, now: bytes, first: bytes
) -> None:
    assert await key_of(path, now) == await key_of(path, first)
    assert await key_of("/v1/holds", now) != await key_of("/v1/holds", first)


async def test_consent_and_defaults_of_new_fields_are_not_part_of_the_digest() -> None:
    first = await key_of(body=b'{"type":"Reboot","reason":""}')
    for more in (b',"now":false', b',"unannounced":false', b',"unannounced":true', b',"now":false,"unannounced":true'):
        assert await key_of(body=b'{"type":"Reboot","reason":""' + more + b"}") == first
    assert await key_of(body=b'{"type":"Reboot","reason":"","now":true}') != first
    text = rb'{"type":"Reboot","reason":",\"unannounced\":true"}'
    assert await key_of(body=text) != first


async def test_renamed_parameter_has_the_digest_that_was_stored_under_its_first_name() -> None:
    assert await key_of(query=b"reason=x") == await key_of(query=b"why=x")


def test_responses_of_a_path_are_its_own_and_those_of_every_path() -> None:
    assert sorted(error_specs(VmNotFound)) == [400, 401, 403, 404, 421, 429]
    assert sorted(change_error_specs(KeyConflict)) == [400, 401, 403, 409, 413, 421, 422, 429, 503]


def test_response_is_described_by_its_errors_each_once() -> None:
    assert error_specs(VmNotFound, ScopeNotFound, VmNotFound)[404].description == (
        "No VM has that name. No scope has that name."
    )
    assert error_specs("store-unavailable")[503].description == "The data cannot be read now."
