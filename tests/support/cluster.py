"""A whole cluster as processes: NATS servers with an account per role, control nodes and hosts.

Each process can be killed, suspended and started again with the same settings and data.
"""

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forewarn.api.client import ApiClient
from forewarn.api.local_service import read_token
from tests.support.nats_accounts import API_PREFIX, CONTROL_PASSWORD, HOST_PASSWORD, accounts_config
from tests.support.nats_servers import NatsCluster, run_nats
from tests.support.processes import free_ports
from tests.support.program import GUARD, LOOPBACK, PROGRAM
from tests.support.serve_process import ServeProcess, isolated_environment

STOP_SECONDS = 10.0
"""How long a process may take to stop before it is killed."""

SETTINGS = """
store = "nats"
data = "data"
operator = "127.0.0.1:{port}"
listen = "{listen}:0"
platform = "simulated"
{more}
[nats]
servers = [{servers}]
replicas = {replicas}
user = "{user}"
password_file = "password"
{api_prefix}
"""


class ClusterNode:
    """A control node or a host: its directory, and its process while it runs."""

    def __init__(self, name: str, role: str, directory: Path) -> None:
        self.name = name
        self.role = role
        self.directory = directory
        self.port = 0
        """The port of the operator API; 0: another one at each start."""
        self._process: ServeProcess | None = None

    @property
    def process(self) -> ServeProcess:
        """The process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.process.pid

    @property
    def url(self) -> str:
        """The address of the operator API, or of the health of a host."""
        return self.process.operator_url

    def start(self) -> ServeProcess:
        """Start the process and wait until it is ready."""
        return self.launch().ready()

    def launch(self) -> ServeProcess:
        """Start the process, without waiting for it."""
        assert not self.is_running, f"{self.name} runs already"
        self._process = ServeProcess(self.directory, isolated_environment(self.directory), ())
        return self._process


class ClusterProcesses:
    """The processes of a cluster. Created by `run_cluster`."""

    def __init__(self, directory: Path, nats: NatsCluster, controls: int, hosts: Sequence[str]) -> None:
        self.nats = nats
        self.controls = [ClusterNode(f"control-{n}", "control", directory / f"control-{n}") for n in range(controls)]
        self.hosts = {host: ClusterNode(host, "host", directory / host) for host in hosts}

    @property
    def nodes(self) -> list[ClusterNode]:
        """The control nodes and the hosts."""
        return [*self.controls, *self.hosts.values()]

    @property
    def token_file(self) -> Path:
        """The file with the first token of the cell."""
        return self.controls[0].directory / "data/token"

    def api(self, node: ClusterNode) -> ApiClient:
        """Return a client of a control node."""
        return ApiClient(node.url, read_token(self.token_file))

    def run(self, node: ClusterNode, *arguments: str) -> str:
        """Run a command with the settings of a node, which must succeed, and return its output."""
        command = [str(PROGRAM), *arguments, "--config", "forewarn.toml"]
        environment = isolated_environment(node.directory)
        done = subprocess.run(
            command, cwd=node.directory, env=environment, capture_output=True, text=True, timeout=GUARD, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def init(self) -> None:
        """Create the cell and its first token."""
        self.run(self.controls[0], "cluster", "init")

    def leader(self) -> str:
        """Return the name of the server that leads the stream."""
        status = json.loads(self.run(self.controls[0], "cluster", "status", "-o", "json"))
        return next(str(replica["name"]) for replica in status["replicas"] if replica["is_leader"])

    def end(self) -> None:
        """Stop what runs, hosts first; kill what takes too long."""
        ended: list[ServeProcess] = []
        for nodes in (self.hosts.values(), self.controls):
            running = [node.process for node in nodes if node.is_running]
            for service in running:
                service.process.send_signal(signal.SIGCONT)
                service.process.terminate()
            for service in running:
                try:
                    service.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    service.process.kill()
            ended += running
        for service in ended:
            service.wait_for_exit()

    def configure(self, node: ClusterNode, more: str = "") -> None:
        """Write the settings of a node."""
        node.directory.mkdir(parents=True, exist_ok=True)
        is_host = node.role == "host"
        (node.directory / "password").write_text(HOST_PASSWORD if is_host else CONTROL_PASSWORD)
        settings = SETTINGS.format(
            port=node.port,
            listen=LOOPBACK,
            more=f'role = "{node.role}"\n' + (f'host = "{node.name}"\n' if is_host else "") + more,
            servers=", ".join(f'"{server.url}"' for server in self.nats.servers),
            replicas=len(self.nats.servers),
            user=node.name if is_host else "control",
            api_prefix=f'api_prefix = "{API_PREFIX}"' if is_host else "",
        )
        (node.directory / "forewarn.toml").write_text(settings)


@contextmanager
def run_cluster(
    directory: Path,
    *,
    servers: int = 3,
    controls: int = 2,
    hosts: Sequence[str] = ("hv-0", "hv-1", "hv-2"),
    fleet: str | None = None,
    more: str = "",
    config: str = "",
    jetstream_config: str = "",
    keeps_ports: bool = False,
) -> Iterator[ClusterProcesses]:
    """Start NATS servers, create the cell, and start control nodes and hosts; end all of them afterwards.

    `fleet` is a fleet file, `more` are settings of all control nodes and hosts, `config` and
    `jetstream_config` are added to the configuration of the servers. If it `keeps_ports`, a process has the same
    address when it is started again.
    """
    with ExitStack() as stack:
        nats = stack.enter_context(
            run_nats(
                directory / "nats",
                servers=servers,
                config=accounts_config(hosts) + config,
                jetstream_config=jetstream_config,
            )
        )
        cluster = ClusterProcesses(directory, nats, controls, hosts)
        if keeps_ports:
            for node, port in zip(cluster.nodes, free_ports(len(cluster.nodes)), strict=True):
                node.port = port
        for node in cluster.nodes:
            cluster.configure(node, more)
        if fleet is not None:
            (directory / "fleet.toml").write_text(fleet)
            for node in cluster.controls:
                cluster.configure(node, f'fleet = "{directory / "fleet.toml"}"\n{more}')
        cluster.init()
        stack.callback(cluster.end)
        for node in cluster.nodes:
            node.launch()
        for node in cluster.nodes:
            node.process.ready()
        yield cluster
