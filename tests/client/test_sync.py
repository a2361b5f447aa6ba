"""The sync client: `interruptible` and close."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.client import Closed, ScheduledEvents
from tests.client.callers import calling, threads_of_the_client
from tests.client.faulty_server import GUARD, HELD, INSTANCE, holds, responds, run_faulty_server
from tests.client.scripted_flow import ID, OWN, document, event

pytestmark = pytest.mark.usefixtures("no_threads_left")

NOW = datetime(2016, 9, 19, 18, 0, tzinfo=UTC)
CALLS: dict[str, Callable[[ScheduledEvents], object]] = {
    "get": ScheduledEvents.get,
    "approve": lambda se: se.approve(ID),
    "name": lambda se: se.name,
}


def test_sync_program_is_interrupted_by_its_own_event() -> None:
    with (
        run_faulty_server(INSTANCE, responds(500, b""), responds(200, OWN)) as running,
        ScheduledEvents(running.url, sleep=lambda _: None, now=lambda: NOW, on_trouble=lambda *_: None) as se,
        se.interruptible() as stop,
    ):
        assert stop.wait(GUARD)
        assert stop.event is not None
        assert (stop.event.id, stop.time_left()) == (ID, timedelta(minutes=29, seconds=47))
        assert stop.is_set()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_closing_ends_a_call_in_another_thread(call: Callable[[ScheduledEvents], object]) -> None:
    with run_faulty_server(holds) as running, ScheduledEvents(running.url) as se:
        caller = calling(lambda: call(se))
        running.wait_for_requests()
        se.close()
        assert caller.ended() is Closed
        running.wait_for_hang_up()


def test_closing_ends_a_watch_in_a_long_poll() -> None:
    with run_faulty_server(HELD, holds) as running, ScheduledEvents(running.url) as se:
        caller = calling(lambda: [type(change).__name__ for change in se.watch()])
        running.wait_for_requests(2)
        se.close()
        assert caller.ended() == ["Appeared"]
        assert "wait=60" in running.targets[1]


def test_closing_ends_a_watch_that_sleeps() -> None:
    asleep = threading.Event()
    with run_faulty_server(*[responds(500, b"")] * 9) as running:
        se = ScheduledEvents(running.url, on_trouble=lambda *_: asleep.set(), chance=lambda: 1.0)
        caller = calling(lambda: list(se.watch()))
        assert asleep.wait(GUARD)
        se.close()
        assert caller.ended() == []


def test_closing_ends_all_running_calls() -> None:
    with run_faulty_server() as running, ScheduledEvents(running.url) as se:
        callers = [calling(lambda: list(se.watch())), calling(se.get), calling(lambda: list(se.watch(mine=True)))]
        running.wait_for_requests(3)
        se.close()
        assert [caller.ended() for caller in callers] == [[], Closed, []]


def test_closed_client_raises_closed() -> None:
    se = ScheduledEvents("127.0.0.1:9")
    se.close()
    se.close()
    for call in CALLS.values():
        with pytest.raises(Closed):
            call(se)
    assert list(se.watch()) == []
    with pytest.raises(Closed), se.interruptible():
        pytest.fail("it was entered")


def test_end_of_an_interruptible_block_closes_its_connection() -> None:
    before = threads_of_the_client()
    with run_faulty_server() as running, ScheduledEvents(running.url, name="web_0") as se:
        with se.interruptible() as stop:
            running.wait_for_requests()
        running.wait_for_hang_up()
        assert (stop.is_set(), threads_of_the_client()) == (False, before)
        assert se._driver._in_flight == set()


def test_closing_the_client_ends_its_interruptible_blocks() -> None:
    with run_faulty_server() as running, ScheduledEvents(running.url, name="web_0") as se, se.interruptible():
        running.wait_for_requests()
        se.close()
        running.wait_for_hang_up()


def test_response_received_before_closing_is_returned() -> None:
    with run_faulty_server(responds(200, document(event()))) as running, ScheduledEvents(running.url) as se:
        watch = se.watch()
        first = next(watch)
        se.close()
        assert (first.event.id, list(watch)) == (ID, [])
