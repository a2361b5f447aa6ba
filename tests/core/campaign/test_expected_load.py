"""The load that is expected at one time, and the room that it leaves."""

from datetime import timedelta

from forewarn.core.campaign.expected_load import FAR_FUTURE, ExpectedLoad
from forewarn.core.campaign.limits import CampaignLimits, ExceededLimit, Load
from forewarn.core.campaign.record import FAR_PAST
from tests.core.sample_scopes import TEN

MINUTE = timedelta(minutes=1)


def one_scope_at_once() -> ExpectedLoad:
    return ExpectedLoad(CampaignLimits(scopes=1), 5 * MINUTE, at=TEN)


def test_load_counts_while_a_wave_could_overlap_it() -> None:
    expected = one_scope_at_once()
    one, other = Load("a", ("hv-0",), 1), Load("b", ("hv-1",), 1)
    expected.add(one, TEN + 20 * MINUTE, TEN + 30 * MINUTE)
    assert expected.fits(other)
    assert expected.next_change == TEN + 15 * MINUTE + timedelta(seconds=1), "an earlier wave ends in time"
    expected.advance(TEN + 16 * MINUTE)
    assert expected.exceeded(other) == ExceededLimit(what="scopes", limit=1, wanted=2)
    expected.advance(TEN + 30 * MINUTE)
    assert expected.exceeded(other) is None


def test_late_load_is_expected_to_last_without_end() -> None:
    expected = one_scope_at_once()
    expected.add(Load("a", (), 1), FAR_PAST, FAR_FUTURE)
    expected.advance(TEN + timedelta(days=300))
    assert not expected.fits(Load("b", (), 1))
    assert expected.next_change is None
