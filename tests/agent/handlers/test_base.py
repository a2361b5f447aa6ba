"""The base of handlers: what every kind has, and retries of notifications."""

import asyncio
from datetime import timedelta

from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Retry
from forewarn.agent.settings.handlers import LogHandlerSettings
from forewarn.clock import ManualClock
from tests.agent.handlers.handler_contexts import EVENT, NOW, PREPARE, RECOVER

SETTINGS = LogHandlerSettings(
    name="x", importance=7, time_limit=timedelta(seconds=3), retries=2, pause=timedelta(seconds=5)
)


async def test_handler_has_its_settings_and_nothing_to_do() -> None:
    handler = HandlerBase(SETTINGS)
    assert (handler.name, handler.importance, handler.time_limit) == ("x", 7, timedelta(seconds=3))
    assert (handler.retries, handler.pause, handler.ready_despite_failure) == (2, timedelta(seconds=5), False)
    assert [await handler.prepare(PREPARE), await handler.recover(RECOVER), await handler.notify(PREPARE)] == [
        Done()
    ] * 3
    assert await handler.check() == []


def test_time_that_is_left_is_never_negative() -> None:
    assert PREPARE.time_left(NOW) == timedelta(minutes=15)
    assert PREPARE.time_left(NOW + timedelta(hours=1)) == timedelta(0)
    unlimited = HandlerContext(event=EVENT, name="x", phase=PREPARE.phase, time_limit=timedelta(seconds=1))
    assert unlimited.time_left(NOW) is None


async def retried(*results: CallResult) -> tuple[CallResult, int]:
    """Return the result of a notification that gives these, and how often it was tried."""
    clock, left = ManualClock(NOW), list(results)

    async def call(_: HandlerContext) -> CallResult:
        return left.pop(0)

    running = asyncio.ensure_future(HandlerBase(SETTINGS, clock)._retry(call, PREPARE))
    while not running.done():
        await asyncio.sleep(0)
        clock.set(clock.now() + timedelta(seconds=5))
    return await running, len(results) - len(left)


async def test_notification_is_retried_as_often_as_the_settings_say() -> None:
    again = Retry("busy")
    assert await retried(Done(), Done()) == (Done(), 1)
    assert await retried(again, Done()) == (Done(), 2)
    assert await retried(Failed("no"), Done()) == (Failed("no"), 1)
    assert await retried(again, again, again, Done()) == (again, 3)
