"""The systemd unit: systemd accepts it, it gives away little, and it fits the settings that come with it."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.cli.errors import ExitCode
from forewarn.settings.load import load_settings
from forewarn.settings.schema import PRODUCTION

UNITS = Path(__file__).parents[2] / "packaging/systemd"
INSTALLED = "/usr/local/bin/forewarn"
PROGRAM = Path(sys.executable).parent / "forewarn"

MOST_EXPOSED = 25
"""Tenths of systemd's exposure level, from 0 (safe) to 100: what a service needs that has a network and ports."""


@pytest.fixture(scope="module")
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the way to have names keep their case
    parser.read(UNITS / "forewarn.service")
    return parser["Service"]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it would be installed, with the program where it is here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the program systemd-analyze is missing: install systemd")
    text = (UNITS / "forewarn.service").read_text()
    assert text.count(INSTALLED) == 1
    unit = tmp_path / "forewarn.service"
    unit.write_text(text.replace(INSTALLED, str(PROGRAM)))
    return unit


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.process
def test_systemd_has_nothing_to_say_against_the_unit(unit: Path) -> None:
    checked = analyze("verify", "--man=no", unit)
    complaints = [line for line in checked.stderr.splitlines() if "forewarn.service" in line]
    assert (checked.returncode, complaints) == (0, [])


@pytest.mark.process
def test_mistakes_in_the_unit_would_be_found(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHome=perhaps"))
    assert "protect home" in analyze("verify", "--man=no", unit).stderr


@pytest.mark.process
def test_unit_exposes_little(unit: Path) -> None:
    rated = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)
    if "Unknown option" in rated.stderr or "unrecognized option" in rated.stderr:
        pytest.skip("this systemd cannot rate a unit that is not installed")
    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_settings_that_come_with_the_unit_are_good_and_fit_it(service: configparser.SectionProxy) -> None:
    settings = load_settings(PRODUCTION, flags={}, environ={}, file=UNITS / "forewarn.toml").settings
    assert str(settings.data) == service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["ExecStart"] == f"{INSTALLED} serve --config /etc/{service['ConfigurationDirectory']}/forewarn.toml"
    assert settings.operator.is_loopback


def test_what_is_commented_out_in_the_settings_is_good_too(tmp_path: Path) -> None:
    """Whoever takes the marks away from settings finds that they work."""
    lines = (UNITS / "forewarn.toml").read_text().splitlines()
    wanted = [line.removeprefix("# ") if _is_setting(line) else line for line in lines]
    wanted.remove('platform = "simulated"')
    file = tmp_path / "forewarn.toml"
    file.write_text("\n".join(wanted))
    settings = load_settings(PRODUCTION, flags={}, environ={}, file=file).settings
    assert (settings.command.program, str(settings.tls.key)) == (("/usr/local/bin/maintain",), "/etc/forewarn/key.pem")


def _is_setting(line: str) -> bool:
    return line.startswith(("# [", "# platform =", "# program =", "# time_limit =", "# certificate =", "# key ="))


def test_programs_of_operators_outlive_the_service(service: configparser.SectionProxy) -> None:
    assert (service["KillMode"], service["OOMPolicy"]) == ("process", "continue")


def test_only_wrong_settings_keep_the_service_from_being_started_again(service: configparser.SectionProxy) -> None:
    """A bridge that is not there yet, or a port that is busy for a while, ends it too, and passes."""
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", str(int(ExitCode.USAGE)))


def test_service_has_the_right_to_its_port_and_no_other(service: configparser.SectionProxy) -> None:
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"


def test_user_of_the_unit_is_made(service: configparser.SectionProxy) -> None:
    (line,) = [line for line in (UNITS / "forewarn.sysusers").read_text().splitlines() if not line.startswith("#")]
    assert line.split()[:2] == ["u", service["User"]]
    assert service["Group"] == service["User"]
