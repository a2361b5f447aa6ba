"""The process of `forewarn up`: start, stop signals, and progress of the fleet file."""

import json
import re
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.program import Machine

pytestmark = pytest.mark.process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["INT", "TERM", "HUP"])
def test_signal_stops_the_service_and_leaves_only_its_data(machine: Machine, tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    with machine.up("--data", str(data)) as service:
        described = json.loads((data / "service.json").read_text())
        assert (described["pid"], described["operator_url"]) == (service.process.pid, service.ready["operator_url"])
        assert service.stop(number) == 0
    assert service.stderr.splitlines()[-2:] == ["Stopping.", "Stopped."]
    assert {path.name for path in data.iterdir()} == {"forewarn.db", "forewarn.lock", "preset", "token"}


def test_fleet_file_is_imported_only_into_an_empty_directory(machine: Machine, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('scopes = [{ name = "db", kind = "standalone" }]')
    other = tmp_path / "other.toml"
    other.write_text("this is not even read")
    data = ("--data", str(tmp_path / "data"))
    with machine.up("--fleet", str(small), *data) as first:
        assert set(first.guest_urls) == {"db/db"}
    assert "is ignored" not in first.stderr
    with machine.up("--fleet", str(other), *data) as second:
        assert set(second.guest_urls) == {"db/db"}
    assert (
        f"The data directory already has a fleet; {other} is ignored. "
        f"`forewarn fleet import {other}` imports it; to start with it, use another --data DIR or --ephemeral.\n"
    ) in second.stderr
    with machine.up(*data) as third:
        assert set(third.guest_urls) == {"db/db"}
    assert "is ignored" not in third.stderr


def test_fleet_of_thousands_shows_progress(machine: Machine, tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_text("".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(3_000)))
    with machine.up("--fleet", str(large), "--data", str(tmp_path / "data"), "--listen", "none") as service:
        assert len(machine.run_json("vm", "list", "--data", str(tmp_path / "data"))) == 3_000
    assert re.search(r"Importing the fleet file.*3000/3000", service.stderr)


def test_second_ctrl_c_kills_the_service(machine: Machine) -> None:
    """A request whose body never arrives delays the shutdown."""
    with machine.up("--ephemeral") as service:
        parts = urlsplit(service.ready["operator_url"])
        token = Path(service.ready["token_file"]).read_text().strip()
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as slow:
            head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
            slow.sendall(head.encode())
            assert machine.run("clock", "show").returncode == 0
            service.process.send_signal(signal.SIGINT)
            assert service.process.stderr is not None
            while service.process.stderr.readline() != "Stopping.\n":
                assert service.process.poll() is None
            assert service.stop(signal.SIGINT) == -signal.SIGINT
