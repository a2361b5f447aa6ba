"""Event stream of the dashboard: entries that the session may read, a beat at once, and the end of the session."""

import asyncio
from datetime import timedelta

from forewarn.core.access import Role
from tests.operator.dashboard.signed_in import SignedIn, sign_in
from tests.operator.running_api import GUARD, RunningApi, run_api, schedule_event


async def open_stream(
    service: RunningApi, browser: SignedIn, query: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the stream, and read its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(f"GET /ui/stream{query} HTTP/1.1\r\nHost: localhost\r\nCookie: {browser.cookie}\r\n\r\n".encode())
    async with asyncio.timeout(GUARD):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return reader, writer


async def test_stream_begins_with_the_position_and_continues_with_entries() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        end = await service.fleet.journal.end()
        reader, writer = await open_stream(service, browser)
        async with asyncio.timeout(GUARD):
            await reader.readuntil(b"id: %d\nevent: beat\n" % end)
            event = await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True)
            await reader.readuntil(event.encode())
        writer.close()
        await writer.wait_closed()


async def test_stream_resumes_after_a_position() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        end = await service.fleet.journal.end()
        event = await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True)
        reader, writer = await open_stream(service, browser, f"?after={end}")
        async with asyncio.timeout(GUARD):
            await reader.readuntil(event.encode())
        writer.close()
        await writer.wait_closed()
        answer = await browser.get("/ui/stream?after=999999", Accept="text/event-stream")
        assert answer.status == 404


async def test_limited_token_gets_only_entries_of_its_scopes() -> None:
    async with run_api() as service:
        browser = await sign_in(service, await service.token("team", Role.VIEWER, "web"))
        reader, writer = await open_stream(service, browser)
        hidden = await schedule_event(service, "Reboot", "batch/batch_0", notice="1h", unannounced=True)
        own = await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True)
        async with asyncio.timeout(GUARD):
            received = await reader.readuntil(own.encode())
        assert hidden.encode() not in received
        writer.close()
        await writer.wait_closed()


async def test_stream_does_not_prolong_the_session() -> None:
    """A browser opens it again by itself, and cannot add a header to the request."""
    async with run_api() as service:
        browser = await sign_in(service)
        (session,) = service.sessions.all()
        session.used_at -= timedelta(hours=1)
        used_at = session.used_at
        _, writer = await open_stream(service, browser)
        writer.close()
        await writer.wait_closed()
        assert session.used_at == used_at
        await browser.get("/ui")
        assert session.used_at > used_at


async def test_stream_ends_with_the_session() -> None:
    async with run_api() as service:
        browser = await sign_in(service)
        reader, writer = await open_stream(service, browser)
        await browser.post("/ui/sign-out")
        await schedule_event(service, "Reboot", "web/web-0", notice="1h", unannounced=True)
        async with asyncio.timeout(GUARD):
            rest = await reader.read()
        assert b"data: {" not in rest
        writer.close()
        await writer.wait_closed()
