"""A cluster as processes: three NATS servers, two control nodes and three hosts, with a fleet and a platform."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from tests.end_to_end.cluster.links import Network, run_network
from tests.support.nats_servers import NatsCluster, NatsServer
from tests.support.processes import GUARD, free_ports, wait_until
from tests.support.program import LOOPBACK, PROGRAM
from tests.support.serve_process import isolated_environment

HERE = Path(__file__).parent
HOSTS = ("hv-0", "hv-1", "hv-2")
CONTROLS = ("control-0", "control-1")
REQUEST_SECONDS = 6.0
"""How long a client waits for an answer before it asks another node."""

CELL = "main"
WORK_SECONDS = 0.5
"""How long the platform works on a VM."""

SETTINGS = """
store = "nats"
role = "{role}"
data = "data"
operator = "127.0.0.1:{port}"
platform = "command"
{more}

[guest]
requests_per_second = "none"

[policy]
enforce_notice = false
announce = "always"
shortest_notice = "1s"

[command]
program = ["{program}", "{log}", "{seconds}"]
first_pause = "1s"
probe_limit = "30s"

[nats]
servers = [{servers}]
cell = "{cell}"
"""


def fleet_file() -> str:
    """Return the fleet: sets over all hosts, standalone VMs, and sets for campaigns."""
    sets = {"web": 6, "db": 3} | {f"c{n}": 2 for n in range(4)}
    scopes = []
    for place, (name, count) in enumerate(sets.items()):
        vms = ", ".join(
            f'{{ name = "{name}-{n}", host = "{HOSTS[(n + place) % 3]}", update_domain = {n % 3} }}'
            for n in range(count)
        )
        scopes.append(f'[[scopes]]\nname = "{name}"\nkind = "availability-set"\nvms = [{vms}]\n')
    scopes += [
        f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\nvms = [{{ name = "s{n}", host = "{host}" }}]\n'
        for n, host in enumerate(HOSTS)
    ]
    return "\n".join(scopes)


class ServiceNode:
    """A control node or a host as a process, which can be ended and started again."""

    def __init__(self, name: str, directory: Path, port: int, environ: dict[str, str], *, is_faulty: bool) -> None:
        self.name = name
        self.directory = directory
        self.url = f"http://127.0.0.1:{port}"
        self._environ = isolated_environment(directory) | environ
        self._command: Sequence[str | Path] = [PROGRAM, "serve"]
        if is_faulty:
            self._command = [sys.executable, HERE / "faulty_main.py", "serve"]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The log of all its processes."""
        return (self.directory / "log").read_text()

    @property
    def api(self) -> ApiClient:
        """A client of a control node."""
        return ApiClient(self.url, read_token(self.directory / "data/token"), timeout=REQUEST_SECONDS)

    @property
    def is_ready(self) -> bool:
        """Whether it answers and is ready."""
        try:
            with urlopen(f"{self.url}/readyz", timeout=REQUEST_SECONDS) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    @property
    def problems(self) -> list[str]:
        """What a host cannot do at the moment."""
        with urlopen(f"{self.url}/readyz", timeout=REQUEST_SECONDS) as answer:
            found: list[str] = json.load(answer)["problems"]
            return found

    def start(self) -> None:
        """Start the process."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self.directory, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the process with a signal, also if it is suspended."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(GUARD)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.end()

    def revive(self) -> None:
        """Let a suspended process go on, and start one that has ended."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.start()

    def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the process and start it again."""
        self.end(number)
        self.start()

    def wait_until_ended(self) -> None:
        """Return when the process has ended by itself."""
        assert self.process is not None
        self.process.wait(GUARD)

    def wait_until_suspended(self) -> None:
        """Return when the process has stopped itself."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{self.name} is suspended")

    def wait_until_ready(self) -> None:
        """Return when it is ready; fail if it has ended."""

        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} has ended: {self.log[-4000:]}"
            return self.is_ready

        wait_until(is_ready, f"{self.name} is ready")

    def arm(self, point: str, number: signal.Signals) -> None:
        """Let the process send itself a signal when it next reaches a point; needs `is_faulty`."""
        file = self.directory / "fault.new"
        file.write_text(f"{point} {number.name}")
        file.rename(self.directory / "fault")

    def expire(self, position: int) -> None:
        """Let a control node regard journal lines up to a position as old; needs `is_faulty`."""
        file = self.directory / "expired.new"
        file.write_text(str(position))
        file.rename(self.directory / "expired")


class RunningCluster:
    """All processes of a cluster."""

    def __init__(self, directory: Path, nats: NatsCluster, network: Network | None) -> None:
        self.directory = directory
        self.nats = nats
        self.network = network
        self.controls: list[ServiceNode] = []
        self.hosts: list[ServiceNode] = []
        self.work_log = directory / "work.log"
        self.work_log.touch()

    @property
    def services(self) -> list[ServiceNode]:
        """Control nodes and hosts."""
        return [*self.controls, *self.hosts]

    def holder(self) -> ServiceNode:
        """Return the control node that holds the lease of the clock, by its own log."""
        taken = {
            node.name: [line for line in node.log.splitlines() if "holds the lease clock, term" in line]
            for node in self.controls
        }
        terms = {
            name: max((int(line.rpartition("term ")[2].split()[0].strip('",}')) for line in lines), default=0)
            for name, lines in taken.items()
        }
        return max(self.controls, key=lambda node: terms[node.name])

    def servers_of(self, name: str) -> str:
        """Return the NATS servers for the settings of a process, through links if there is a network."""
        urls = [server.url for server in self.nats.servers]
        if self.network is not None:
            urls = [
                f"nats://127.0.0.1:{self.network.add(name, server.name, partial(_client_port, server))}"
                for server in self.nats.servers
            ]
        return ", ".join(f'"{url}"' for url in urls)

    def create_node(
        self, name: str, port: int, *, environ: dict[str, str], is_faulty: bool = False, host: str = ""
    ) -> ServiceNode:
        """Write the settings of a node and return it."""
        directory = self.directory / name
        directory.mkdir()
        (directory / "clock").write_bytes(bytes(8))
        more = f'host = "{host}"\nlisten = "{LOOPBACK}:0"' if host else 'fleet = "fleet.toml"'
        (directory / "fleet.toml").write_text(fleet_file())
        (directory / "forewarn.toml").write_text(
            SETTINGS.format(
                role="host" if host else "control",
                port=port,
                more=more,
                program=HERE / "maintain.sh",
                log=self.work_log,
                seconds=WORK_SECONDS,
                servers=self.servers_of(name),
                cell=CELL,
            )
        )
        return ServiceNode(name, directory, port, environ, is_faulty=is_faulty)


def _client_port(server: NatsServer) -> int:
    return int(server.url.rpartition(":")[2])


def _cluster_port(server: NatsServer) -> int:
    return int(server.cluster_url.rpartition(":")[2])


def _create_servers(directory: Path, network: Network | None, config: str) -> NatsCluster:
    # Without advertising, clients and servers use only the addresses in their settings, so links cannot be avoided.
    options = 'no_advertise: true\nadvertise: "127.0.0.1:1"' if network is not None else ""
    return NatsCluster([NatsServer(directory / f"n{n}", f"n{n}", config, options) for n in range(3)])


def _routes(cluster: NatsCluster, server: NatsServer, network: Network | None) -> list[str]:
    others = [other for other in cluster.servers if other is not server]
    if network is None:
        return [other.cluster_url for other in others]
    return [
        f"nats://127.0.0.1:{network.add(server.name, other.name, partial(_cluster_port, other))}" for other in others
    ]


@contextmanager
def run_cluster(
    directory: Path,
    *,
    has_links: bool = False,
    is_faulty: bool = False,
    environ: dict[str, str] | None = None,
    config: str = "",
    nats_directory: Path | None = None,
) -> Iterator[RunningCluster]:
    """Run a cluster until the context ends, with an empty cell that the first control node fills."""
    data = nats_directory or directory / "nats"
    with ExitStack() as stack:
        network = stack.enter_context(run_network()) if has_links else None
        nats = _create_servers(data, network, config)
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        for server in nats.servers:
            server.routes = _routes(nats, server, network)
            stack.callback(server.kill)
            server.start(server.routes)
        cluster = RunningCluster(directory, nats, network)
        ports = free_ports(len(CONTROLS) + len(HOSTS))
        for name, port in zip(CONTROLS, ports, strict=False):
            node = cluster.create_node(name, port, environ=environ or {}, is_faulty=is_faulty)
            cluster.controls.append(node)
        for host, port in zip(HOSTS, ports[len(CONTROLS) :], strict=True):
            cluster.hosts.append(cluster.create_node(host, port, environ={}, is_faulty=is_faulty, host=host))
        first = cluster.controls[0]
        wait_until(lambda: _init(first), "the cell is created")
        for node in cluster.controls[1:]:
            (node.directory / "data").mkdir(mode=0o700)
            shutil.copy(first.directory / "data/token", node.directory / "data/token")
        for node in cluster.services:
            stack.callback(node.end)
            node.start()
        for node in cluster.services:
            node.wait_until_ready()
        yield cluster


def _init(node: ServiceNode) -> bool:
    """Create the cell; return False while the servers have no leader."""
    result = subprocess.run(
        [PROGRAM, "cluster", "init", "--config", "forewarn.toml"],
        cwd=node.directory,
        env=isolated_environment(node.directory) | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    return result.returncode == 0
