"""Durations as tests write them."""

from datetime import timedelta

import pytest

from forewarn.testing.duration import DurationLike, to_optional_text, to_text


@pytest.mark.parametrize(
    ("duration", "text"),
    [("1h30m", "1h30m"), (timedelta(minutes=90), "1h30m"), (90, "1m30s"), (0.5, "0.5s"), (timedelta(0), "0s")],
)
def test_duration_is_written_as_the_api_takes_it(duration: DurationLike, text: str) -> None:
    assert (to_text(duration), to_optional_text(duration)) == (text, text)


def test_duration_that_is_left_out_stays_so() -> None:
    assert to_optional_text(None) is None
    assert to_optional_text(0) == "0s"
