"""Limits of the operator port: connections in total and per address, and few log lines about what is refused."""

import logging

import pytest

from forewarn.operator import limits
from forewarn.operator.counters import Counters, RefuseReason
from forewarn.operator.limits import (
    CALLER_LINES,
    COUNTED_ADDRESSES,
    LOG_INTERVAL,
    WRONG_TOKENS,
    CallerLog,
    ConnectionLimits,
    ConnectionSlots,
    WrongTokenLimit,
)
from forewarn.operator.limits import caller_address as address_of
from tests.fleet.fleets import until

ANN, BOB = "10.0.0.1", "10.0.0.2"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_caller_is_counted_by_its_address_or_its_ipv6_network(host: str, address: str) -> None:
    assert address_of(host) == address


async def test_each_address_and_all_together_have_a_limit() -> None:
    counters = Counters()
    slots = ConnectionSlots(ConnectionLimits(total=3, per_address=2), counters)
    assert [slots.acquire(caller) for caller in (ANN, ANN, ANN, BOB, BOB)] == [True, True, False, True, False]
    assert counters.refusals == {
        RefuseReason.ADDRESS: 1,
        RefuseReason.TOTAL: 1,
        RefuseReason.OPEN_FILES: 0,
    }
    slots.release(ANN)
    assert [slots.acquire(BOB), slots.acquire(BOB)] == [True, False]
    assert (counters.connections, counters.accepted) == (3, 4)
    for caller in (ANN, BOB, BOB):
        slots.release(caller)
    assert (counters.connections, slots._open) == (0, {})
    slots.close()


async def test_refused_connections_are_one_line_per_minute_with_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "LOG_DELAY", 0)
    counters = Counters()
    slots = ConnectionSlots(ConnectionLimits(total=3, per_address=1), counters)
    for caller in (ANN, BOB, ANN, ANN):
        slots.acquire(caller)
    slots.refuse(RefuseReason.OPEN_FILES)
    counters.timed_out += 2
    await until(lambda: bool(caplog.records))
    slots.acquire(BOB)
    minute = slots._log_timer
    assert minute is not None
    slots._log()  # as after a minute
    minute.cancel()
    line = (
        "refused {} connections to the operator API: {} over operator_connections_per_address (1 here), 0 over "
        "operator_connections (3 here), {} for lack of open files; closed {} that were silent; 2 are open, 1 of them "
        f"from {ANN}"
    )
    assert caplog.messages == [line.format(3, 2, 1, 2), line.format(1, 1, 0, 0)]
    minute = slots._log_timer
    assert minute is not None
    slots._log()  # a minute without refusals
    minute.cancel()
    assert (len(caplog.records), slots._log_timer) == (2, None)


async def test_refusals_are_logged_when_the_server_stops(caplog: pytest.LogCaptureFixture) -> None:
    slots = ConnectionSlots(ConnectionLimits(total=0), Counters())
    slots.acquire(ANN)
    assert caplog.messages == []
    slots.close()
    assert len(caplog.messages) == 1


def test_each_caller_gets_one_line_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    caller_log = CallerLog()
    for caller, now in ((ANN, 0), (BOB, 1), (ANN, 2), (ANN, LOG_INTERVAL - 1), (ANN, LOG_INTERVAL), (BOB, 5)):
        caller_log.warn(caller, "wrong", now=now)
    assert caplog.messages == [f"{ANN}: wrong", f"{BOB}: wrong", f"{ANN}: wrong (and 2 more since the last line)"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_very_many_callers_share_one_line_and_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    caller_log = CallerLog()
    for number in range(10 * CALLER_LINES):
        caller_log.warn(f"caller {number}", "wrong", now=1)
    assert len(caplog.messages) == len(caller_log._lines) == CALLER_LINES + 1
    assert caplog.messages[-1] == "other addresses: wrong"
    for number in range(10 * CALLER_LINES):
        caller_log.warn(f"later caller {number}", "wrong", now=1 + LOG_INTERVAL)
    assert len(caller_log._lines) <= CALLER_LINES + 1
    assert len(caplog.messages) <= 2 * (CALLER_LINES + 1)


def test_wrong_tokens_of_an_address_are_limited_per_minute() -> None:
    limit = WrongTokenLimit()
    assert [limit.count(ANN, now=1) for _ in range(WRONG_TOKENS)] == [0] * WRONG_TOKENS
    assert (limit.count(ANN, now=11), limit.count(BOB, now=11)) == (LOG_INTERVAL - 10, 0)
    assert limit.count(ANN, now=1 + LOG_INTERVAL) == 0


def test_wrong_tokens_of_very_many_addresses_take_no_memory() -> None:
    limit = WrongTokenLimit()
    for number in range(3 * COUNTED_ADDRESSES):
        limit.count(f"caller {number}", now=number / 1_000)
    assert len(limit._minutes) == COUNTED_ADDRESSES
