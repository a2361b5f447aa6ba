"""State shared by all connections: their number and timeouts, the date, and the shutdown."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.fault import FaultKind
from forewarn.fleet.service import Fleet
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.limits import Limits
from forewarn.guest.recorder import WATCH_TICKS, RequestRecorder
from forewarn.guest.server_state import ServerState
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.fleets import run_fleet


class FakeConnection:
    """A connection that records its calls, and ends when `finish` or `abort` is called."""

    def __init__(self, state: ServerState, *, timeout: int = 10, is_stubborn: bool = False) -> None:
        self._state, self._is_stubborn = state, is_stubborn
        self.since, self.timeout = state.ticks, timeout
        self.asked: list[str] = []
        state.add_connection(self)

    def expire(self) -> None:
        self.asked.append("expire")

    def forget_request(self) -> None:
        self.asked.append("forget_request")

    def finish(self) -> None:
        self.asked.append("finish")
        if not self._is_stubborn:
            self._state.remove_connection(self)

    def abort(self) -> None:
        self.asked.append("abort")
        self._state.remove_connection(self)


@asynccontextmanager
async def run_state(**fields: Any) -> AsyncIterator[tuple[ServerState, Fleet]]:
    async with run_fleet(web_scope()) as fleet:
        values = {"limits": Limits(), "unsupported_version_status": 404, "enable_delay": timedelta(0), **fields}
        if values.pop("with_faults", False):
            values["faults"] = Faults(fleet)
        yield ServerState(fleet, counters=Counters(), **values), fleet


async def test_requests_are_parsed_again_when_another_vm_is_watched() -> None:
    recorder = RequestRecorder()
    async with run_state(recorder=recorder) as (state, _):
        connection = FakeConnection(state)
        assert state.observer is None
        recorder.watch("web/web-0")
        recorder.watch("web/web-0")
        assert (state.observer is None, connection.asked) == (False, ["forget_request"])
        for _ in range(WATCH_TICKS + 1):
            state.tick()
        assert state.observer is None
        connection.abort()


async def test_connections_are_counted() -> None:
    async with run_state(limits=Limits(connections=1)) as (state, _):
        first = FakeConnection(state)
        assert not state.is_full
        second = FakeConnection(state)
        assert (state.is_full, state.counters.connections, state.counters.accepted) == (True, 2, 2)
        state.remove_connection(second)
        state.remove_connection(second)
        assert (state.is_full, state.counters.connections, state.counters.accepted) == (False, 1, 2)
        state.remove_connection(first)


async def test_connection_expires_only_after_its_timeout() -> None:
    async with run_state() as (state, _):
        connection = FakeConnection(state, timeout=2)
        for _ in range(2):
            state.tick()
        assert connection.asked == []
        state.tick()
        assert connection.asked == ["expire"]


async def test_tick_updates_the_date() -> None:
    async with run_state() as (state, fleet):
        assert isinstance(fleet.clock, ManualClock)
        fleet.clock.set(TEN + timedelta(hours=1))
        assert b"10:00:00 GMT" in state.common_headers.lines
        state.tick()
        assert b"11:00:00 GMT" in state.common_headers.lines
        assert b"12:00:00 GMT" in state.shifted_headers(timedelta(hours=1)).lines


async def test_request_rate_may_change_and_faults_disable_cached_responses() -> None:
    async with run_state(with_faults=True) as (state, _):
        assert (state.rate, state.cached_rate, state.fault_injector) == (5, 5, None)
        state.set_request_rate(None)
        assert (state.rate, state.cached_rate) == (sys.maxsize, sys.maxsize)
        faults = state._faults
        assert faults is not None
        fault = await faults.set(FaultKind.RESET, by="test")
        assert (state.rate, state.cached_rate, state.fault_injector is None) == (sys.maxsize, 0, False)
        await faults.clear(fault.id, by="test")
        assert (state.cached_rate, state.fault_injector) == (sys.maxsize, None)


async def test_only_a_system_clock_is_read_once_per_tick() -> None:
    async with run_state() as (state, _):
        assert not state.is_real_time
    async with run_fleet(clock=SystemClock()) as fleet:
        state = ServerState(fleet, Limits(), Counters(), unsupported_version_status=404, enable_delay=timedelta(0))
        assert state.is_real_time


async def test_shutdown_finishes_connections_and_aborts_slow_ones() -> None:
    async with run_state(limits=Limits(shutdown_timeout=timedelta(milliseconds=1))) as (state, _):
        polite, stubborn = FakeConnection(state), FakeConnection(state, is_stubborn=True)
        state.close()
        assert (state.is_closing, polite.asked, stubborn.asked) == (True, ["finish"], ["finish"])
        async with asyncio.timeout(60):
            await state.wait_until_empty()
        assert (polite.asked, stubborn.asked) == (["finish"], ["finish", "abort"])


async def test_server_without_connections_is_empty_immediately() -> None:
    async with run_state() as (state, _), asyncio.timeout(60):
        await state.wait_until_empty()
