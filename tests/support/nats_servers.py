"""Real nats-server processes: one alone, or a cluster of three, on fixed free ports."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.connection import NatsConnection, NatsError
from forewarn.store.nats.stream import CellStream
from tests.support.processes import free_ports

PROGRAM = Path(sys.executable).with_name("nats-server")
GUARD_SECONDS = 60
"""Ends a test that hangs; nothing is measured with it."""


class NatsServer:
    """One nats-server, which can be killed and started again with the same ports and data."""

    def __init__(
        self, directory: Path, name: str, config: str = "", cluster_config: str = "", jetstream_config: str = ""
    ) -> None:
        self.name = name
        self.routes: Sequence[str] = ()
        """The addresses of the other servers, for its next start."""
        self._directory = directory
        self._config = config
        self._cluster_config = cluster_config
        self._jetstream_config = jetstream_config
        client, cluster = free_ports(2)
        self._ports = {"nats": f"nats://127.0.0.1:{client}", "cluster": f"nats://127.0.0.1:{cluster}"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return self._ports["nats"]

    @property
    def cluster_url(self) -> str:
        """The address for other servers."""
        return self._ports["cluster"]

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        """The directory of its streams."""
        return self._directory / "data"

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, routes: Sequence[str] = ()) -> None:
        """Start the process, in a cluster if there are routes to others, and wait until it listens."""
        self._directory.mkdir(parents=True, exist_ok=True)
        lines = [
            f'server_name: "{self.name}"',
            f'listen: "{self.url.removeprefix("nats://")}"',
            f'jetstream {{ store_dir: "{self._directory / "data"}"\n{self._jetstream_config} }}',
            f'ports_file_dir: "{self._directory}"',
            f'log_file: "{self._directory / "log"}"',
            self._config,
        ]
        if routes:
            listen, urls = self.cluster_url.removeprefix("nats://"), ", ".join(f'"{url}"' for url in routes)
            options = f'listen: "{listen}"\nroutes: [{urls}]\n{self._cluster_config}'
            lines.append(f'cluster {{ name: "test"\n{options} }}')
        config = self._directory / "server.conf"
        config.write_text("\n".join(lines))
        self._process = subprocess.Popen(
            [PROGRAM, "-c", config],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the caller, which ends its processes in order
        )
        file = self._directory / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + GUARD_SECONDS
        while not (text := file.read_text() if file.exists() else ""):
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self._ports |= {name: urls[0] for name, urls in json.loads(text).items()}

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the process in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(GUARD_SECONDS)
            self._process = None


class NatsCluster:
    """One or several servers."""

    def __init__(self, servers: Sequence[NatsServer]) -> None:
        self.servers = servers

    def settings(self, cell: str) -> NatsSettings:
        """Return the settings of a cell on these servers."""
        return NatsSettings(servers=tuple(server.url for server in self.servers), cell=cell, replicas=len(self.servers))

    def start(self, server: NatsServer) -> None:
        """Start a server, or start it again."""
        server.start(server.routes or [other.cluster_url for other in self.servers if other is not server])

    async def create_cell(self, cell: str = "") -> NatsSettings:
        """Create an empty cell and return its settings."""
        settings = self.settings(cell or f"test-{token_hex(4)}")
        connection = await NatsConnection.open(settings)
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                try:
                    await CellStream(connection, settings.cell).create(settings.replicas, token_hex(12))
                    break
                except NatsError:  # the servers have no leader yet
                    await asyncio.sleep(0.05)
        await connection.aclose()
        return settings

    async def leader_of(self, settings: NatsSettings) -> NatsServer:
        """Return the server that leads the stream of a cell."""
        connection = await NatsConnection.open(settings)
        name = None
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while name is None:
                    with suppress(NatsError):  # during an election
                        state = await CellStream(connection, settings.cell).read_state()
                        name = state.details["cluster"].get("leader")
        finally:
            await connection.aclose()
        return next(server for server in self.servers if server.name == name)


@contextmanager
def run_nats(
    directory: Path, *, servers: int = 1, config: str = "", jetstream_config: str = ""
) -> Iterator[NatsCluster]:
    """Run servers with JetStream; end them and remove their data afterwards."""
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        cluster = NatsCluster(
            [
                NatsServer(directory / f"n{n}", f"n{n}", config, jetstream_config=jetstream_config)
                for n in range(servers)
            ]
        )
        for server in cluster.servers:
            stack.callback(server.kill)
            cluster.start(server)
        yield cluster
