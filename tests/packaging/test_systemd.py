"""The service's systemd unit: systemd accepts it, it is sandboxed, and it matches the sample settings."""

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
"""Maximum exposure level by systemd-analyze, in tenths from 0 (safe) to 100, for a service that opens ports."""


@pytest.fixture(scope="module")
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the way to have names keep their case
    parser.read(UNITS / "forewarn.service")
    return parser["Service"]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit to install, with the path of the program on this machine."""
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
def test_systemd_accepts_the_unit(unit: Path) -> None:
    checked = analyze("verify", "--man=no", unit)
    complaints = [line for line in checked.stderr.splitlines() if "forewarn.service" in line]
    assert (checked.returncode, complaints) == (0, [])


@pytest.mark.process
def test_unit_of_the_nats_server_is_accepted_and_has_a_low_exposure_level(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the program systemd-analyze is missing: install systemd")
    nats = tmp_path / "nats-server.service"
    text = (UNITS / "nats-server.service").read_text()
    nats.write_text(text.replace("/usr/local/bin/nats-server", str(PROGRAM.with_name("nats-server"))))
    checked = analyze("verify", "--man=no", nats)
    complaints = [line for line in checked.stderr.splitlines() if "nats-server.service" in line]
    assert (checked.returncode, complaints) == (0, [])
    rated = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", nats)
    if "Unknown option" not in rated.stderr and "unrecognized option" not in rated.stderr:
        assert rated.returncode == 0, rated.stdout + rated.stderr


@pytest.mark.parametrize("name", ["control", "host"])
def test_sample_settings_of_a_cluster_are_valid_and_match_the_unit(
    service: configparser.SectionProxy, name: str
) -> None:
    settings = load_settings(PRODUCTION, flags={}, environ={}, file=UNITS / f"{name}.toml").settings
    assert str(settings.data) == service["WorkingDirectory"]
    assert (settings.role.value, settings.store.value) == (name, "nats")


@pytest.mark.process
def test_systemd_check_finds_mistakes(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHome=perhaps"))
    assert "protect home" in analyze("verify", "--man=no", unit).stderr


@pytest.mark.process
def test_unit_has_a_low_exposure_level(unit: Path) -> None:
    rated = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)
    if "Unknown option" in rated.stderr or "unrecognized option" in rated.stderr:
        pytest.skip("this systemd cannot rate a unit that is not installed")
    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_sample_settings_are_valid_and_match_the_unit(service: configparser.SectionProxy) -> None:
    settings = load_settings(PRODUCTION, flags={}, environ={}, file=UNITS / "forewarn.toml").settings
    assert str(settings.data) == service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["ExecStart"] == f"{INSTALLED} serve --config /etc/{service['ConfigurationDirectory']}/forewarn.toml"
    assert settings.operator.is_loopback


def test_commented_out_settings_are_valid(tmp_path: Path) -> None:
    """Users can uncomment any setting."""
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


def test_service_restarts_unless_its_settings_are_invalid(service: configparser.SectionProxy) -> None:
    """Other startup errors can be temporary: a missing bridge, or a busy port."""
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", str(int(ExitCode.USAGE)))


def test_service_has_only_the_capability_to_bind_its_port(service: configparser.SectionProxy) -> None:
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"


def test_user_of_the_unit_is_created(service: configparser.SectionProxy) -> None:
    (line,) = [line for line in (UNITS / "forewarn.sysusers").read_text().splitlines() if not line.startswith("#")]
    assert line.split()[:2] == ["u", service["User"]]
    assert service["Group"] == service["User"]
