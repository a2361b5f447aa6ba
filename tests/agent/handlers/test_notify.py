"""The handlers that only tell: log, notify, and readiness, which tells load balancers."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.agent.handlers.base import Done, Failed, HandlerCall, Phase, Retry
from forewarn.agent.handlers.log import LogHandler
from forewarn.agent.handlers.notify import MISSING, NotifyHandler
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.http_server import Request
from forewarn.agent.settings import LogHandlerSettings, NotifySettings, ReadinessSettings
from forewarn.cli.process.logs import JsonFormatter
from forewarn.clock import ManualClock
from forewarn.settings import ListenAddress
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, RECOVER, handler_context
from tests.agent.handlers.recording_server import RecordingServer, run_recording_server
from tests.agent.harness import until
from tests.support.processes import free_ports

OTHER = msgspec.structs.replace(EVENT, id="11111111-2222-4333-8444-555555555555")


async def test_every_phase_is_one_line_with_all_facts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")
    handler = LogHandler(LogHandlerSettings(name="log"), clock=ManualClock(NOW))
    for phase in Phase:
        assert await handler.notify(handler_context(phase)) == Done()
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [line["event_phase"] for line in lines] == [phase.value for phase in Phase]
    first = {name: value for name, value in lines[0].items() if name != "time"}
    assert first == {
        "level": "info",
        "logger": "forewarn.agent.event",
        "message": "Reboot of web_0: notice",
        "event_id": EVENT.id,
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "event_source": "Platform",
        "event_description": EVENT.description,
        "event_not_before": "2026-11-16T10:15:00Z",
        "event_duration": 9,
        "event_resources": ["web_0", "web_1"],
        "event_name": "web_0",
        "event_phase": "notice",
        "event_attempt": 1,
        "event_seconds_left": 900,
        "event_leader": True,
    }


async def test_calls_of_what_only_notifies_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")
    handler = LogHandler(LogHandlerSettings(name="log"))
    assert (await handler.prepare(PREPARE), await handler.recover(RECOVER)) == (Done(), Done())
    assert await handler.check() == []
    assert caplog.records == []


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        web.response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        yield web


def urls(path: Path, *lines: str) -> Path:
    path.write_text("# who is told\n\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def notify(path: Path, **settings: Any) -> NotifyHandler:
    return NotifyHandler(NotifySettings(name="people", urls_file=path, **settings), clock=ManualClock(NOW))


async def test_everybody_is_told_by_apprise(web: RecordingServer, tmp_path: Path) -> None:
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/one", f"json://127.0.0.1:{web.port}/two")
    assert await notify(path, body="$description").notify(handler_context(Phase.NOTICE)) == Done()
    assert sorted(received.request_line.split()[1].rstrip("/") for received in web.received) == ["/one", "/two"]
    sent = json.loads(web.received[0].body)
    assert sent["title"] == "Reboot of web_0: notice"
    assert "$(reboot) <now>" in sent["message"]


async def test_people_are_told_at_notice_and_recovery_alone(web: RecordingServer, tmp_path: Path) -> None:
    handler = notify(urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/"))
    for phase in Phase:
        assert await handler.notify(handler_context(phase)) == Done()
    told = [json.loads(received.body)["title"] for received in web.received]
    assert told == ["Reboot of web_0: notice", "Reboot of web_0: recover"]


async def test_who_cannot_be_told_now_is_told_later(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{nobody}/")
    handler = notify(path, retries=1, pause=timedelta(0))
    assert await handler.notify(handler_context(Phase.NOTICE)) == Retry(f"not everybody in {path} could be told")


async def test_wrong_url_is_named_by_its_number_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = urls(tmp_path / "urls", "json://127.0.0.1:1/", "nothing://user:s3cret@host/")
    why = f"{path}: Apprise does not know what URL 2 is for"
    assert await notify(path).notify(handler_context(Phase.NOTICE)) == Failed(why)
    assert await notify(path).check() == [why]
    out, err = capfd.readouterr()
    assert "s3cret" not in out + err


def all_processes() -> Iterator[str]:
    """Give what everybody can see of each process: its arguments and, for its user, its variables."""
    for process in Path("/proc").iterdir():
        for part in ("cmdline", "environ"):
            with suppress(OSError):
                yield (process / part).read_text(errors="replace")


async def test_urls_stand_in_no_argument_and_no_variable(tmp_path: Path) -> None:
    """The web service that is told looks at all processes of this machine while it is told."""
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


async def test_missing_apprise_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "apprise.py").write_text("raise ModuleNotFoundError('apprise', name='apprise')\n")
    path = urls(tmp_path / "urls", "json://127.0.0.1:1/")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    handler = NotifyHandler(NotifySettings(name="people", urls_file=path), environ=environ)
    assert await handler.notify(handler_context(Phase.NOTICE)) == Failed(MISSING)
    assert await handler.check() == [MISSING]
    assert "pip install 'forewarn[notify]'" in MISSING


async def test_check_of_people_tells_nobody(web: RecordingServer, tmp_path: Path) -> None:
    path = urls(tmp_path / "urls", f"json://127.0.0.1:{web.port}/")
    assert await notify(path).check() == []
    path.chmod(0o604)
    assert await notify(path).check() == [f"{path} can be read by everybody on this machine: chmod o-r {path}"]
    assert web.received == []


def test_agent_that_tells_nobody_does_not_load_apprise() -> None:
    code = "import sys; from forewarn.agent import compose; sys.exit('apprise' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def probe(handler: ReadinessHandler, path: str = "/serving", method: str = "GET") -> int:
    return handler.respond(Request(method, path, {})).status


async def test_probe_is_refused_from_notice_to_recovery() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe", wait=timedelta(0)), clock=ManualClock(NOW))
    statuses = [probe(handler)]
    for phase in Phase:
        await handler.notify(handler_context(phase))
        if phase is Phase.PREPARE:
            assert await handler.prepare(PREPARE) == Done()
        statuses.append(probe(handler))
    assert await handler.recover(RECOVER) == Done()
    assert [*statuses, probe(handler)] == [200, 503, 503, 503, 503, 503, 503, 200]


async def test_probe_stays_refused_until_the_last_event_is_recovered() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.notify(handler_context(Phase.NOTICE, event=OTHER))
    await handler.recover(RECOVER)
    assert probe(handler) == 503
    await handler.recover(handler_context(Phase.RECOVER, event=OTHER))
    assert probe(handler) == 200


async def test_where_nothing_was_prepared_being_told_of_recovery_ends_it() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 503, "its half is still to come"
    await handler.notify(handler_context(Phase.RECOVER, call=None))
    assert probe(handler) == 200


async def test_call_may_be_quicker_than_the_notification() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(RECOVER)
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 200
    await handler.notify(handler_context(Phase.NOTICE))
    assert probe(handler) == 503, "the same event may be announced again"


async def test_what_was_to_be_told_before_the_recovery_does_not_undo_it() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(RECOVER)
    await handler.notify(handler_context(Phase.IMPACT))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 200


async def test_event_whose_id_is_written_otherwise_is_the_same() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(handler_context(Phase.RECOVER, event=msgspec.structs.replace(EVENT, id=EVENT.id.lower())))
    assert probe(handler) == 200


async def test_agent_that_starts_in_the_middle_of_recovery_stays_away_until_its_end() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER, attempt=2))
    assert probe(handler) == 503
    await handler.recover(RECOVER)
    assert probe(handler) == 200


async def test_load_balancers_have_time_to_notice() -> None:
    clock = ManualClock(NOW)
    handler = ReadinessHandler(ReadinessSettings(name="probe", wait=timedelta(seconds=15)), clock=clock)
    await handler.notify(handler_context(Phase.NOTICE))
    clock.set(NOW + timedelta(seconds=5))
    preparing = asyncio.create_task(handler.prepare(PREPARE))
    while not clock.timer_count:  # noqa: ASYNC110  # a clock tells nobody that somebody waits
        await asyncio.sleep(0)
    assert clock.next_timer_at == NOW + timedelta(seconds=15), "counted from the notice on"
    clock.set(NOW + timedelta(seconds=15))
    assert await preparing == Done()


async def ask(place: ListenAddress, path: str) -> bytes:
    """Return the first line of the answer to a probe."""
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


async def ask_patiently(place: ListenAddress, path: str) -> bytes:
    while True:
        with suppress(OSError):
            return await ask(place, path)
        await asyncio.sleep(0.005)


async def test_probes_are_answered_over_http() -> None:
    settings = ReadinessSettings(name="probe", listen=ListenAddress("127.0.0.1", 0), path="/up")
    handler = ReadinessHandler(settings)
    async with asyncio.timeout(60), handler.serve():
        await until(lambda: handler.port > 0)
        place = ListenAddress("127.0.0.1", handler.port)
        assert await ask(place, "/up") == b"HTTP/1.1 200 OK"
        await handler.notify(handler_context(Phase.NOTICE))
        assert await ask(place, "/up") == b"HTTP/1.1 503 Service Unavailable"
        assert await ask(place, "/serving") == b"HTTP/1.1 404 Not Found"
    assert probe(handler, "/up", "POST") == 405


async def test_port_of_the_probe_that_is_taken_for_a_while_is_listened_at_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(NOW)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = ListenAddress("127.0.0.1", taken.getsockname()[1])
        handler = ReadinessHandler(ReadinessSettings(name="probe", listen=place), clock=clock)
        async with handler.serve():
            await until(lambda: clock.timer_count > 0)
            taken.close()
            clock.set(NOW + timedelta(seconds=5))
            async with asyncio.timeout(60):
                assert await ask_patiently(place, "/serving") == b"HTTP/1.1 200 OK"
    assert [record.levelname for record in caplog.records if f"cannot listen at {place}" in record.message] == ["ERROR"]
