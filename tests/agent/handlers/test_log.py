"""The log handler: one line in the agent's log for every phase."""

import json
import logging

import pytest

from forewarn.agent.handlers.base import Done, Phase
from forewarn.agent.handlers.log import LogHandler
from forewarn.agent.settings import LogHandlerSettings
from forewarn.cli.process.logs import JsonFormatter
from forewarn.clock import ManualClock
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, RECOVER, handler_context


async def test_every_phase_is_one_log_line_with_all_fields(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_calls_of_a_notify_only_handler_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")
    handler = LogHandler(LogHandlerSettings(name="log"))
    assert (await handler.prepare(PREPARE), await handler.recover(RECOVER)) == (Done(), Done())
    assert await handler.check() == []
    assert caplog.records == []
