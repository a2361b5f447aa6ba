"""Validation across settings: required values, conflicts, and what a preset allows."""

from collections.abc import Mapping

from forewarn.settings.errors import InvalidSetting, MissingSetting, SettingsConflict
from forewarn.settings.schema import KEYS, SIMULATED_TIME_KEYS, UNPROTECTED_KEYS, Preset, Settings
from forewarn.settings.types import PlatformName, RoleName, StoreName


def validate(preset: Preset, settings: Settings, sources: Mapping[str, str], unset: frozenset[str]) -> None:
    """Refuse settings that conflict. `sources`: the source of each value; `unset`: keys that only the preset sets."""
    for key, why in preset.required.items():
        if key in unset:
            raise MissingSetting(key, KEYS[key].allowed, why)
    if preset.loopback_only and not settings.allow_remote:
        _check_loopback(settings, sources)
    if not preset.loopback_only:
        _check_protected(settings, sources)
    if not preset.simulated_time:
        _check_real_time(settings, sources)
    _check_tls(settings, sources)
    _check_command(settings, sources)
    if settings.store is StoreName.NATS:
        if preset.simulated_time:
            raise SettingsConflict(f"{sources['store']}: store nats is for `forewarn serve`; the emulator uses sqlite")
        _check_nats(settings, sources)
    _check_role(settings, sources)


def _check_role(settings: Settings, sources: Mapping[str, str]) -> None:
    if settings.role is not RoleName.SINGLE and settings.store is not StoreName.NATS:
        raise SettingsConflict(
            f"{sources['role']}: role {settings.role.value} needs store nats: several processes share its records"
        )
    if settings.role is RoleName.HOST and settings.host is None:
        raise SettingsConflict(f"{sources['role']}: role host needs host: set the name that the VMs have as their host")
    if settings.role is not RoleName.HOST and settings.host is not None:
        raise SettingsConflict(f"{sources['host']}: host is for role host, but the role is {settings.role.value}")


def _check_nats(settings: Settings, sources: Mapping[str, str]) -> None:
    if settings.ephemeral:
        raise SettingsConflict(f"{sources['ephemeral']}: store nats and ephemeral are mutually exclusive")
    nats = settings.nats
    if not nats.servers:
        raise SettingsConflict(
            f"{sources['nats.servers']}: store nats needs nats.servers: set the addresses of the NATS servers"
        )
    for key, value, needs, other in (
        ("nats.password_file", nats.password_file, "nats.user", nats.user),
        ("nats.user", nats.user, "nats.password_file", nats.password_file),
        ("nats.certificate", nats.certificate, "nats.key", nats.key),
        ("nats.key", nats.key, "nats.certificate", nats.certificate),
    ):
        if value is not None and other is None:
            raise SettingsConflict(f"{sources[key]}: {key} is set but {needs} is not: it needs both")
    logins = {
        "nats.user": nats.user,
        "nats.token_file": nats.token_file,
        "nats.nkey_file": nats.nkey_file,
        "nats.credentials_file": nats.credentials_file,
    }
    if len(chosen := [key for key, value in logins.items() if value is not None]) > 1:
        raise SettingsConflict(f"{sources[chosen[1]]}: {' and '.join(chosen)} are mutually exclusive: choose one login")


def _check_loopback(settings: Settings, sources: Mapping[str, str]) -> None:
    addresses = {"listen": settings.listen, "listen_shared": settings.listen_shared, "operator": settings.operator}
    for key, endpoint in addresses.items():
        if endpoint is not None and not endpoint.is_loopback:
            allowed = (
                "a loopback address such as 127.0.0.1 or [::1] here, because the emulator protects nothing; "
                "--allow-remote allows others"
            )
            raise InvalidSetting(sources[key], key, repr(str(endpoint)), allowed)


def _check_protected(settings: Settings, sources: Mapping[str, str]) -> None:
    for key in UNPROTECTED_KEYS:
        if getattr(settings, key) != getattr(Settings(), key):
            raise SettingsConflict(
                f"{sources[key]}: {key} is for the emulator only: any caller could act as any VM. Use "
                "listen_link_local, which recognises VMs by their addresses"
            )
    if settings.listen is not None and not settings.listen.is_loopback:
        raise SettingsConflict(
            f"{sources['listen']}: listen {settings.listen} can be reached from other machines, and any caller of a "
            "VM's port could act as that VM: use a loopback address, or listen_link_local"
        )


def _check_real_time(settings: Settings, sources: Mapping[str, str]) -> None:
    for key in SIMULATED_TIME_KEYS:
        if getattr(settings, key) != getattr(Settings(), key):
            raise SettingsConflict(f"{sources[key]}: {key} is for the emulator only; a service runs in real time")


def _check_tls(settings: Settings, sources: Mapping[str, str]) -> None:
    tls = settings.tls
    for key, value, other in (
        ("tls.certificate", tls.certificate, "tls.key"),
        ("tls.key", tls.key, "tls.certificate"),
    ):
        if value is not None and None in (tls.certificate, tls.key):
            raise SettingsConflict(f"{sources[key]}: {key} is set but {other} is not: TLS needs both")
    if not settings.operator.is_loopback and tls.certificate is None and not settings.operator_without_tls:
        raise SettingsConflict(
            f"{sources['operator']}: operator {settings.operator} can be reached from other machines, and tokens would "
            "cross the network unencrypted: set tls.certificate and tls.key, or set operator_without_tls = true"
        )


def _check_command(settings: Settings, sources: Mapping[str, str]) -> None:
    command = settings.command
    if settings.platform is PlatformName.COMMAND and not command.program:
        raise SettingsConflict(f"{sources['platform']}: platform command needs command.program: set the program to run")
    if command.first_pause > command.longest_pause:
        raise SettingsConflict(
            f"{sources['command.first_pause']}: command.first_pause is longer than command.longest_pause"
        )
