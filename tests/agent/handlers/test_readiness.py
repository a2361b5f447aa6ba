"""The readiness handler: probes of load balancers fail from notice to recovery."""

import asyncio
import socket
from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from forewarn.agent.handlers.base import Done, HandlerCall, Phase
from forewarn.agent.handlers.readiness import ReadinessHandler
from forewarn.agent.http_server import Request
from forewarn.agent.settings import ReadinessSettings
from forewarn.clock import ManualClock
from forewarn.settings.types import ListenAddress
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, RECOVER, handler_context
from tests.agent.harness import until
from tests.support.processes import free_ports

OTHER = msgspec.structs.replace(EVENT, id="11111111-2222-4333-8444-555555555555")


def probe(handler: ReadinessHandler, path: str = "/serving", method: str = "GET") -> int:
    return handler.respond(Request(method, path, {})).status


async def test_probe_fails_from_notice_to_recovery() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe", wait=timedelta(0)), clock=ManualClock(NOW))
    statuses = [probe(handler)]
    for phase in Phase:
        await handler.notify(handler_context(phase))
        if phase is Phase.PREPARE:
            assert await handler.prepare(PREPARE) == Done()
        statuses.append(probe(handler))
    assert await handler.recover(RECOVER) == Done()
    assert [*statuses, probe(handler)] == [200, 503, 503, 503, 503, 503, 503, 200]


async def test_probe_fails_until_the_last_event_is_recovered() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.notify(handler_context(Phase.NOTICE, event=OTHER))
    await handler.recover(RECOVER)
    assert probe(handler) == 503
    await handler.recover(handler_context(Phase.RECOVER, event=OTHER))
    assert probe(handler) == 200


async def test_recovery_notification_without_a_call_passes_the_probe_again() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 503, "the recover call follows"
    await handler.notify(handler_context(Phase.RECOVER, call=None))
    assert probe(handler) == 200


async def test_recover_call_may_end_before_its_notification() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(RECOVER)
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 200
    await handler.notify(handler_context(Phase.NOTICE))
    assert probe(handler) == 503, "the same event may be announced again"


async def test_late_notification_does_not_undo_recovery() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(RECOVER)
    await handler.notify(handler_context(Phase.IMPACT))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER))
    assert probe(handler) == 200


async def test_event_ids_are_case_insensitive() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.NOTICE))
    await handler.recover(handler_context(Phase.RECOVER, event=msgspec.structs.replace(EVENT, id=EVENT.id.lower())))
    assert probe(handler) == 200


async def test_probe_fails_until_recovery_ends_after_a_restart() -> None:
    handler = ReadinessHandler(ReadinessSettings(name="probe"))
    await handler.notify(handler_context(Phase.RECOVER, call=HandlerCall.RECOVER, attempt=2))
    assert probe(handler) == 503
    await handler.recover(RECOVER)
    assert probe(handler) == 200


async def test_prepare_waits_for_load_balancers() -> None:
    clock = ManualClock(NOW)
    handler = ReadinessHandler(ReadinessSettings(name="probe", wait=timedelta(seconds=15)), clock=clock)
    await handler.notify(handler_context(Phase.NOTICE))
    clock.set(NOW + timedelta(seconds=5))
    preparing = asyncio.create_task(handler.prepare(PREPARE))
    while not clock.timer_count:  # noqa: ASYNC110  # the clock does not report new timers
        await asyncio.sleep(0)
    assert clock.next_timer_at == NOW + timedelta(seconds=15), "counted from the notice on"
    clock.set(NOW + timedelta(seconds=15))
    assert await preparing == Done()


async def ask(place: ListenAddress, path: str) -> bytes:
    """Return the status line of the response to a probe."""
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


async def test_probe_port_in_use_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(NOW)
    place = ListenAddress("127.0.0.1", *free_ports(1))
    with socket.create_server((place.host, place.port)) as taken:
        handler = ReadinessHandler(ReadinessSettings(name="probe", listen=place), clock=clock)
        async with handler.serve():
            await until(lambda: clock.timer_count > 0)
            taken.close()
            clock.set(NOW + timedelta(seconds=5))
            async with asyncio.timeout(60):
                assert await ask_patiently(place, "/serving") == b"HTTP/1.1 200 OK"
    assert [record.levelname for record in caplog.records if f"cannot listen on {place}" in record.message] == ["ERROR"]
