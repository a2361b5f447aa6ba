"""Scenario types: a request has a name, and a text of limited size."""

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.v1.scenarios import MAX_SCENARIO_LENGTH


@pytest.mark.parametrize(
    "body",
    [{}, {"name": ""}, {"name": "x", "text": ""}, {"name": "x", "text": "a" * (MAX_SCENARIO_LENGTH + 1)}, {"nam": "x"}],
)
def test_wrong_request_is_refused(body: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, v1.PlayScenario)


def test_scenario_of_a_user_has_a_text() -> None:
    assert msgspec.convert({"name": "mine", "text": "# T."}, v1.PlayScenario).text == "# T."
