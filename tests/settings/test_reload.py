"""What a running service takes over when its settings are read again."""

import re
from pathlib import Path

import msgspec

from forewarn.settings.load import load_settings
from forewarn.settings.reload import SettingsChange, compare_settings, merge_reloadable
from forewarn.settings.schema import (
    KEYS,
    PRODUCTION,
    SIMULATED_TIME_KEYS,
    UNPROTECTED_KEYS,
    CommandSettings,
    TlsSettings,
)
from forewarn.settings.types import PlatformName
from tests.settings.sample_values import EVERY_KEY

ONLY_EMULATOR = {*SIMULATED_TIME_KEYS, *UNPROTECTED_KEYS}


def test_running_service_applies_reloadable_settings() -> None:
    running = PRODUCTION.settings
    read = load_settings(
        PRODUCTION,
        flags={key: text for key, (_, text) in EVERY_KEY.items() if key not in ONLY_EMULATOR},
        environ={},
    ).settings
    sections = ("policy.", "command.", "campaigns.", "gates", "log.")
    expected = {key for key in KEYS if key.startswith(sections)} | {"guest.requests_per_second"}
    live, after_restart = compare_settings(running, read)
    unchanged = {
        "ephemeral",
        "host",
        "role",
        "store",
        *ONLY_EMULATOR,
        "policy.announce",
        "policy.enforce_notice",
        "log.format",
    }
    assert set(live) == expected - unchanged
    assert set(after_restart) == set(KEYS) - expected - unchanged
    taken = merge_reloadable(running, read)
    assert compare_settings(taken, read) == SettingsChange((), after_restart)


def test_program_stays_until_the_platform_changes_with_the_next_start() -> None:
    """Settings for another platform have no program, and the running platform keeps its own."""
    program = CommandSettings(program=("/bin/true",), attempts=3)
    running = msgspec.structs.replace(PRODUCTION.settings, platform=PlatformName.COMMAND, command=program)
    read = msgspec.structs.replace(PRODUCTION.settings, platform=PlatformName.SIMULATED)
    assert merge_reloadable(running, read).command == program
    assert compare_settings(running, read) == SettingsChange((), ("platform", "command.program", "command.attempts"))


def test_changed_certificate_is_applied_but_not_the_first_or_none() -> None:
    without = PRODUCTION.settings
    old, new = (
        msgspec.structs.replace(without, tls=TlsSettings(certificate=Path(name), key=Path("/key")))
        for name in ("/old", "/new")
    )
    keys = ("tls.certificate", "tls.key")
    assert compare_settings(old, new) == SettingsChange(keys[:1], ())
    assert compare_settings(without, new) == compare_settings(new, without) == SettingsChange((), keys)


def test_reference_lists_reloadable_settings() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    (paragraph,) = re.findall(r"^\*\*Reloading.*$", page, re.MULTILINE)
    for said in (
        "`policy.*`",
        "`command.*`",
        "`gates.*`",
        "`campaigns.*`",
        "`tls.*`",
        "`log.*`",
        "`guest.requests_per_second`",
    ):
        assert said in paragraph
