"""The agent's systemd unit: systemd accepts it, its ordering is right, and it matches the sample settings."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.agent.settings import AgentSettings, LogHandlerSettings, read_settings

UNITS = Path(__file__).parents[2] / "packaging/systemd"
INSTALLED = "/usr/local/bin/forewarn"
PROGRAM = Path(sys.executable).parent / "forewarn"


@pytest.fixture(scope="module")
def sections() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the way to have names keep their case
    parser.read(UNITS / "forewarn-agent.service")
    return parser


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit to install, with the path of the program on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the program systemd-analyze is missing: install systemd")
    text = (UNITS / "forewarn-agent.service").read_text()
    assert text.count(INSTALLED) == 1
    unit = tmp_path / "forewarn-agent.service"
    unit.write_text(text.replace(INSTALLED, str(PROGRAM)))
    return unit


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.process
def test_systemd_accepts_the_unit(unit: Path) -> None:
    checked = analyze("verify", "--man=no", unit)
    complaints = [line for line in checked.stderr.splitlines() if "forewarn-agent" in line or "cycle" in line]
    assert (checked.returncode, complaints) == (0, [])


@pytest.mark.process
def test_systemd_check_finds_mistakes(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=perhaps"))
    assert "perhaps" in analyze("verify", "--man=no", unit).stderr


def enabled(unit: Path) -> subprocess.CompletedProcess[str]:
    """Let systemd plan the boot of a machine with the unit enabled."""
    wants = unit.parent / "multi-user.target.wants"
    wants.mkdir()
    (wants / unit.name).symlink_to(unit)
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "multi-user.target"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{unit.parent}:"},
    )


@pytest.mark.process
def test_enabled_unit_has_no_ordering_cycle(unit: Path) -> None:
    """The unit is wanted by the same target that it starts after."""
    assert "forewarn-agent" not in enabled(unit).stderr


@pytest.mark.process
def test_ordering_cycle_would_be_found(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("[Unit]", "[Unit]\nBefore=multi-user.target"))
    found = [line for line in enabled(unit).stderr.splitlines() if "Found ordering cycle on" in line]
    assert any("forewarn-agent.service" in line for line in found), "systemd may report the cycle from either unit"


def test_agent_starts_after_and_stops_before_network_and_workloads(
    sections: configparser.ConfigParser,
) -> None:
    assert sections["Unit"]["After"].split() == ["network-online.target", "multi-user.target"]
    assert sections["Unit"]["Wants"] == "network-online.target"
    assert "Before" not in sections["Unit"]
    assert sections["Install"]["WantedBy"] == "multi-user.target"


def test_agent_restarts_unless_its_settings_are_invalid(sections: configparser.ConfigParser) -> None:
    service = sections["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert service["Type"] == "notify"


def test_no_hook_outlives_its_agent(sections: configparser.ConfigParser) -> None:
    assert sections["Service"]["KillMode"] == "mixed"


def test_unit_and_settings_use_the_same_paths(sections: configparser.ConfigParser) -> None:
    service = sections["Service"]
    assert service["ExecStart"] == (
        f"{INSTALLED} agent run --config /etc/{service['ConfigurationDirectory']}/agent.toml"
    )
    state = f"/var/lib/{service['StateDirectory']}"
    settings = read_settings(UNITS / "agent.toml", {"STATE_DIRECTORY": state})
    assert settings == AgentSettings(state=Path(state), handlers=(LogHandlerSettings(name="log"),))


def test_commented_out_settings_are_valid(tmp_path: Path) -> None:
    lines = (UNITS / "agent.toml").read_text().splitlines()
    wanted = [line.removeprefix("# ") if line.startswith("# [") or " = " in line else line for line in lines]
    file = tmp_path / "agent.toml"
    file.write_text("\n".join(wanted))
    settings = read_settings(file, {})
    assert [handler.name for handler in settings.handlers] == ["probe", "workers", "hooks", "log"]
    assert [rule.handlers for rule in settings.rules] == [("log",), ("probe", "workers", "hooks", "log")]
    assert settings.peers.secret_file is not None
    assert settings.peers.agents
