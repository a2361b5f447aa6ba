"""The operator API as an application: its routes, and that services share its handlers."""

import asyncio
import logging
import random
import re
from contextlib import suppress

import pytest

from forewarn.operator import limits
from forewarn.operator.app import BODY_BYTES, litestar_app, preload
from forewarn.operator.dashboard.session_middleware import is_dashboard_path
from forewarn.operator.error_responses import internal_error_response
from tests.guest.test_parser import EVERY
from tests.operator.running_api import GUARD, TOKEN, run_api
from tests.operator.test_request_reader import with_host


def test_handlers_are_put_together_once_for_all_services() -> None:
    preload()
    assert litestar_app() is litestar_app()


def test_every_path_is_of_the_api_of_the_dashboard_or_of_the_service_itself() -> None:
    paths = {route.path.partition("{")[0] for route in litestar_app().routes}
    others = {path for path in paths if not path.startswith("/v1/") and not is_dashboard_path(path)}
    assert {"/healthz", "/readyz", "/metrics", "/openapi.json"} <= others
    assert all(path.count("/") <= 2 for path in others)


def test_unexpected_error_has_a_handler() -> None:
    assert litestar_app().exception_handlers[Exception] is internal_error_response


async def test_body_over_the_limit_is_refused() -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", b" " * (BODY_BYTES + 1))
    assert (reply.status, reply.code) == (413, "body-too-large")


async def test_services_of_one_process_answer_each_for_itself() -> None:
    one_file, other_file = (f'[[scopes]]\nname = "{name}"\nkind = "standalone"\n' for name in ("one", "other"))
    async with run_api(fleet_file=one_file) as one, run_api(fleet_file=other_file) as other:
        names = [
            [vm["name"] for vm in (await service.request("GET", "/v1/vms")).json["vms"]] for service in (one, other)
        ]
    assert names == [["one"], ["other"]]


def damaged(chance: random.Random, token: str | None) -> bytes:
    """Return requests with random damage, or nothing but noise."""
    head = b"" if token is None else f"Authorization: Bearer {token}\r\n".encode()
    paths = (b"/healthz", b"/v1/events", b"/openapi.json", b"/v1/fleet/import", b"/v1/vms/web-0")
    samples = [
        raw.replace(b" / ", b" %b " % chance.choice(paths)).replace(b"Host: x\r\n", b"Host: x\r\n" + head)
        for raw in map(with_host, [raw for raw, _ in EVERY.values()])
    ]
    raw = bytearray(b"".join(chance.choice(samples) for _ in range(chance.randint(1, 4))))
    for _ in range(chance.randint(0, 5)):
        at = chance.randrange(len(raw))
        raw[at : at + chance.randint(0, 4)] = chance.choice((b"\n", b"\r\n", b"\0", b"%", b"{", chance.randbytes(3)))
    return bytes(raw) if chance.random() < 0.9 else chance.randbytes(200)


@pytest.mark.parametrize("token", [None, "wrong", TOKEN], ids=["no token", "wrong token", "right token"])
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_that_callers_send_floods_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, seed: int, token: str | None
) -> None:
    """One line about the caller, never a traceback, and everything is counted. The seed is in the test's name."""
    monkeypatch.setattr(limits, "LOG_INTERVAL", 100 * GUARD)
    chance = random.Random(seed)
    async with run_api() as service:
        for _ in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            raw = damaged(chance, token)
            cut = chance.randint(0, len(raw))
            writer.write(raw[:cut])
            await asyncio.sleep(0)
            writer.write(raw[cut:])
            if chance.random() < 0.8:
                writer.write_eof()
                async with asyncio.timeout(GUARD):
                    with suppress(ConnectionResetError):
                        while await reader.read(100_000):
                            pass
            writer.close()
            with suppress(ConnectionResetError, BrokenPipeError):
                await writer.wait_closed()
        text = (await service.request("GET", "/metrics")).body.decode()
    errors = re.findall(r'^forewarn_operator_protocol_errors_total\{reason="malformed"\} (\S+)$', text, re.MULTILINE)
    assert float(errors[0]) > 5
    lines = [record for record in caplog.records if record.levelno > logging.INFO]
    assert [record.getMessage() for record in lines if record.exc_info] == []
    assert {record.name for record in lines} == {"forewarn.operator.limits"}
    assert 1 <= len(lines) <= (2 if token == "wrong" else 1)
