"""Webhooks: what is sent to whom, how it is signed, and when it counts as delivered."""

import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forewarn import __version__
from forewarn.platform.port import NotificationFailed, NotificationMessage
from forewarn.platform.webhooks import WebhookNotifier
from forewarn.settings.schema import CampaignSettings
from tests.support.recording_server import RecordingServer, run_recording_server

MESSAGE = NotificationMessage(
    id="9c1b6c1e-0000-4000-8000-000000000001",
    campaign="11111111-2222-4333-8444-555555555555",
    name="kernel",
    what="halted",
    at=datetime(2026, 11, 16, 10, 0, tzinfo=UTC),
    why="1 event has failed",
    facts={"failures": "1"},
)


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        yield web


def webhooks(*urls: str, **settings: Any) -> WebhookNotifier:
    return WebhookNotifier(CampaignSettings(webhooks=urls, webhook_timeout=timedelta(seconds=30), **settings))


async def test_message_is_sent_as_json(web: RecordingServer) -> None:
    assert webhooks(web.url).has_receivers
    await webhooks(web.url).notify(MESSAGE)
    (received,) = web.received
    assert received.request_line == "POST /hook HTTP/1.1"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["forewarn-delivery"] == MESSAGE.id
    assert "forewarn-signature" not in received.headers
    assert json.loads(received.body) == {
        "version": 1,
        "from": f"forewarn/{__version__}",
        "id": MESSAGE.id,
        "campaign": MESSAGE.campaign,
        "name": "kernel",
        "what": "halted",
        "at": "2026-11-16T10:00:00Z",
        "why": "1 event has failed",
        "facts": {"failures": "1"},
    }


async def test_message_is_signed_if_there_is_a_secret(web: RecordingServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the hook\n")
    await webhooks(web.url, webhook_secret_file=secret).notify(MESSAGE)
    (received,) = web.received
    expected = hmac.new(b"of the hook", received.body, "sha256").hexdigest()
    assert received.headers["forewarn-signature"] == f"sha256={expected}"


@pytest.mark.parametrize("content", [None, "", "two\nlines\n"], ids=["missing", "empty", "two lines"])
async def test_message_is_not_sent_if_it_cannot_be_signed(
    web: RecordingServer, tmp_path: Path, content: str | None
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_text(content)
    with pytest.raises(NotificationFailed, match=r"campaigns\.webhook_secret_file cannot be used"):
        await webhooks(web.url, webhook_secret_file=secret).notify(MESSAGE)
    assert web.received == []


@pytest.mark.parametrize("status", [500, 302, 404], ids=["error", "redirect", "not found"])
async def test_refused_message_is_undelivered_and_can_be_sent_again(web: RecordingServer, status: int) -> None:
    web.statuses = [status]
    hooks = webhooks(web.url)
    with pytest.raises(NotificationFailed, match=f"http://127.0.0.1:{web.port} returned {status}"):
        await hooks.notify(MESSAGE)
    await hooks.notify(MESSAGE)
    first, second = web.received
    assert first.body == second.body


async def test_receiver_that_accepted_a_message_does_not_get_it_again(web: RecordingServer) -> None:
    async with run_recording_server() as other:
        other.statuses = [503]
        hooks = webhooks(web.url, other.url)
        with pytest.raises(NotificationFailed):
            await hooks.notify(MESSAGE)
        await hooks.notify(MESSAGE)
        assert (len(web.received), len(other.received)) == (1, 2)


async def test_delivered_message_is_forgotten_and_sent_again_on_request(
    web: RecordingServer,
) -> None:
    """After a delivery that could not be saved it is: each message arrives at least once."""
    hooks = webhooks(web.url)
    await hooks.notify(MESSAGE)
    await hooks.notify(MESSAGE)
    first, second = web.received
    assert first.body == second.body


async def test_new_settings_apply_from_the_next_message_on(web: RecordingServer) -> None:
    hooks = webhooks()
    assert not hooks.has_receivers
    await hooks.notify(MESSAGE)
    hooks.reload(CampaignSettings(webhooks=(web.url,)))
    await hooks.notify(MESSAGE)
    assert len(web.received) == 1
