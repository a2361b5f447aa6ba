"""`forewarn config`: the effective settings and their sources."""

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.settings.load import load_settings
from forewarn.settings.schema import KEYS, PRODUCTION
from forewarn.settings.types import variable_name
from tests.cli.in_process import InProcessMachine
from tests.support.program import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return InProcessMachine(tmp_path)


def shown(machine: Machine, *arguments: str, **environ: str) -> dict[str, dict[str, Any]]:
    settings = machine.run_json("config", *arguments, **environ)
    return {setting["key"]: setting for setting in settings}


def test_every_setting_is_shown_with_its_source_variable_and_allowed_values(machine: Machine) -> None:
    settings = shown(machine)
    assert list(settings) == list(KEYS)
    for key, setting in settings.items():
        assert (setting["variable"], setting["allowed"]) == (variable_name(key), KEYS[key].allowed)
        assert setting["origin"] == "emulator preset"
    assert settings["data"]["value"] == str(machine.home / ".local/share/forewarn")


def test_each_value_is_shown_with_its_source(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "forewarn.toml"
    file.write_text('platform = "simulated"\n[policy]\nidle_after = "2h"\n[guest]\nrequests_per_second = 9\n')
    settings = shown(machine, "--for", "serve", FOREWARN_GUEST_REQUESTS_PER_SECOND="7")
    said = {key: (setting["value"], setting["origin"]) for key, setting in settings.items()}
    assert said["policy.idle_after"] == ("2h", str(file))
    assert said["guest.requests_per_second"] == (7, "FOREWARN_GUEST_REQUESTS_PER_SECOND")
    assert said["log.format"] == ("json", "production preset")


def test_settings_that_a_command_does_not_allow_are_not_shown(machine: Machine) -> None:
    settings = shown(machine, "--for", "serve", FOREWARN_PLATFORM="simulated")
    assert set(KEYS) - set(settings) == {"manual_time", "speed", "listen_shared", "allow_remote"}


def test_table_has_a_line_for_each_setting(machine: Machine) -> None:
    lines = machine.run("config").stdout.splitlines()
    assert lines[0].split() == ["KEY", "VALUE", "FROM"]
    assert [line.split()[0] for line in lines[1:]] == list(KEYS)
    assert [line.split() for line in lines if line.startswith("listen_link_local ")] == [
        ["listen_link_local", "none", "emulator", "preset"]
    ]


def test_shown_settings_can_be_used_as_a_settings_file(machine: Machine, tmp_path: Path) -> None:
    shown_ = shown(machine, "--for", "serve", FOREWARN_PLATFORM="simulated")
    sections: dict[str, list[str]] = {}
    for key, setting in shown_.items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(setting['value'])}")
    text = "\n".join("\n".join([f"[{section}]" if section else "", *lines]) for section, lines in sections.items())
    file = tmp_path / "all.toml"
    file.write_text(text)
    expected = load_settings(PRODUCTION, flags={"data": shown_["data"]["value"], "platform": "simulated"}, environ={})
    assert load_settings(PRODUCTION, flags={}, environ={}, file=file).settings == expected.settings


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--for", "serve"), "platform is not set"),
        (("--for", "down"), "'down' is not one of 'up', 'serve'"),
        (("--config", "gone.toml"), "forewarn: --config: gone.toml: cannot be read: No such file or directory"),
    ],
    ids=["no platform", "no such command", "no file"],
)
def test_invalid_settings_are_refused(machine: Machine, arguments: tuple[str, ...], complaint: str) -> None:
    ended = machine.run("config", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr
