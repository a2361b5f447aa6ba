"""States of a connection and the timeout of each."""

from datetime import timedelta

from forewarn.guest.connection_state import NO_TIMEOUT, ConnectionState, connection_timeouts
from forewarn.guest.limits import Limits


def test_each_state_has_the_timeout_of_its_limit() -> None:
    limits = Limits(
        idle_timeout=timedelta(seconds=1),
        header_timeout=timedelta(seconds=2),
        body_timeout=timedelta(seconds=3),
        unread_timeout=timedelta(seconds=4),
        linger_timeout=timedelta(seconds=5),
    )
    assert connection_timeouts(limits) == {
        ConnectionState.IDLE: 1,
        ConnectionState.HEAD: 2,
        ConnectionState.BODY: 3,
        ConnectionState.RESPONDING: NO_TIMEOUT,
        ConnectionState.THROTTLED: 0,
        ConnectionState.UNREAD: 4,
        ConnectionState.LINGERING: 5,
        ConnectionState.CLOSED: 4,
    }


def test_timeout_is_rounded_up_to_a_whole_second() -> None:
    limits = Limits(idle_timeout=timedelta(milliseconds=1), header_timeout=timedelta(seconds=1, microseconds=1))
    timeouts = connection_timeouts(limits)
    assert (timeouts[ConnectionState.IDLE], timeouts[ConnectionState.HEAD]) == (1, 2)
