"""Permissions of hosts on a real NATS server: what a host needs works, and the rest is denied."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.compose.cell import init_cell
from forewarn.compose.host_permissions import check_host_user
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import connection as nats_connection
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.host_store import HostStore
from forewarn.store.nats.stream import CellStream
from forewarn.store.port import Record, StoreUnavailable
from tests.core.sample_scopes import scope, vm
from tests.fleet.host.clusters import GUARD_SECONDS, run_control, run_host, until
from tests.support.nats_accounts import accounts_config
from tests.support.nats_servers import NatsCluster, run_nats

pytestmark = pytest.mark.process


def settings_of(cluster: NatsCluster, directory: Path, user: str, password: str) -> NatsSettings:
    file = directory / f"{user}.password"
    file.write_text(password)
    return replace(cluster.settings("main"), user=user, password_file=file)


async def test_host_in_its_own_account_serves_its_vms_and_can_do_nothing_else(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats", config=accounts_config()) as cluster:
        control = settings_of(cluster, tmp_path, "control", "control")
        host = replace(settings_of(cluster, tmp_path, "hv-0", "host"), api_prefix="forewarn.main")
        await init_cell(control)
        web = scope("web", vm("web-0", host="hv-0"))
        async with run_control(control, tmp_path / "c", web) as fleet, run_host(host, tmp_path / "h") as on_host:
            assert [view.id for view in on_host.replica.views()] == ["web"]
            saving = on_host.last_seen.record_request(on_host.replica.view("web"))
            assert saving is not None
            await saving
            assert fleet.replica.scope("web").enabled
            report = await check_host_user(host, "hv-0")
            assert report.problems == ()
            await _let_the_server_answer_into_a_record(host, "forewarn.main")
            await _try_to_delete(host)
            reader = await NatsConnection.open(control)
            newest = await CellStream(reader, "main").read_last("$KV.main.scope.web")
            await reader.aclose()
            assert newest is not None
            assert b"consumer_create_response" not in newest.data
            await until(lambda: on_host.client.term == 1)


async def test_host_can_read_the_scopes_of_other_hosts(tmp_path: Path) -> None:
    """NATS cannot limit what the one consumer of a host reads."""
    with run_nats(tmp_path / "nats", config=accounts_config()) as cluster:
        control = settings_of(cluster, tmp_path, "control", "control")
        host = replace(settings_of(cluster, tmp_path, "hv-0", "host"), api_prefix="forewarn.main")
        await init_cell(control)
        async with run_control(control, tmp_path / "c", scope("db", vm("db-0", host="hv-1"))):
            (tmp_path / "h").mkdir()
            records = await HostStore.open(host, "hv-0", tmp_path / "h")
            records.follow(["db"])
            async with asyncio.timeout(GUARD_SECONDS), records.watch() as changes:
                async for change in changes:
                    if isinstance(change, Record) and change.key.id == "db":
                        break
            await records.aclose()


async def test_check_fails_for_a_user_that_may_write(tmp_path: Path) -> None:
    with run_nats(tmp_path / "nats") as cluster:
        settings = await cluster.create_cell("main")
        report = await check_host_user(settings, "hv-0")
        assert report.problems[0] == "the user of host hv-0 may write records"
        for what in (
            "write leases",
            "receive commands of hosts",
            "change the stream",
            "delete consumers of other hosts",
        ):
            assert f"the user of host hv-0 may {what}" in report.problems
        assert any("account of their own" in problem for problem in report.problems)
        reader = await NatsConnection.open(settings)
        state = await CellStream(reader, "main").read_state()
        await reader.aclose()
        assert state.last == 1  # the check has written nothing


async def test_check_of_a_server_that_does_not_answer_is_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence of a server is not a proof that it denies everything."""
    monkeypatch.setattr(nats_connection, "FLUSH_SECONDS", 1)
    with run_nats(tmp_path / "nats", config=accounts_config()) as cluster:
        host = replace(settings_of(cluster, tmp_path, "hv-0", "host"), api_prefix="forewarn.main")
        opened = NatsConnection.open

        async def open_and_stop(settings: NatsSettings, **options: Any) -> NatsConnection:
            connection = await opened(settings, **options)
            cluster.servers[0].send_signal(signal.SIGSTOP)
            return connection

        monkeypatch.setattr(NatsConnection, "open", open_and_stop)
        try:
            with pytest.raises(StoreUnavailable, match="the check was not completed"):
                await check_host_user(host, "hv-0")
        finally:
            cluster.servers[0].send_signal(signal.SIGCONT)


async def _try_to_delete(settings: NatsSettings) -> None:
    """Try what the check cannot try, because it would have its effect."""
    connection = await NatsConnection.open(settings, inbox="_INBOX.hv-0")
    for prefix in ("$JS.API", "forewarn.main"):
        for function in ("STREAM.DELETE", "STREAM.PURGE", "STREAM.LEADER.STEPDOWN"):
            await connection.publish(f"{prefix}.{function}.FOREWARN-main", b"", reply="_INBOX.hv-0.answer")
    await connection.flush()
    await connection.aclose()


async def _let_the_server_answer_into_a_record(settings: NatsSettings, prefix: str) -> None:
    """Create a consumer, with a record as the subject of the answer."""
    connection = await NatsConnection.open(settings, inbox="_INBOX.hv-0")
    body = json.dumps({"stream_name": "FOREWARN-main", "config": {"name": "hv-0-follow"}}).encode()
    subject = f"{prefix}.CONSUMER.CREATE.FOREWARN-main.hv-0-follow"
    await connection.publish(subject, body, reply="$KV.main.scope.web")
    await connection.flush()
    await asyncio.sleep(0)
    await connection.aclose()
