"""Exchanges: equal ones differ only in what every response has of its own."""

from datetime import timedelta

import msgspec
import pytest

from forewarn.wire.exchange import Exchange
from tests.core.sample_scopes import TEN

POLL = Exchange(
    id=1, number=1, first_at=TEN, at=TEN, method="GET", target="/metadata", status=200, body=b"", answer=b"{}"
)


def test_times_and_numbers_and_raw_bytes_do_not_matter() -> None:
    later = msgspec.structs.replace(
        POLL, id=2, number=3, at=TEN + timedelta(seconds=1), count=2, seconds=1.0, raw_answer=b"Date: ..."
    )
    assert POLL.is_equal(later)


@pytest.mark.parametrize(
    "changed", [{"method": "HEAD"}, {"target": "/"}, {"status": 410}, {"status": None}, {"body": b"x"}, {"answer": b""}]
)
def test_everything_else_matters(changed: dict[str, object]) -> None:
    assert not POLL.is_equal(msgspec.structs.replace(POLL, **changed))


def test_size_is_that_of_all_its_bytes() -> None:
    assert msgspec.structs.replace(POLL, body=b"123", raw_request=b"12345", raw_answer=b"1").size == 20
