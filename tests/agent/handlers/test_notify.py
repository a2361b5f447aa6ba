"""The notify handler: messages sent with Apprise."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.handlers.base import Done, Failed, Phase, Retry
from forewarn.agent.handlers.notify import MISSING, NotifyHandler
from forewarn.agent.settings import NotifySettings
from forewarn.clock import ManualClock
from tests.agent.handlers.handler_contexts import NO_NOTES, NOW, handler_context
from tests.support.processes import free_ports
from tests.support.recording_server import RecordingServer, run_recording_server


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        web.response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        yield web


def urls(path: Path, *lines: str) -> Path:
    path.write_text("# recipients\n\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def notify(path: Path, **settings: Any) -> NotifyHandler:
    return NotifyHandler(NotifySettings(name="people", urls_file=path, **settings), NO_NOTES, clock=ManualClock(NOW))


@pytest.mark.process
async def test_message_is_sent_with_apprise(web: RecordingServer, tmp_path: Path) -> None:
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/one", f"json://127.0.0.1:{web.port}/two")
    assert await notify(path, body="$description").notify(handler_context(Phase.NOTICE)) == Done()
    assert sorted(received.request_line.split()[1].rstrip("/") for received in web.received) == ["/one", "/two"]
    sent = json.loads(web.received[0].body)
    assert sent["title"] == "Reboot of web_0: notice"
    assert "$(reboot) <now>" in sent["message"]


@pytest.mark.process
async def test_messages_are_sent_at_notice_and_recovery_by_default(web: RecordingServer, tmp_path: Path) -> None:
    handler = notify(urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/"))
    for phase in Phase:
        assert await handler.notify(handler_context(phase)) == Done()
    told = [json.loads(received.body)["title"] for received in web.received]
    assert told == ["Reboot of web_0: notice", "Reboot of web_0: recover"]


@pytest.mark.process
async def test_failed_message_is_retried(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{nobody}/")
    handler = notify(path, retries=1, pause=timedelta(0))
    assert await handler.notify(handler_context(Phase.NOTICE)) == Retry(f"could not send to every URL of {path}")


@pytest.mark.process
async def test_invalid_url_is_named_only_by_its_number(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = urls(tmp_path / "urls", "json://127.0.0.1:1/", "nothing://user:s3cret@host/")
    why = f"{path}: Apprise does not support URL number 2"
    assert await notify(path).notify(handler_context(Phase.NOTICE)) == Failed(why)
    assert await notify(path).check() == [why]
    out, err = capfd.readouterr()
    assert "s3cret" not in out + err


def all_processes() -> Iterator[str]:
    """Yield the arguments and environment variables of each process that this user can see."""
    for process in Path("/proc").iterdir():
        for part in ("cmdline", "environ"):
            with suppress(OSError):
                yield (process / part).read_text(errors="replace")


@pytest.mark.process
async def test_urls_are_in_no_argument_and_no_variable(tmp_path: Path) -> None:
    """While it receives the message, the web service looks at all processes of this machine."""
    seen: list[str] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.extend(all_processes())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(look, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        path = urls(tmp_path / "urls", f"json://user:s3cret-in-a-url@127.0.0.1:{port}/")
        assert await notify(path).notify(handler_context(Phase.NOTICE)) == Done()
    assert any("forewarn.agent.handlers.apprise_main" in text for text in seen)
    assert not any("s3cret-in-a-url" in text for text in seen)


@pytest.mark.process
async def test_missing_apprise_is_reported_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "apprise.py").write_text("raise ModuleNotFoundError('apprise', name='apprise')\n")
    path = urls(tmp_path / "urls", "json://127.0.0.1:1/")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    handler = NotifyHandler(NotifySettings(name="people", urls_file=path), NO_NOTES, environ=environ)
    assert await handler.notify(handler_context(Phase.NOTICE)) == Failed(MISSING)
    assert await handler.check() == [MISSING]
    assert "install Forewarn with its extra [notify]" in MISSING


@pytest.mark.process
async def test_check_sends_no_message(web: RecordingServer, tmp_path: Path) -> None:
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/")
    assert await notify(path).check() == []
    path.chmod(0o604)
    assert await notify(path).check() == [f"{path} is world-readable: chmod o-r {path}"]
    assert web.received == []
