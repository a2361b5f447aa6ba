"""The settings schema: every key with its default, the two presets, and the reference page."""

import re
from datetime import timedelta
from pathlib import Path

import msgspec

from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.policy import AnnouncePolicy
from forewarn.settings.loader import iter_values
from forewarn.settings.schema import (
    EMULATOR,
    KEYS,
    PRESETS,
    PRODUCTION,
    SIMULATED_TIME_KEYS,
    GuestSettings,
    PolicySettings,
    Settings,
    SimulatedSettings,
)
from forewarn.settings.types import (
    DEMONSTRATION,
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    flag_name,
    format_value,
    variable_name,
)


def test_emulator_always_announces_has_no_limits_and_accepts_any_notice() -> None:
    assert EMULATOR.settings == Settings(
        fleet=DEMONSTRATION,
        listen=ListenAddress("127.0.0.1", 8180),
        operator=ListenAddress("127.0.0.1", 8170),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(
            announce=AnnouncePolicy.ALWAYS,
            enforce_notice=False,
            idle_after=None,
            shortest_notice=timedelta(seconds=10),
        ),
        log=LogSettings(format=LogFormat.TEXT, level=LogLevel.WARNING),
    )


def test_production_keeps_the_limits_of_the_protocol() -> None:
    assert PRODUCTION.settings == Settings(
        fleet=None,
        listen=None,
        guest=GuestSettings(requests_per_second=5, unsupported_version_status=404, enable_delay=timedelta(0)),
        policy=PolicySettings(
            announce=AnnouncePolicy.WHEN_ENABLED,
            enforce_notice=True,
            idle_after=timedelta(hours=24),
            user_operations=10,
        ),
        log=LogSettings(format=LogFormat.JSON, level=LogLevel.INFO),
    )


ROW = re.compile(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
# Defaults that the page describes, because they differ between machines or cannot be set.
SAID_IN_WORDS = {"data", "manual_time", "speed", "platform", "listen_shared", "allow_remote"}


def test_reference_names_every_key_with_its_purpose_and_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    rows = {key: cells for key, *cells in ROW.findall(page)}
    assert list(rows) == list(KEYS)
    for key, (purpose, _takes, *defaults) in rows.items():
        presets = [shown(dict(iter_values(preset.settings))[key]) for preset in (EMULATOR, PRODUCTION)]
        assert defaults == presets or key in SAID_IN_WORDS, key
        assert " " in purpose, f"{key} has no purpose"
    key, variable = re.findall(r"`([a-z_.]+)` is `(FOREWARN_[A-Z_]+)`", page)[0]
    assert variable == variable_name(key)


def shown(value: object) -> str:
    """Write a value as the page does."""
    text = format_value(value)
    return str(text).lower() if isinstance(text, bool) else str(text)


def test_simulated_platform_has_one_setting_per_event_type() -> None:
    assert msgspec.structs.asdict(SimulatedSettings()) == {
        type_.name.lower(): spec.default_duration for type_, spec in EVENT_TYPES.items()
    }


def test_names_of_variable_and_flag_are_derived_from_the_key() -> None:
    assert (variable_name("policy.idle_after"), flag_name("policy.idle_after")) == (
        "FOREWARN_POLICY_IDLE_AFTER",
        "--policy-idle-after",
    )
    for name in (variable_name, flag_name):
        assert len({name(key) for key in KEYS}) == len(KEYS)


def test_presets_are_found_by_their_commands() -> None:
    assert PRESETS == {"up": EMULATOR, "serve": PRODUCTION}
    assert (EMULATOR.loopback_only, EMULATOR.simulated_time, [*EMULATOR.required]) == (True, True, [])
    assert (PRODUCTION.loopback_only, PRODUCTION.simulated_time, [*PRODUCTION.required]) == (
        False,
        False,
        ["platform"],
    )


def test_keys_that_presets_name_exist() -> None:
    assert {*SIMULATED_TIME_KEYS, *EMULATOR.required, *PRODUCTION.required} <= {*KEYS}
