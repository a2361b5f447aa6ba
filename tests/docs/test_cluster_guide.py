"""The files and commands of the guide for a cluster, tried in order on loopback: TLS, roles, backup and restore."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from forewarn.settings.load import load_settings
from forewarn.settings.schema import PRODUCTION
from forewarn.store.nats.connection import NatsConnection
from tests.support.processes import free_ports, wait_until
from tests.support.program import GUARD, LOOPBACK, PROGRAM
from tests.support.serve_process import EVENTS, ServeProcess, get, isolated_environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/howto/run-a-cluster.md"
SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SERVICE = "systemctl enable --now forewarn"

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
vms = [{ name = "web-0", host = "hv-0" }]
"""


def guide_blocks() -> dict[str, list[list[str]]]:
    """Return the blocks of commands of each section."""
    sections = SECTION.findall(GUIDE.read_text())
    return {
        title: [[line.strip() for line in block.splitlines()] for block in COMMANDS.findall(text)]
        for title, text in sections
    }


class Machine:
    """A machine of the guide: a directory instead of its disk, and what the page's paths and addresses are here."""

    def __init__(self, root: Path, sample: str, places: dict[str, str]) -> None:
        self.root = root
        self.places = places | {"/etc/forewarn": str(root / "etc"), "/var/lib/forewarn": str(root / "data")}
        (root / "etc").mkdir(parents=True)
        self.write("forewarn.toml", (ROOT / "packaging/systemd" / sample).read_text())
        self.write("fleet.toml", FLEET)
        self.variables: dict[str, str] = {}
        self.service: ServeProcess | None = None

    def write(self, name: str, text: str) -> None:
        """Install a file of the page."""
        (self.root / "etc" / name).write_text(self.local(text))

    def local(self, text: str) -> str:
        """Return a text with the paths and addresses of this test."""
        for place, here in self.places.items():
            text = text.replace(place, here)
        return text

    def run(self, line: str) -> str:
        """Run a command of the page, which must succeed, and return what it prints."""
        if line.startswith("export "):
            for pair in self.local(line).removeprefix("export ").split():
                name, _, value = pair.partition("=")
                self.variables[name] = value
            return ""
        done = subprocess.run(
            ["sh", "-c", f'forewarn() {{ "{PROGRAM}" "$@"; }}; {self.local(line)}'],
            env=isolated_environment(self.root) | self.variables,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self) -> ServeProcess:
        """Do what `systemctl enable --now forewarn` does."""
        shutil.copy(self.root / "etc/forewarn.toml", self.root / "forewarn.toml")
        self.service = ServeProcess(self.root, isolated_environment(self.root), ()).ready()
        return self.service

    @property
    def running(self) -> ServeProcess:
        """The process of the service."""
        assert self.service is not None
        return self.service

    def kill(self) -> None:
        """Leave no process behind."""
        if self.service is not None:
            self.service.process.kill()
            self.service.process.wait(GUARD)

    def stop(self) -> None:
        """Do what `systemctl stop forewarn` does."""
        if self.service is not None:
            assert self.service.stop() == 0, self.service.text
            self.service = None


@contextmanager
def run_guide_servers(root: Path) -> Iterator[dict[str, str]]:
    """Run three servers with the page's configuration; yield what its addresses are here."""
    etc = root / "nats"
    etc.mkdir(parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(etc / "ca.pem")
    issued = authority.issue_cert("127.0.0.1", "10.0.0.1")
    issued.cert_chain_pems[0].write_to_path(etc / "server.pem")
    issued.private_key_pem.write_to_path(etc / "server.key")
    shutil.copy(ROOT / "packaging/nats/accounts.conf", etc / "accounts.conf")
    ports = free_ports(6)
    places = {
        f"10.0.0.{n}:{port}": f"127.0.0.1:{ports[2 * n - (2 if port == 4222 else 1)]}"
        for n in (1, 2, 3)
        for port in (4222, 6222)
    }
    config = (ROOT / "packaging/nats/nats-server.conf").read_text()
    routes = re.search(r"routes: \[.*\]", config)
    assert routes is not None
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for n in (1, 2, 3):
            others = ", ".join(f'"nats://10.0.0.{other}:6222"' for other in (1, 2, 3) if other != n)
            text = config.replace(routes[0], f"routes: [ {others} ]").replace("server_name: n1", f"server_name: n{n}")
            text = text.replace('listen: "10.0.0.1', f'listen: "10.0.0.{n}')
            for place, here in (places | {"/etc/nats": str(etc), "/var/lib/nats": str(root / f"data-{n}")}).items():
                text = text.replace(place, here)
            file = etc / f"n{n}.conf"
            file.write_text(f'{text}\nlog_file: "{etc / f"n{n}.log"}"\n')
            processes.append(subprocess.Popen([PROGRAM.with_name("nats-server"), "-c", file], process_group=0))
        yield places
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(GUARD)


def delete_stream(settings_file: Path) -> None:
    """Lose the stream of the cell."""

    async def delete() -> None:
        settings = load_settings(PRODUCTION, flags={}, environ={}, file=settings_file).settings
        connection = await NatsConnection.open(settings.nats)
        await connection.call("STREAM.DELETE.FOREWARN-main")
        await connection.aclose()

    asyncio.run(delete())


def guest_url(machine: Machine) -> str | None:
    """Return where the VM reaches its endpoint. The API answers sooner than a command, for a test that polls."""
    token, ca = read_token(machine.root / "data/token"), machine.root / "etc/ca.pem"
    (vm,) = ApiClient(machine.running.operator_url, token, ca=ca).vms()
    return vm.guest_url


def events_of(url: str | None) -> list[dict[str, object]]:
    assert url is not None
    status, _, body = get(url, EVENTS)
    if status == 429:  # who waits asks more often than the settings of the guide allow
        return []
    assert status == 200
    events: list[dict[str, object]] = json.loads(body)["Events"]
    return events


def test_guide_leads_to_a_cluster_that_can_be_upgraded_backed_up_and_restored(tmp_path: Path) -> None:
    blocks = guide_blocks()
    with run_guide_servers(tmp_path / "nats") as places, ExitStack() as stack:
        backup = tmp_path / "backup"
        backup.mkdir()
        places |= {"/backup": str(backup), "10.0.0.1:8170": "127.0.0.1:0"}
        controls = [Machine(tmp_path / f"control-{n}", "control.toml", places) for n in (1, 2)]
        host = Machine(
            tmp_path / "hv-0",
            "host.toml",
            places | {'listen_link_local = ["br0"]': f'listen = "{LOOPBACK}:0"', "127.0.0.1:8170": "127.0.0.1:0"},
        )
        for machine in (*controls, host):
            stack.callback(machine.kill)
            shutil.copy(tmp_path / "nats/nats/ca.pem", machine.root / "etc/ca.pem")
            shutil.copy(tmp_path / "nats/nats/server.pem", machine.root / "etc/certificate.pem")
            shutil.copy(tmp_path / "nats/nats/server.key", machine.root / "etc/key.pem")
            machine.write("nats-password", "change-me-hv-0" if machine is host else "change-me-control")
        first = controls[0]
        for line in blocks["2. Create the cell"][0]:
            first.run(line)
        start, look = blocks["3. Start the control nodes"]
        assert start == [SERVICE]
        for machine in controls:
            machine.start()
        first.places |= {"10.0.0.1:8170": first.running.operator_url.removeprefix("https://")}
        for line in look[:-1]:
            first.run(line)
        assert "web" in first.run(look[-1])

        check, look = blocks["4. Start the hosts"]
        assert check[1] == SERVICE
        host.run(check[0])
        host.start()
        wait_until(lambda: guest_url(first) is not None, "the port")
        status, vms = look
        wait_until(lambda: re.search(r"host +hv-0 +process \d+", first.run(status)) is not None, "the host's report")
        assert "web-0" in first.run(vms)
        assert events_of(guest_url(first)) == []

        first.run(blocks["Change the policy"][0][0])
        assert re.search(r"idle_after +2d", first.run(blocks["Change the policy"][0][1]))
        first.run(blocks["Upgrade"][0][0])

        first.run("forewarn event schedule Reboot web-0 --in 1h --reason kept")
        for machine in controls:
            machine.stop()
        for line in blocks["Back up"][0]:
            first.run(line)
        delete_stream(first.root / "etc/forewarn.toml")
        for line in (line for block in blocks["Restore"] for line in block):
            first.run(line)
        first.start()
        first.variables["FOREWARN_URL"] = first.running.operator_url
        assert "restore" in first.run("forewarn hold")
        assert "Reboot" in first.run("forewarn event list")
        assert host.running.wait_for_exit() != 0  # it has found another cell; systemd starts it again
        host.start()
        wait_until(lambda: bool(events_of(guest_url(first))), "the event")
        first.run("forewarn release")
        host.stop()
        first.stop()


def test_page_shows_every_command_that_it_needs() -> None:
    """Each block of the page is tried by the test above."""
    counts = {title: len(found) for title, found in guide_blocks().items() if found}
    assert counts == {
        "1. Start the NATS servers": 1,
        "2. Create the cell": 1,
        "3. Start the control nodes": 2,
        "4. Start the hosts": 2,
        "Change the policy": 1,
        "Upgrade": 1,
        "Back up": 1,
        "Restore": 2,
    }
