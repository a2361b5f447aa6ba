"""Campaign types of the API: states of waves, and required fields of requests."""

import msgspec
import pytest

from forewarn.api.v1.campaigns import AbortCampaign, RetryWave, SkipWave, WaveState
from forewarn.core.campaign.record import WaveState as CoreWaveState


def test_every_state_of_a_wave_in_the_core_has_a_name_in_the_api() -> None:
    names = {"abandoned" if state is CoreWaveState.LEFT else state.text for state in CoreWaveState}
    assert names == {state.value for state in WaveState}


@pytest.mark.parametrize(
    ("type_", "content"),
    [(AbortCampaign, {}), (AbortCampaign, {"reason": ""}), (SkipWave, {"scope": "web"}), (RetryWave, {})],
    ids=["abort", "abort with empty reason", "skip", "retry"],
)
def test_required_fields_are_required(type_: type[msgspec.Struct], content: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"reason|scope"):
        msgspec.convert(content, type_)
