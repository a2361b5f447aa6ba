"""A PostgreSQL cluster with streaming replication: server processes in one directory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import GUARD, free_ports, wait_until

ROOT = Path(__file__).parents[2]
FAILOVER = ROOT / "examples/postgresql/failover"
USER = "postgres"

CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
cluster_name = '{name}'
fsync = off
hot_standby = on
wal_level = replica
wal_keep_size = 64MB
wal_retrieve_retry_interval = 100ms
primary_conninfo = 'user={user} host={hosts} port={ports} target_session_attrs=primary application_name={name}'
"""


def find_programs() -> Path:
    """Return the directory of PostgreSQL's programs; Debian keeps one for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found or shutil.which("psql") is None:
        pytest.skip("needs Debian's package postgresql; as root, `make test` installs it")
    return found[-1].parent


class Node:
    """One server and its VM."""

    def __init__(self, name: str, port: int, home: Path, programs: Path) -> None:
        self.name = name
        self.port = port
        self.data = home / name
        self.log = home / f"{name}.log"
        self.conf = home / f"{name}.conf"
        self._programs = programs

    def ask(self, statement: str) -> str:
        """Run an SQL statement on the server; return an empty string if it does not respond."""
        database = f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres connect_timeout=10"
        command = ["psql", "-XqtA", "-d", database, "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=GUARD).stdout.strip()

    @property
    def role(self) -> str:
        """The role of the server."""
        return {"f": "primary", "t": "replica", "": "down"}[self.ask("select pg_is_in_recovery()")]

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs as its user; a server's later output goes to its log."""
        command = [self._programs / program, *arguments]
        as_user = ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
        said = self.data.parent / f"{self.name}.programs.log"
        with said.open("a") as log:
            ended = subprocess.run([*as_user, *command], stdout=log, stderr=log, check=False, timeout=GUARD)
        assert ended.returncode == 0, said.read_text()

    def start(self) -> None:
        """Start the server."""
        self.run("pg_ctl", "-w", "-D", self.data, "-l", self.log, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server, by default like a crash."""
        self.run("pg_ctl", "-w", "-D", self.data, "-m", mode, "stop")

    def failover(self, call: str) -> subprocess.CompletedProcess[str]:
        """Run the example's script for this server, as its VM's agent does."""
        environ = {**os.environ, "FAILOVER_CONF": str(self.conf), "FAILOVER_SELF": self.name}
        return subprocess.run([FAILOVER, call], env=environ, capture_output=True, text=True, check=False, timeout=GUARD)


class Cluster:
    """Three servers; the first is the initial primary."""

    def __init__(self, home: Path, programs: Path) -> None:
        self.nodes = tuple(Node(f"db-{n}", port, home, programs) for n, port in enumerate(free_ports(3)))
        self._programs = programs

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each server."""
        return tuple(node.role for node in self.nodes)

    @property
    def primary(self) -> Node:
        """The current primary."""
        (primary,) = (node for node in self.nodes if node.role == "primary")
        return primary

    @property
    def replicas(self) -> tuple[Node, ...]:
        """The current replicas."""
        return tuple(node for node in self.nodes if node.role == "replica")

    @property
    def streaming(self) -> int:
        """The number of replicas that stream from the primary."""
        return int(self.primary.ask("select count(*) from pg_stat_replication where state = 'streaming'") or 0)

    def wait_until_whole(self) -> None:
        """Wait until both replicas stream from the primary."""
        wait_until(lambda: sorted(self.roles) == ["primary", "replica", "replica"] and self.streaming == 2, "a cluster")

    def make(self) -> None:
        """Create the primary and two replicas of it."""
        first, *others = self.nodes
        first.run("initdb", "-D", first.data, "-U", USER, "--auth", "trust", "--no-sync")
        self._configure(first)
        first.start()
        for node in others:
            source = f"host=127.0.0.1 port={first.port} user={USER}"
            first.run("pg_basebackup", "-D", node.data, "-d", source, "--checkpoint", "fast", "--no-sync")
            self._configure(node)
            signal = node.data / "standby.signal"
            signal.touch()
            _give(signal)
            node.start()
        for node in self.nodes:
            self._write_conf(node)
        self.wait_until_whole()

    def _configure(self, node: Node) -> None:
        configuration = CONFIGURATION.format(
            port=node.port,
            name=node.name,
            user=USER,
            hosts=",".join("127.0.0.1" for _ in self.nodes),
            ports=",".join(str(each.port) for each in self.nodes),
        )
        with (node.data / "postgresql.conf").open("a") as file:
            file.write(configuration)

    def _write_conf(self, node: Node) -> None:
        nodes = " ".join(f"{each.name}=127.0.0.1:{each.port}" for each in self.nodes)
        node.conf.write_text(
            f'NODES="{nodes}"\nUSER_OF_REPLICATION={USER}\nDATA={node.data}\nLOG={node.log}\nPROGRAMS={self._programs}\n'
        )

    def end(self) -> None:
        """Stop all running servers."""
        for node in self.nodes:
            if (node.data / "postmaster.pid").exists():
                node.stop()


def _give(path: Path) -> None:
    if os.getuid() == 0:
        shutil.chown(path, USER, USER)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a cluster in a directory that its user can access; a test's tmp_path is not accessible."""
    programs = find_programs()
    home = Path(tempfile.mkdtemp(prefix="forewarn-pg-"))
    made = Cluster(home, programs)
    _give(home)
    try:
        made.make()
        yield made
    finally:
        made.end()
        shutil.rmtree(home)
