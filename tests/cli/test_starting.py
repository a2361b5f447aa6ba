"""What is said on the terminal while the service starts."""

import pytest

from forewarn.cli.starting import WORTH_A_BAR, _Talk


def fill_in_vain(talk: _Talk) -> None:
    with talk:
        talk.filling(1, WORTH_A_BAR)
        assert talk._bar is not None
        assert talk._bar.live.is_started
        raise RuntimeError("the disk is full")


def test_bar_is_taken_away_when_the_fleet_cannot_be_filled() -> None:
    """Else it would go on being drawn over the message, and the cursor would stay hidden."""
    talk = _Talk()
    with pytest.raises(RuntimeError, match="the disk is full"):
        fill_in_vain(talk)
    assert talk._bar is not None
    assert not talk._bar.live.is_started


def test_bar_that_has_come_to_its_end_is_taken_away_once() -> None:
    with _Talk() as talk:
        talk.filling(WORTH_A_BAR, WORTH_A_BAR)
        assert talk._bar is not None
        assert not talk._bar.live.is_started
