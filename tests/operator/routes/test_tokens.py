"""Tokens: create, list and revoke, with journal entries; a secret is shown only once."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.access import Role
from forewarn.core.journal import EntryKind
from forewarn.store.port import JournalQuery
from tests.operator.running_api import TOKEN, RunningApi, run_api


async def test_token_is_created_used_and_revoked() -> None:
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    ask = v1.CreateToken(name="ann", role=Role.OPERATOR, scopes=["web", "db-*"], expires_at=expires_at)
    async with run_api() as service:
        made = await service.client(lambda api: api.create_token(ask))
        mine = await service.request("GET", "/v1/me", token=made.secret)
        listed = await service.client(lambda api: api.tokens())
        await service.client(lambda api: api.revoke_token(made.token.id, reason="she has left"))
        refused = await service.request("GET", "/v1/me", token=made.secret)
        after = await service.client(lambda api: api.tokens())
        journal = await tokens_journal(service)
    assert mine.json == {"name": "ann", "role": "operator", "scopes": ["web", "db-*"]}
    assert [(token.name, token.role, token.created_by) for token in listed.tokens] == [
        ("admin", Role.ADMIN, "test"),
        ("ann", Role.OPERATOR, "admin"),
    ]
    assert listed.tokens[1] == made.token
    assert (made.token.expires_at, made.token.revoked_at) == (expires_at, None)
    assert (refused.status, after.tokens[1].revoked_at is None) == (401, False)
    assert journal == [
        (EntryKind.TOKEN_CREATED, "test", "", {"name": "admin", "role": "admin"}),
        (EntryKind.TOKEN_CREATED, "admin", "", {"name": "ann", "role": "operator", "scopes": "web db-*"}),
        (EntryKind.TOKEN_REVOKED, "admin", "she has left", {"name": "ann", "role": "operator", "scopes": "web db-*"}),
    ]


async def tokens_journal(service: RunningApi) -> list[tuple[EntryKind, str, str, dict[str, str]]]:
    rows = await service.store.journal(JournalQuery(kinds=(EntryKind.TOKEN_CREATED, EntryKind.TOKEN_REVOKED)))
    return [(row.entry.kind, row.entry.by, row.entry.why, row.entry.facts) for row in rows]


async def test_journal_names_the_actor() -> None:
    async with run_api() as service:
        for name in ("ann", "bob"):
            token = await service.token(name, Role.OPERATOR)
            await service.request("POST", "/v1/vms", {"name": f"vm-of-{name}"}, token=token)
            await service.request("POST", "/v1/events", {"type": "Freeze", "vms": [f"vm-of-{name}"]}, token=token)
        rows = await service.store.journal(JournalQuery(kinds=(EntryKind.SCOPE_CREATED, EntryKind.SCHEDULED)))
    assert [(row.key.id, row.entry.by) for row in rows if row.entry.by != "test"] == [
        ("vm-of-ann", "ann"),
        ("vm-of-ann", "ann"),
        ("vm-of-bob", "bob"),
        ("vm-of-bob", "bob"),
    ]


async def test_secret_is_shown_once() -> None:
    body = {"name": "ann", "role": "viewer"}
    async with run_api() as service:
        first = await service.request("POST", "/v1/tokens", body, Idempotency_Key="k")
        again = await service.request("POST", "/v1/tokens", body, Idempotency_Key="k")
        tokens = await service.client(lambda api: [token.name for token in api.tokens().tokens])
    assert (first.status, again.status, again.code, tokens) == (201, 409, "secret-already-shown", ["admin", "ann"])
    assert again.json["error"]["details"] == {"token": first.json["token"]["id"], "token_name": "ann"}


async def test_revoking_again_changes_nothing() -> None:
    async with run_api() as service:
        made = await service.client(lambda api: api.create_token(v1.CreateToken(name="ann", role=Role.VIEWER)))
        path = f"/v1/tokens/{made.token.id}"
        statuses = [(await service.request("DELETE", path, Idempotency_Key=key)).status for key in ("a", "a", "b")]
        journal = await tokens_journal(service)
    assert (statuses, [did for did, *_ in journal].count(EntryKind.TOKEN_REVOKED)) == ([204, 204, 204], 1)


async def test_first_token_can_be_revoked_permanently() -> None:
    async with run_api() as service:
        (admin,) = (await service.client(lambda api: api.tokens())).tokens
        refused = await service.request("DELETE", f"/v1/tokens/{admin.id}")
        assert (refused.status, refused.code) == (409, "last-admin-token")
        assert refused.json["error"]["details"] == {"token": admin.id, "token_name": "admin"}
        await service.client(lambda api: api.revoke_token(admin.id, force=True))
        await service.fleet.tokens.adopt(TOKEN, by="next start")
        with pytest.raises(RequestRefused):
            await service.client(lambda api: api.me())


IMPOSSIBLE: dict[str, tuple[str, str, object, int, str]] = {
    "unknown role": ("POST", "/v1/tokens", {"name": "x", "role": "root"}, 400, "invalid-request"),
    "unknown field": ("POST", "/v1/tokens", {"name": "x", "role": "viewer", "scope": "web"}, 400, "invalid-request"),
    "invalid name": ("POST", "/v1/tokens", {"name": "two words", "role": "viewer"}, 422, "invalid-value"),
    "wrong pattern": ("POST", "/v1/tokens", {"name": "x", "role": "viewer", "scopes": ["web/*"]}, 422, "invalid-value"),
    "existing name": ("POST", "/v1/tokens", {"name": "Admin", "role": "viewer"}, 409, "resource-exists"),
    "already expired": (
        "POST", "/v1/tokens", {"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"},
        422, "invalid-value",
    ),
    "time outside of UTC": (
        "POST", "/v1/tokens", {"name": "x", "role": "viewer", "expires_at": "9999-12-31T23:59:59-05:00"},
        422, "invalid-value",
    ),
    "unknown token": ("DELETE", "/v1/tokens/tk_000000000000", None, 404, "token-not-found"),
    "secret as id": ("DELETE", f"/v1/tokens/{TOKEN}", None, 404, "token-not-found"),
}  # fmt: skip


async def test_impossible_request_is_refused_and_changes_nothing() -> None:
    answers = {}
    async with run_api() as service:
        before = await service.stored_state()
        for case, (method, path, body, _, _) in IMPOSSIBLE.items():
            reply = await service.request(method, path, body)
            answers[case] = (reply.status, reply.code)
            assert await service.stored_state() == before, case
    assert answers == {case: (status, code) for case, (_, _, _, status, code) in IMPOSSIBLE.items()}


async def test_unknown_token_is_not_found() -> None:
    async with run_api() as service:
        with pytest.raises(NotFound, match="there is no token tk_0"):
            await service.client(lambda api: api.revoke_token("tk_0"))
