"""What settings have to be like together, and with their preset."""

from collections.abc import Mapping

from forewarn.settings.errors import BadSetting, Contradiction, MissingSetting
from forewarn.settings.keys import KEYS, OWN_TIME, Preset, Settings
from forewarn.settings.values import PlatformName


def check(preset: Preset, settings: Settings, places: Mapping[str, str], unsaid: frozenset[str]) -> None:
    """Refuse what does not go together. `places` says where each key's value is from; `unsaid` are the preset's."""
    for key, why in preset.has_to_be_said.items():
        if key in unsaid:
            raise MissingSetting(key, KEYS[key].allowed, why)
    if preset.loopback_only:
        _check_loopback(settings, places)
    if not preset.own_time:
        _check_real_time(settings, places)
    _check_tls(settings, places)
    _check_command(settings, places)


def _check_loopback(settings: Settings, places: Mapping[str, str]) -> None:
    for key, endpoint in (("listen", settings.listen), ("operator", settings.operator)):
        if endpoint is not None and not endpoint.is_loopback:
            allowed = "a loopback address such as 127.0.0.1 or [::1] here, because the emulator protects nothing"
            raise BadSetting(places[key], key, str(endpoint), allowed)


def _check_real_time(settings: Settings, places: Mapping[str, str]) -> None:
    for key in OWN_TIME:
        if getattr(settings, key) != getattr(Settings(), key):
            raise Contradiction(f"{places[key]}: {key} is for the emulator; a real service runs in real time")


def _check_tls(settings: Settings, places: Mapping[str, str]) -> None:
    tls = settings.tls
    for key, value, other in (
        ("tls.certificate", tls.certificate, "tls.key"),
        ("tls.key", tls.key, "tls.certificate"),
    ):
        if value is not None and None in (tls.certificate, tls.key):
            raise Contradiction(f"{places[key]}: {key} is set and {other} is not: TLS needs both")
    if not settings.operator.is_loopback and tls.certificate is None and not settings.operator_without_tls:
        raise Contradiction(
            f"{places['operator']}: operator {settings.operator} can be reached from other machines, and tokens would "
            "cross the network in the open: set tls.certificate and tls.key, or say operator_without_tls = true"
        )


def _check_command(settings: Settings, places: Mapping[str, str]) -> None:
    command = settings.command
    if settings.platform is PlatformName.COMMAND and not command.program:
        raise Contradiction(f"{places['platform']}: platform command needs command.program: the program to run")
    if command.first_pause > command.longest_pause:
        raise Contradiction(
            f"{places['command.first_pause']}: command.first_pause is longer than command.longest_pause"
        )
