"""The connection to NATS: how it logs in, and what it does without a server."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import NoRespondersError

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.connection import (
    ApiRefused,
    InvalidCredentials,
    NatsConnection,
    ResponseMissing,
    ServerUnavailable,
    parse_answer,
)
from forewarn.store.port import StoreUnavailable
from tests.support.nats_servers import NatsCluster, run_nats

pytestmark = pytest.mark.process

SEED = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"
PUBLIC = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
"""A key pair that protects nothing."""

SHORT = 1.5
"""Seconds that a connection which must fail is tried."""


async def can_call(settings: NatsSettings, patience: float = 60) -> bool:
    connection = await NatsConnection.open(settings, patience=patience)
    try:
        return "memory" in await connection.call("INFO")
    finally:
        await connection.aclose()


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ('authorization { user: "ada", password: "s3cret" }', {"password_file": "s3cret\n"}),
        ('authorization { token: "t0ken" }', {"token_file": "t0ken\n"}),
        (f'authorization {{ users: [{{ nkey: "{PUBLIC}" }}] }}', {"nkey_file": SEED}),
    ],
    ids=["password", "token", "nkey"],
)
async def test_login_with_a_secret_from_a_file(tmp_path: Path, config: str, files: dict[str, str]) -> None:
    with run_nats(tmp_path / "nats", config=config) as cluster:
        settings = cluster.settings("main")
        with pytest.raises(StoreUnavailable):
            await can_call(settings, SHORT)
        for name, secret in files.items():
            (tmp_path / name).write_text(secret)
            user = "ada" if name == "password_file" else None
            settings = replace(settings, user=user, **{name: tmp_path / name})
        assert await can_call(settings)
        if "nkey_file" not in files:
            for name in files:
                (tmp_path / name).write_text("wrong")
            with pytest.raises(StoreUnavailable):
                await can_call(settings, SHORT)


async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    names = {"cert_file": "cert.pem", "key_file": "key.pem", "ca_file": "ca.pem"}
    lines = " ".join(f'{name}: "{tmp_path / file}",' for name, file in names.items())
    with run_nats(tmp_path / "nats", config=f"tls {{ {lines} verify: true }}") as cluster:
        plain = cluster.settings("main")
        trusted = replace(plain, ca_file=tmp_path / "ca.pem")
        complete = replace(trusted, certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")
        assert await can_call(complete)
        for settings in (plain, trusted):
            with pytest.raises((StoreUnavailable, ssl.SSLError)):
                await can_call(settings, SHORT)


@pytest.mark.parametrize("name", ["password_file", "token_file", "nkey_file", "credentials_file", "ca_file"])
async def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    settings = replace(NatsSettings(servers=("nats://127.0.0.1:1",)), **{name: tmp_path / "missing"})
    with pytest.raises(InvalidCredentials, match=r"missing \(No such file"):
        await NatsConnection.open(settings)


async def test_unreachable_servers_are_named() -> None:
    settings = NatsSettings(servers=("nats://127.0.0.1:1", "nats://127.0.0.1:2"))
    with pytest.raises(StoreUnavailable, match=r"nats://127\.0\.0\.1:1, nats://127\.0\.0\.1:2"):
        await NatsConnection.open(settings, patience=1)


@pytest.mark.parametrize("error", [None, NoRespondersError()])
async def test_cancellation_together_with_the_answer_is_not_lost(
    nats_server: NatsCluster, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """As `asyncio.wait_for` of Python 3.11, by which the client waits, loses it."""
    connection = await NatsConnection.open(await nats_server.create_cell())
    is_sent = asyncio.Event()

    async def answer(*_: object, **__: object) -> str:
        is_sent.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Future()
        if error is not None:
            raise error
        return "the answer"

    monkeypatch.setattr(Client, "request", answer)
    request = asyncio.create_task(connection.request("a.subject"))
    await is_sent.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await connection.aclose()


async def test_cancelled_task_can_send_requests_to_clean_up(nats_server: NatsCluster) -> None:
    connection = await NatsConnection.open(await nats_server.create_cell())
    is_waiting = asyncio.Event()

    async def work() -> dict[str, Any]:
        try:
            is_waiting.set()
            await asyncio.Future()
        except asyncio.CancelledError:
            return await connection.call("INFO")
        raise AssertionError("it was not cancelled")

    working = asyncio.create_task(work())
    await is_waiting.wait()
    working.cancel()
    assert "memory" in await working
    await connection.aclose()


async def test_nothing_is_sent_or_kept_without_a_server(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        settings = await cluster.create_cell()
        connection = await NatsConnection.open(settings)
        cluster.servers[0].kill()
        while connection.is_connected:
            with pytest.raises((ServerUnavailable, ResponseMissing)):
                await connection.request("$JS.API.INFO")
        with pytest.raises(ServerUnavailable):
            await connection.publish(f"J.{settings.cell}", b"late")
        with pytest.raises(ServerUnavailable):
            await connection.request(f"J.{settings.cell}", b"late")
        cluster.start(cluster.servers[0])
        assert await last_sequence(cluster, settings) == 1
        await connection.aclose()


async def last_sequence(cluster: NatsCluster, settings: NatsSettings) -> int:
    connection = await NatsConnection.open(settings)
    info = await connection.call(f"STREAM.INFO.FOREWARN-{settings.cell}")
    await connection.aclose()
    sequence: int = info["state"]["last_seq"]
    return sequence


def test_error_with_a_sequence_is_an_error() -> None:
    with pytest.raises(ApiRefused) as refusal:
        parse_answer(b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"},"seq":0}')
    assert (refusal.value.code, refusal.value.description) == (10071, "wrong last sequence: 4")
