"""Run a cluster on this machine as a demonstration: three NATS servers, two control nodes, three hosts with nine VMs.

`make run-cluster` starts it. It prints what to try, reports what happens to the processes, starts those again that were
killed, and ends everything on Ctrl-C.
"""

import asyncio
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from forewarn.settings.load import load_settings
from forewarn.settings.schema import PRODUCTION
from forewarn.store.nats.connection import ApiRefused, ResponseMissing, ServerUnavailable
from forewarn.store.port import StoreError
from tests.support.cluster import ClusterNode, ClusterProcesses, run_cluster
from tests.support.nats_servers import NatsServer
from tests.support.program import PROGRAM
from tests.support.serve_process import EVENTS

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
vms = [
  { name = "web-0", host = "hv-0" },
  { name = "web-1", host = "hv-1", update_domain = 1 },
  { name = "web-2", host = "hv-2", update_domain = 2 },
]

[[scopes]]
name = "batch"
kind = "availability-set"
vms = [
  { name = "batch-0", host = "hv-0" },
  { name = "batch-1", host = "hv-1", update_domain = 1 },
  { name = "batch-2", host = "hv-2", update_domain = 2 },
]

[[scopes]]
name = "db-0"
kind = "standalone"
vms = [{ name = "db-0", host = "hv-0" }]

[[scopes]]
name = "db-1"
kind = "standalone"
vms = [{ name = "db-1", host = "hv-1" }]

[[scopes]]
name = "db-2"
kind = "standalone"
vms = [{ name = "db-2", host = "hv-2" }]
"""

MORE_SETTINGS = """
[simulated]
reboot = "10s"

[policy]
announce = "always"
"""

TERM = re.compile("this process holds the lease clock, term ([0-9]+)")

RESTART_SECONDS = 30.0
"""How long a killed process stays away: long enough to see how the others go on."""

POLL_SECONDS = 1.0
LEADER_SECONDS = 5.0
"""How often the servers are asked which one leads the stream."""

QUIET = (
    "the platform is simulated",
    "ready",
    "importing",
    "the data directory already has a fleet",
    "watch of",
    "index of",
    "follow of",
)
"""Log lines that are not shown begin with one of these."""

TEXT = """
Three NATS servers, two control nodes and three hosts run on this machine, with nine simulated VMs.
A process that you kill is started again after {restart:g} seconds. Ctrl-C ends everything.

{table}

In a second terminal:

  cd {directory}
  export PATH={programs}:$PATH FOREWARN_TOKEN_FILE=$PWD/control-0/data/token
  export FOREWARN_URL={url}
  forewarn vm list
  forewarn cluster status --config control-0/forewarn.toml

Commands go to control-0. While it is away, use control-1: export FOREWARN_URL={other_url}
The dashboard is at {url}/ui; sign in with the token in control-0/data/token.
The files *.pid always have the ids of the processes that run now.

Try this, and watch the lines below:

 1. Kill the control node that holds the lease of the clock. The other one takes over within 13 seconds:
      kill -9 $(cat holder.pid)
 2. Announce a reboot, and kill the control node that accepted it. Guests see the event all the same:
      forewarn event schedule Reboot web-0 --in 15m && kill -9 $(cat control-0.pid)
      curl -s -H Metadata:true '{guest}{events}'
 3. Kill the server that leads the stream. Changes wait up to 8 seconds for its successor, guests do not wait:
      kill -9 $(cat leader.pid)
 4. Kill both control nodes. Guests still get answers; an approval gets 503 and is repeated until one is back:
      kill -9 $(cat control-0.pid control-1.pid)
      forewarn guest approve --all --endpoint {guest} --retry-for 1m
 5. Kill a host. Its guests get no answer, no planned event starts for them, and other hosts go on:
      kill -9 $(cat hv-1.pid)
 6. Suspend the holder of the lease for 20 seconds. It is replaced, and what it saves later is refused:
      pid=$(cat holder.pid); kill -STOP $pid; sleep 20; kill -CONT $pid

"""


def main() -> None:
    """Run the demonstration until Ctrl-C, SIGTERM or the end of the terminal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="forewarn-cluster-") as directory:
            print("Starting three NATS servers, two control nodes and three hosts ...", flush=True)
            try:
                with run_cluster(Path(directory), fleet=FLEET, more=MORE_SETTINGS, keeps_ports=True) as cluster:
                    _Demonstration(cluster, Path(directory)).run()
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # nothing must be left behind
    except KeyboardInterrupt:
        print("\nEverything has ended.", flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


class _Demonstration:
    """The running cluster, and what was reported about it."""

    def __init__(self, cluster: ClusterProcesses, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._nats = load_settings(
            PRODUCTION, flags={}, environ={}, file=cluster.controls[0].directory / "forewarn.toml"
        ).settings.nats
        self._asked_at = float("-inf")
        self._leader: NatsServer | None = None
        self._away: dict[str, float] = {}
        """When a process has ended, by its name."""
        self._silent: set[str] = set()
        self._urls: dict[str, str] = {}
        self._opener = build_opener(ProxyHandler({}))

    def run(self) -> None:
        """Report what happens. Does not return."""
        self._read_urls()
        while self._leader is None or self._find_holder() is None:
            self._find_leader()
        self._write_pids()
        self._print_text()
        while True:
            self._report_logs()
            self._report_guests()
            for name, process in self._processes():
                self._supervise(name, process)
            self._find_leader()
            self._write_pids()
            time.sleep(POLL_SECONDS)

    def _read_urls(self) -> None:
        """Wait until every VM has its own port."""
        api = self._cluster.api(self._cluster.controls[0])
        while len(self._urls) < FLEET.count("host ="):
            self._urls = {vm.name: vm.guest_url for vm in api.vms() if vm.guest_url}

    def _print_text(self) -> None:
        cluster = self._cluster
        leader, holder = self._leader, self._find_holder()
        assert holder is not None
        rows = [("PROCESS", "PID", "ADDRESS", "")]
        for server in cluster.nats.servers:
            note = "NATS server, leads the stream" if server is leader else "NATS server"
            rows.append((server.name, str(server.pid), server.url, note))
        for node in cluster.controls:
            note = "control node, holds the lease of the clock" if node is holder else "control node"
            rows.append((node.name, str(node.pid), node.url, note))
        vms = {vm.name: vm.host for vm in cluster.api(holder).vms()}
        for name, node in cluster.hosts.items():
            own = ", ".join(sorted(vm for vm, host in vms.items() if host == name))
            rows.append((name, str(node.pid), node.url, f"host of {own}"))
        lines = (
            "  " + "".join(f"{cell:<{width}}" for cell, width in zip(row, (11, 9, 24, 0), strict=True)) for row in rows
        )
        text = TEXT.format(
            restart=RESTART_SECONDS,
            table="\n".join(line.rstrip() for line in lines),
            directory=shlex.quote(str(self._directory)),
            programs=shlex.quote(str(PROGRAM.parent)),
            url=cluster.controls[0].url,
            other_url=cluster.controls[1].url,
            guest=self._urls["web-0"],
            events=EVENTS,
        )
        print(text, flush=True)

    def _find_holder(self) -> ClusterNode | None:
        """Return the control node that has taken the lease of the clock last, by its log."""
        terms = {node: max(map(int, TERM.findall(node.process.text)), default=0) for node in self._cluster.controls}
        newest = max(terms, key=lambda node: terms[node])
        return newest if terms[newest] else None

    def _find_leader(self) -> None:
        """Ask now and then which server leads the stream; without an answer, the last one stays."""
        if time.monotonic() - self._asked_at > LEADER_SECONDS:
            self._asked_at = time.monotonic()
            with suppress(StoreError, ApiRefused, ResponseMissing, ServerUnavailable, KeyError, StopIteration):
                self._leader = asyncio.run(self._cluster.nats.leader_of(self._nats))

    def _write_pids(self) -> None:
        """Write the id of each process that runs, and of those with a special role, for the commands of the text."""
        named = dict(self._processes()) | {"holder": self._find_holder(), "leader": self._leader}
        for name, process in named.items():
            if process is not None and process.is_running:
                (self._directory / f"{name}.pid").write_text(f"{process.pid}\n")

    def _processes(self) -> Iterator[tuple[str, ClusterNode | NatsServer]]:
        for server in self._cluster.nats.servers:
            yield server.name, server
        for node in self._cluster.nodes:
            yield node.name, node

    def _supervise(self, name: str, process: ClusterNode | NatsServer) -> None:
        """Report a process that has ended, and start it again later."""
        if process.is_running:
            return
        if name not in self._away:
            self._away[name] = time.monotonic()
            _report(name, f"has ended; it is started again in {RESTART_SECONDS:g} seconds")
        elif time.monotonic() - self._away[name] > RESTART_SECONDS:
            del self._away[name]
            if isinstance(process, NatsServer):
                self._cluster.nats.start(process)
            else:
                process.launch()
            _report(name, f"is started again with pid {process.pid}")

    def _report_logs(self) -> None:
        for node in self._cluster.nodes:
            for record in node.process.new_records():
                if record["message"].startswith("ready") and node.role == "control":
                    _report(node.name, f"is ready at {record['operator_url']}")
                elif not record["message"].startswith(QUIET):
                    _report(node.name, record["message"])

    def _report_guests(self) -> None:
        """Poll as every VM does, and report when one gets no answer, or gets one again."""
        for vm, url in self._urls.items():
            try:
                self._opener.open(Request(f"{url}{EVENTS}", headers={"Metadata": "true"}), timeout=2).close()
                is_silent = False
            except (URLError, OSError):
                is_silent = True
            if is_silent and vm not in self._silent:
                self._silent.add(vm)
                _report(vm, "gets no answer")
            elif not is_silent and vm in self._silent:
                self._silent.discard(vm)
                _report(vm, "gets answers again")


def _report(name: str, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {name:<10} {text}", flush=True)


if __name__ == "__main__":
    main()
