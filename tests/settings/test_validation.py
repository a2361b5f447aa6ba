"""Validation across settings: what a preset does not allow, and what excludes or requires another setting."""

import pytest

from forewarn.settings.errors import (
    MissingSetting,
    SettingsError,
)
from forewarn.settings.load import load_settings
from forewarn.settings.schema import (
    EMULATOR,
    PRODUCTION,
    Preset,
)
from forewarn.settings.types import (
    ListenAddress,
    PlatformName,
)

NATS = {"store": "nats", "nats.servers": "nats://h1:4222"}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"store": "nats"}, "store nats needs nats.servers"),
        ({**NATS, "ephemeral": True}, "--ephemeral: store nats and ephemeral are mutually exclusive"),
        ({**NATS, "nats.user": "ada"}, "--nats-user: nats.user is set but nats.password_file is not"),
        ({**NATS, "nats.password_file": "/p"}, "--nats-password-file: nats.password_file is set but nats.user is not"),
        ({**NATS, "nats.certificate": "/c"}, "--nats-certificate: nats.certificate is set but nats.key is not"),
        ({**NATS, "nats.key": "/k"}, "--nats-key: nats.key is set but nats.certificate is not"),
        (
            {**NATS, "nats.token_file": "/t", "nats.nkey_file": "/n"},
            "--nats-nkey-file: nats.token_file and nats.nkey_file are mutually exclusive",
        ),
    ],
)
def test_settings_with_which_nats_cannot_be_used_are_refused(flags: dict[str, object], complaint: str) -> None:
    load_settings(PRODUCTION, flags={"platform": "simulated", **NATS}, environ={})
    with pytest.raises(SettingsError) as refusal:
        load_settings(PRODUCTION, flags={"platform": "simulated", **flags}, environ={})
    assert complaint in str(refusal.value)


def test_emulator_does_not_use_nats() -> None:
    with pytest.raises(SettingsError, match="--store: store nats is for `forewarn serve`"):
        load_settings(EMULATOR, flags=NATS, environ={})


@pytest.mark.parametrize(
    ("preset", "flags", "complaint"),
    [
        (EMULATOR, {"operator": "0.0.0.0:8170"}, "--operator: operator takes a loopback address"),
        (EMULATOR, {"listen": "[2001:db8::1]:80"}, "--listen: listen takes a loopback address"),
        (EMULATOR, {"listen_shared": "0.0.0.0:0"}, "--listen-shared: listen_shared takes a loopback address"),
        (
            EMULATOR,
            {"operator": "0.0.0.0:1", "allow_remote": True},
            "--operator: operator 0.0.0.0:1 can be reached from other machines",
        ),
        (PRODUCTION, {"allow_remote": True}, "--allow-remote: allow_remote is for the emulator only"),
        (PRODUCTION, {"listen_shared": "127.0.0.1:0"}, "--listen-shared: listen_shared is for the emulator only"),
        (PRODUCTION, {"listen": "0.0.0.0:80"}, "--listen: listen 0.0.0.0:80 can be reached from other machines"),
        (PRODUCTION, {"speed": "2"}, "--speed: speed is for the emulator"),
        (PRODUCTION, {"manual_time": True}, "--manual-time: manual_time is for the emulator"),
        (
            EMULATOR,
            {"data": "/x", "ephemeral": True},
            "--data and --ephemeral: data and ephemeral are mutually exclusive",
        ),
        (PRODUCTION, {"operator": "0.0.0.0:1"}, "--operator: operator 0.0.0.0:1 can be reached from other machines"),
        (PRODUCTION, {"tls.key": "/k"}, "--tls-key: tls.key is set but tls.certificate is not"),
        (PRODUCTION, {"tls.certificate": "/c"}, "--tls-certificate: tls.certificate is set but tls.key is not"),
        (PRODUCTION, {"platform": "command"}, "--platform: platform command needs command.program"),
        (PRODUCTION, {"command.first_pause": "1h"}, "--command-first-pause: command.first_pause is longer than"),
    ],
    ids=[
        "operator beyond loopback",
        "guests beyond loopback",
        "shared port beyond loopback",
        "remote operator without TLS",
        "remote guests of a service",
        "shared port of a service",
        "ports of a service beyond loopback",
        "speed",
        "manual time",
        "data and ephemeral",
        "operator without TLS",
        "key alone",
        "certificate alone",
        "command without program",
        "pauses",
    ],
)
def test_setting_that_the_preset_does_not_allow_is_refused(
    preset: Preset, flags: dict[str, object], complaint: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(preset, flags={"platform": "simulated"} | flags, environ={})
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("key", ["listen", "listen_shared"])
def test_allow_remote_opens_the_guest_ports_only(key: str) -> None:
    flags = {key: "0.0.0.0:8180", "allow_remote": True}
    settings = load_settings(EMULATOR, flags=flags, environ={}).settings
    assert getattr(settings, key) == ListenAddress("0.0.0.0", 8180)
    assert settings.operator.is_loopback


@pytest.mark.parametrize(
    "flags",
    [{"operator_without_tls": True}, {"tls.certificate": "/c", "tls.key": "/k"}],
    ids=["told so", "with TLS"],
)
def test_operator_api_beyond_loopback_needs_tls_or_operator_without_tls(flags: dict[str, object]) -> None:
    said = {"platform": "simulated", "operator": "192.0.2.1:8170"}
    assert load_settings(PRODUCTION, flags=said | flags, environ={}).settings.operator == ListenAddress(
        "192.0.2.1", 8170
    )


def test_production_requires_a_platform() -> None:
    with pytest.raises(MissingSetting) as refused:
        load_settings(PRODUCTION, flags={}, environ={})
    assert str(refused.value).startswith("platform is not set, and a service must not announce maintenance")
    said = load_settings(PRODUCTION, flags={}, environ={"FOREWARN_PLATFORM": "simulated"})
    assert said.settings.platform is PlatformName.SIMULATED
