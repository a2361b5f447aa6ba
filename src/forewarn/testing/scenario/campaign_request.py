"""The operator API request that starts a campaign of a scenario; both backends parse it as the API does."""

from collections.abc import Sequence
from datetime import timedelta

from forewarn.core.duration import format_duration
from forewarn.testing.scenario import commands


def campaign_request(
    command: commands.StartCampaign,
    *,
    name: str,
    scopes: Sequence[str],
    windows: Sequence[tuple[str, str]],
    gate: object,
) -> dict[str, object]:
    """Return the request, with the names of campaign and scopes in the backend, and without omitted values."""
    policy = {key: _value(value) for key, value in command.policy.items()}
    if windows:
        policy["windows"] = [{"start": start, "end": end} for start, end in windows]
    if command.gate:
        policy["gate"] = gate
    return {
        "name": name,
        "type": command.type.value,
        "selection": {"scopes": list(scopes)},
        "duration": None if command.duration is None else format_duration(command.duration),
        "policy": policy,
    }


def _value(value: timedelta | str | int) -> object:
    """Return a value of the policy in the API's form; the lexer reads a numeric limit as text."""
    if isinstance(value, timedelta):
        return format_duration(value)
    return int(value) if isinstance(value, str) and value.isdigit() else value
