"""What the operator API is asked to start a campaign of a scenario. Both backends read it as the API does."""

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
    """Return the request, with the names that campaign and scopes have there. What is not said is left out."""
    policy: dict[str, object] = {
        "gap": _text(command.gap),
        "notice": _text(command.notice),
        "expected": _text(command.expected),
        "scopes_at_once": _limit(command.scopes_at_once),
        "hosts_at_once": _limit(command.hosts_at_once),
        "vms_at_once": _limit(command.vms_at_once),
        "windows": [{"start": start, "end": end} for start, end in windows] or None,
        "must_end_inside": command.must_end_inside,
        "gate": gate if command.gate else None,
        "gate_patience": _text(command.gate_patience),
        "halt_after": command.halt_after,
    }
    return {
        "name": name,
        "type": command.type.value,
        "selection": {"scopes": list(scopes)},
        "duration": _text(command.duration),
        "policy": {key: value for key, value in policy.items() if value is not None},
    }


def _text(duration: timedelta | None) -> str | None:
    return None if duration is None else format_duration(duration)


def _limit(limit: str | None) -> int | str | None:
    return int(limit) if limit is not None and limit.isdigit() else limit
