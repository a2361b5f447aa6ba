"""Sessions of browsers and codes of sign-in links: expiry, limits and the end of their tokens."""

from datetime import UTC, datetime, timedelta

from forewarn.clock import ManualClock
from forewarn.operator.sessions import (
    AGE_LIMIT,
    CODE_LIMIT,
    IDLE_LIMIT,
    MAX_CODES,
    SESSIONS_PER_TOKEN,
    Sessions,
    is_same_secret,
)

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class TokenSet(set[str]):
    """The ids of the valid tokens."""

    def is_valid(self, id_: str) -> bool:
        """Return whether a token is valid."""
        return id_ in self


def sessions_at(clock: ManualClock) -> tuple[Sessions, TokenSet]:
    valid = TokenSet({"tk_1", "tk_2"})
    return Sessions(clock, valid.is_valid), valid


def test_session_is_found_by_its_secret_only() -> None:
    sessions, _ = sessions_at(ManualClock(TEN))
    session, secret = sessions.create("tk_1", address="127.0.0.1")
    assert (sessions.find(secret), sessions.find(session.id), sessions.find("")) == (session, None, None)
    assert secret not in repr(vars(sessions))


def test_session_ends_after_the_idle_limit_and_a_request_prolongs_it() -> None:
    clock = ManualClock(TEN)
    sessions, _ = sessions_at(clock)
    session, secret = sessions.create("tk_1", address="")
    clock.set(clock.now() + IDLE_LIMIT - SECOND)
    assert sessions.find(secret) is session
    clock.set(clock.now() + IDLE_LIMIT - SECOND)
    assert sessions.find(secret, is_background=True) is session
    clock.set(clock.now() + SECOND)
    assert (sessions.find(secret), sessions.all()) == (None, ())


def test_session_ends_after_the_age_limit_however_often_it_is_used() -> None:
    clock = ManualClock(TEN)
    sessions, _ = sessions_at(clock)
    session, secret = sessions.create("tk_1", address="")
    while clock.now() < TEN + AGE_LIMIT - IDLE_LIMIT / 2:
        clock.set(clock.now() + IDLE_LIMIT / 2)
        assert sessions.find(secret) is session
    assert session.ends_at() == TEN + AGE_LIMIT
    clock.set(clock.now() + IDLE_LIMIT / 2)
    assert (sessions.find(secret), sessions.is_open(session)) == (None, False)


def test_session_ends_with_its_token() -> None:
    sessions, valid = sessions_at(ManualClock(TEN))
    first, secret = sessions.create("tk_1", address="")
    other, _ = sessions.create("tk_2", address="")
    valid.remove("tk_1")
    assert (sessions.is_open(first), sessions.find(secret), sessions.all()) == (False, None, (other,))


def test_session_can_be_ended() -> None:
    sessions, _ = sessions_at(ManualClock(TEN))
    first, secret = sessions.create("tk_1", address="")
    other, _ = sessions.create("tk_1", address="")
    sessions.end(first.id)
    sessions.end(first.id)
    assert (sessions.find(secret), sessions.all()) == (None, (other,))


def test_further_session_ends_the_least_recently_used_of_the_same_token() -> None:
    clock = ManualClock(TEN)
    sessions, _ = sessions_at(clock)
    other, _ = sessions.create("tk_2", address="")
    made = []
    for _ in range(SESSIONS_PER_TOKEN):
        clock.set(clock.now() + SECOND)
        made.append(sessions.create("tk_1", address=""))
    clock.set(clock.now() + SECOND)
    assert sessions.find(made[0][1]) is made[0][0]
    further, _ = sessions.create("tk_1", address="")
    kept = [made[0][0], *(session for session, _ in made[2:])]
    assert sessions.all() == (other, *kept, further)


def test_code_signs_in_once_and_for_a_minute() -> None:
    clock = ManualClock(TEN)
    sessions, valid = sessions_at(clock)
    used, late, revoked = (sessions.create_code(token) for token in ("tk_1", "tk_1", "tk_2"))
    assert (sessions.redeem_code(used), sessions.redeem_code(used), sessions.redeem_code("x")) == ("tk_1", None, None)
    valid.remove("tk_2")
    assert sessions.redeem_code(revoked) is None
    clock.set(clock.now() + CODE_LIMIT)
    assert sessions.redeem_code(late) is None


def test_number_of_codes_is_limited() -> None:
    sessions, _ = sessions_at(ManualClock(TEN))
    codes = [sessions.create_code("tk_1") for _ in range(MAX_CODES + 1)]
    assert [sessions.redeem_code(code) for code in codes] == [None, *["tk_1"] * MAX_CODES]


def test_secrets_are_compared_whole() -> None:
    assert is_same_secret("abc", "abc")
    assert not is_same_secret("ab", "abc")
    assert not is_same_secret("äbc\udc80", "abc")
