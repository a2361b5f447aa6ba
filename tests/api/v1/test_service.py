"""Service types of the API: clock and tokens."""

from datetime import UTC, datetime

import msgspec
import pytest

from forewarn.api.v1.service import AdvanceClock, Clock, CreateToken
from forewarn.core.access import Role

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)


def test_token_is_for_all_scopes_and_does_not_expire_by_default() -> None:
    asked = msgspec.json.decode(b'{"name":"ci","role":"viewer"}', type=CreateToken)
    assert asked == CreateToken(name="ci", role=Role.VIEWER, scopes=(), expires_at=None)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "n" * 129},
        {"role": "root"},
        {"scopes": ["s"] * 65},
        {"scopes": [""]},
        {"expires_at": "2030-01-01T00:00:00"},
        {"secret": "mine"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_token_out_of_its_limits_is_refused(fields: dict[str, object]) -> None:
    body = msgspec.json.encode({"name": "ci", "role": "viewer", **fields})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=CreateToken)


def test_clock_is_decoded_as_it_was_encoded() -> None:
    clock = Clock(now=TEN, manual=True, next_change_at=None, speed=2.0)
    assert msgspec.json.decode(msgspec.json.encode(clock), type=Clock) == clock
    older = b'{"now":"2026-03-02T10:00:00Z","manual":false,"next_change_at":null}'
    assert msgspec.json.decode(older, type=Clock).speed == 1.0


def test_clock_is_moved_by_a_duration_or_to_the_next_change() -> None:
    assert AdvanceClock() == AdvanceClock(duration=None, to_next_change=False)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"duration":"soon"}', type=AdvanceClock)
