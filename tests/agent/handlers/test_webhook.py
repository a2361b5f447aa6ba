"""The webhook handler (kind "http"): requests, responses, and that secrets stay secret."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
import trustme

from forewarn.agent.handlers.base import Done, Failed, Phase, Retry
from forewarn.agent.handlers.webhook import WebhookHandler
from forewarn.agent.settings import WebhookSettings
from forewarn.clock import ManualClock
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, RECOVER, handler_context
from tests.support.processes import free_ports
from tests.support.recording_server import RecordingServer, run_recording_server

SECRET = "s3cret-of-the-hook"


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        yield web


def hook(**settings: Any) -> WebhookHandler:
    return WebhookHandler(WebhookSettings(name="hook", **settings), clock=ManualClock(NOW))


def secret_file(path: Path, text: str = SECRET) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


async def test_default_body_is_json_with_all_facts(web: RecordingServer) -> None:
    assert await hook(url=web.url).prepare(PREPARE) == Done()
    (received,) = web.received
    assert received.request_line == "POST /hook HTTP/1.1"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["host"] == f"127.0.0.1:{web.port}"
    assert "authorization" not in received.headers
    assert json.loads(received.body) == {
        "id": EVENT.id,
        "type": "Reboot",
        "status": "Scheduled",
        "source": "Platform",
        "description": EVENT.description,
        "not_before": "2026-11-16T10:15:00Z",
        "duration": 9,
        "resources": ["web_0", "web_1"],
        "name": "web_0",
        "phase": "prepare",
        "attempt": 1,
        "seconds_left": 900,
        "leader": True,
    }


async def test_json_template_escapes_facts(web: RecordingServer) -> None:
    body = '{"text": "$type of $name: $description", "cost": "5 $$", "left": $seconds_left}'
    assert await hook(url=web.url, body=body).prepare(PREPARE) == Done()
    assert json.loads(web.received[0].body) == {
        "text": f"Reboot of web_0: {EVENT.description}",
        "cost": "5 $",
        "left": 900,
    }


async def test_form_template_escapes_facts(web: RecordingServer) -> None:
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    body = "text=$description&names=$resources&leader=$leader"
    assert await hook(url=web.url, body=body, content_type=kind).prepare(PREPARE) == Done()
    sent = parse_qs(web.received[0].body.decode())
    assert sent == {"text": [EVENT.description], "names": ["web_0, web_1"], "leader": ["yes"]}


async def test_text_template_does_not_escape_facts(web: RecordingServer) -> None:
    event = msgspec.structs.replace(EVENT, description=None, duration=None)
    handler = hook(url=web.url, body="$type takes $duration: $description", content_type="text/plain")
    assert await handler.prepare(handler_context(event=event)) == Done()
    assert web.received[0].body == b"Reboot takes unknown: unknown"


async def test_secret_file_is_sent_in_a_header(web: RecordingServer, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "secret")
    assert await hook(url=web.url, secret_file=path).prepare(PREPARE) == Done()
    assert await hook(url=web.url, secret_file=path, header="X-Key", prefix="").prepare(PREPARE) == Done()
    assert web.received[0].headers["authorization"] == f"Bearer {SECRET}"
    assert web.received[1].headers["x-key"] == SECRET


async def test_secret_is_read_for_each_request(web: RecordingServer, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "secret", "old-secret")
    handler = hook(url=web.url, secret_file=path)
    assert await handler.prepare(PREPARE) == Done()
    secret_file(path, "new-secret")
    assert await handler.prepare(PREPARE) == Done()
    assert [each.headers["authorization"] for each in web.received] == ["Bearer old-secret", "Bearer new-secret"]


async def test_url_may_be_secret_itself(web: RecordingServer, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "url", f"{web.url}/T00/B00/xyzzy?key=plugh")
    handler = hook(url_file=path)
    assert await handler.prepare(PREPARE) == Done()
    assert web.received[0].request_line == "POST /hook/T00/B00/xyzzy?key=plugh HTTP/1.1"
    web.response = b"HTTP/1.1 500 Oh\r\n\r\n"
    assert await handler.prepare(PREPARE) == Retry(f"http://127.0.0.1:{web.port} answered 500")


async def test_credentials_of_a_url_are_sent_as_basic_authentication(web: RecordingServer, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "url", f"http://admin:p%40ss@127.0.0.1:{web.port}/x")
    assert await hook(url_file=path).prepare(PREPARE) == Done()
    (received,) = web.received
    assert received.headers["authorization"] == "Basic YWRtaW46cEBzcw=="
    assert (received.request_line, received.headers["host"]) == ("POST /x HTTP/1.1", f"127.0.0.1:{web.port}")


async def test_errors_contain_no_secret(web: RecordingServer, tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    told: list[str] = []
    answers = (b"HTTP/1.1 401 No\r\n\r\n", b"HTTP/1.1 302 F\r\nLocation: /xyzzy\r\n\r\n", b"xyzzy " + SECRET.encode())
    for port, answer in [(web.port, answer) for answer in answers] + [(nobody, b"")]:
        web.response = answer
        url = secret_file(tmp_path / "url", f"http://user:plugh@127.0.0.1:{port}/xyzzy")
        handler = WebhookHandler(
            WebhookSettings(name="hook", url_file=url, secret_file=secret_file(tmp_path / "secret")), hide=told.append
        )
        ended = await handler.prepare(PREPARE)
        assert isinstance(ended, Retry | Failed)
        assert not any(word in ended.reason for word in (SECRET, "xyzzy", "plugh")), ended.reason
        assert not any(SECRET in problem for problem in await handler.check())
    assert SECRET in told, "the secret is registered for redaction"


ANSWERS = {
    "200": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Done()),
    "202 of an old server": (b"HTTP/1.0 202\r\n\r\n", Done()),
    "interim response": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Done()),
    "redirect": (
        b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\n\r\n",
        Failed("{} answered 301: redirects are not followed; configure the target URL"),
    ),
    "refused": (b"HTTP/1.1 403 Forbidden\r\n\r\n", Failed("{} answered 403")),
    "too much": (b"HTTP/1.1 429 Slow down\r\n\r\n", Retry("{} answered 429")),
    "broken": (b"HTTP/1.1 503 Later\r\n\r\n", Retry("{} answered 503")),
    "something else": (
        b"220 mail.example ESMTP\r\n",
        Retry("{} sent an invalid response: it is not HTTP"),
    ),
    "a line without end": (b"x" * 100_000, Retry("{} sent an invalid response: it is not HTTP")),
}


@pytest.mark.parametrize(("answer", "ended"), ANSWERS.values(), ids=ANSWERS)
async def test_response_status_decides_the_result(
    web: RecordingServer, answer: bytes, ended: Done | Retry | Failed
) -> None:
    web.response = answer
    expected = ended if isinstance(ended, Done) else type(ended)(ended.reason.format(f"http://127.0.0.1:{web.port}"))
    assert await hook(url=web.url).prepare(PREPARE) == expected


async def test_closed_connection_is_retried(web: RecordingServer) -> None:
    web.response = b""
    assert isinstance(await hook(url=web.url).prepare(PREPARE), Retry)


async def test_notification_is_retried_as_configured(web: RecordingServer) -> None:
    web.response = b"HTTP/1.1 503 Later\r\n\r\n"
    handler = hook(url=web.url, phases=(Phase.NOTICE, Phase.PREPARE), retries=2, pause=timedelta(0))
    assert isinstance(await handler.notify(handler_context(Phase.NOTICE)), Retry)
    assert len(web.received) == 3
    assert isinstance(await handler.prepare(PREPARE), Retry)
    assert len(web.received) == 4, "the daemon retries calls"
    web.response = b"HTTP/1.1 400 No\r\n\r\n"
    assert isinstance(await handler.notify(handler_context(Phase.NOTICE)), Failed)
    assert len(web.received) == 5, "a permanent failure is not retried"


async def test_unreachable_server_is_retried() -> None:
    (nobody,) = free_ports(1)
    assert isinstance(await hook(url=f"http://127.0.0.1:{nobody}/").prepare(PREPARE), Retry)


async def test_request_times_out() -> None:
    asked = asyncio.Event()
    hung_up = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        while await reader.read(65_536):
            pass
        hung_up.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        sending = asyncio.create_task(hook(url=url).prepare(PREPARE))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await hung_up.wait()


async def test_no_proxy_is_used(web: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_recording_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert await hook(url=web.url).prepare(PREPARE) == Done()
        assert (len(web.received), len(proxy.received)) == (1, 0)


async def test_only_configured_phases_are_sent_and_each_once(web: RecordingServer) -> None:
    async def notified_phases(handler: WebhookHandler) -> list[str]:
        web.received.clear()
        for phase in Phase:
            assert await handler.notify(handler_context(phase)) == Done()
            if phase is Phase.PREPARE:
                assert await handler.prepare(PREPARE) == Done()
            if phase is Phase.RECOVER:
                assert await handler.recover(RECOVER) == Done()
        return [json.loads(received.body)["phase"] for received in web.received]

    assert await notified_phases(hook(url=web.url)) == ["prepare", "recover"]
    assert await notified_phases(hook(url=web.url, phases=tuple(Phase))) == [phase.value for phase in Phase]
    assert await notified_phases(hook(url=web.url, phases=(Phase.NOTICE,))) == ["notice"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_request_without_a_body(web: RecordingServer, method: str) -> None:
    assert await hook(url=web.url, method=method).prepare(PREPARE) == Done()
    (received,) = web.received
    assert (received.request_line, received.body) == (f"{method} /hook HTTP/1.1", b"")
    assert "content-type" not in received.headers


async def test_certificate_is_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with run_recording_server(tls) as web:
        url = f"https://127.0.0.1:{web.port}/hook"
        assert await hook(url=url, ca=tmp_path / "ca.pem").prepare(PREPARE) == Done()
        ended = await hook(url=url).prepare(PREPARE)
    assert isinstance(ended, Failed)
    assert ended.reason.startswith(f"https://127.0.0.1:{web.port} is not trusted: ")
    assert len(web.received) == 1


async def test_check_reads_files_resolves_names_and_sends_nothing(web: RecordingServer, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "secret")
    assert await hook(url=web.url, secret_file=path).check() == []
    path.chmod(0o644)
    readable = f"{path} is world-readable: chmod o-r {path}"
    assert await hook(url=web.url, secret_file=path).check() == [readable]
    missing = f"cannot read {tmp_path / 'none'}: No such file or directory"
    assert await hook(url=web.url, secret_file=tmp_path / "none").check() == [missing]
    assert await hook(url=web.url, secret_file=tmp_path / "none").prepare(PREPARE) == Failed(missing)
    not_a_url = secret_file(tmp_path / "url", "ftp://x")
    assert await hook(url_file=not_a_url).check() == [f"{not_a_url} does not contain an http or https URL"]
    unknown = await hook(url="http://nowhere.invalid/").check()
    assert len(unknown) == 1
    assert unknown[0].startswith("cannot resolve nowhere.invalid")
    assert web.received == []


FILES = {
    "empty": ("\n# only a comment\n", "{} is empty"),
    "two lines": ("one-secret\nanother\n", "{} has more than one line"),
    "unprintable": ("a\x00b\n", "{} contains unprintable characters"),
}


@pytest.mark.parametrize(("text", "why"), FILES.values(), ids=FILES)
async def test_invalid_secret_file_is_reported(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    ended = await hook(url="http://127.0.0.1:1/", secret_file=path).prepare(PREPARE)
    assert ended == Failed(why.format(path))


def test_handler_has_the_limits_of_its_settings() -> None:
    handler = hook(url="http://h/", importance=7, time_limit=timedelta(seconds=3), retries=4, pause=timedelta(0))
    assert (handler.importance, handler.time_limit, handler.retries, handler.pause) == (
        7,
        timedelta(seconds=3),
        4,
        timedelta(0),
    )
