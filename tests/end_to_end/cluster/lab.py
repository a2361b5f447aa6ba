"""The lab of the fault tests: a running cluster, faults under a workload, and the history of all runs."""

import asyncio
import logging
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError
from forewarn.api.local_service import read_token
from forewarn.api.transport import LastPositions
from forewarn.operator.views.journal import show_row
from forewarn.store.nats.store import NatsStore
from tests.end_to_end.cluster.checker import violations
from tests.end_to_end.cluster.history import FinalState, FinalVm, History, Line, Work
from tests.end_to_end.cluster.processes import CELL, HERE, RunningCluster, ServiceNode, run_cluster
from tests.end_to_end.cluster.workload import ADDED, Recorder, Workload
from tests.store.contract import whole_journal
from tests.support.nats_servers import NatsServer
from tests.support.processes import wait_until

log = logging.getLogger(__name__)

OPERATIONS_BEFORE = 20
OPERATIONS_DURING = 30
"""How many operations have an outcome before a fault, and after it was healed."""

QUIET_SECONDS = 120.0
"""How long the cluster may take to finish everything when no fault is left."""


class Lab:
    """A cluster with a history that covers all its runs."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.history = History()
        self._known: set[str] = set()
        """Violations that earlier runs have reported."""
        self.spares: list[ServiceNode] = []
        """Processes that a fault has added."""
        self.workload: Workload | None = None

    # What faults use.

    def leader(self) -> NatsServer:
        """Return the NATS server that leads the stream."""
        settings = self.cluster.nats.settings(CELL)
        return asyncio.run(self.cluster.nats.leader_of(settings))

    def follower(self) -> NatsServer:
        """Return a NATS server that does not lead the stream."""
        leader = self.leader()
        return next(server for server in self.cluster.nats.servers if server is not leader)

    def other_control(self, node: ServiceNode) -> ServiceNode:
        """Return the other control node."""
        return next(other for other in self.cluster.controls if other is not node)

    def skew(self, node: ServiceNode, seconds: int) -> None:
        """Change the clock of a node; it needs the library."""
        write_skew(node.directory, seconds)

    def work(self, operations: int = OPERATIONS_DURING) -> None:
        """Return when the workload has made progress."""
        assert self.workload is not None
        self.workload.wait_for(operations)

    def guest_url(self, vm: str) -> str:
        """Return the URL of a VM's endpoint."""
        found: list[str] = []

        def is_known() -> bool:
            url = self.cluster.controls[0].api.vm(vm).guest_url
            found.extend([] if url is None else [url])
            return bool(found)

        wait_until(is_known, f"{vm} has an endpoint")
        return found[0]

    def wait_for_work(self, host: str) -> None:
        """Return when the platform works on a VM of a host."""

        def is_working() -> bool:
            return any(
                work.host == host and work.ended_at is None for work in read_work(self.cluster.work_log.read_text())
            )

        wait_until(is_working, f"there is work on {host}")

    def archive(self) -> None:
        """Read the journal lines that are not in the history yet, from the first control node that answers."""
        end = self.history.journal[-1].position if self.history.journal else 0
        for node in self.cluster.controls:
            with suppress(ApiError):
                self.history.journal += to_lines(node.api.journal(after=end))
                return

    @property
    def recorder(self) -> Recorder:
        """What the workload of this run has done."""
        assert self.workload is not None
        return self.workload.recorder

    # A run.

    def run(self, seed: str, fault: Callable[["Lab", random.Random], None], operators: int = 2) -> list[str]:
        """Run a fault under a workload, heal, wait until everything is quiet, and return the violations."""
        begun_at = time.time()
        self.workload = workload = Workload(self.cluster, seed, operators)
        workload.recorder.limits = self.history.limits
        workload.start()
        try:
            self.work(OPERATIONS_BEFORE)
            fault(self, random.Random(f"{seed} fault"))
            self.work()
        finally:
            self.heal()
            workload.stop_operators()
            self._remove_added(workload.recorder)
            problem = self._finish()
            workload.stop()
        self.history.operations += workload.recorder.operations
        self.history.documents += workload.guests.documents
        self._collect()
        log.info("%s: %s", seed, self.summary())
        is_idle = not any(work.begun_at > begun_at for work in self.history.work)
        new = [text for text in violations(self.history) if text not in self._known]
        self._known.update(new)
        return [*filter(None, (problem, "idle: the platform had no work" * is_idle)), *new]

    def summary(self) -> str:
        """Return how much happened."""
        outcomes = Counter(f"{each.kind.value} {each.code or each.outcome.value}" for each in self.history.operations)
        sizes = f"{len(self.history.documents)} documents, {len(self.history.work)} works"
        purged = sum(line.position <= self.history.expired for line in self.history.journal)
        lines = f"{len(self.history.journal)} journal lines ({purged} purged)"
        return f"{sizes}, {lines}, {dict(sorted(outcomes.items()))}"

    def heal(self) -> None:
        """End every fault."""
        if self.cluster.network is not None:
            self.cluster.network.heal()
        for node in self.cluster.services:
            self.skew(node, 0)
        for server in self.cluster.nats.servers:
            if server.is_running:
                server.send_signal(signal.SIGCONT)
            else:
                self.cluster.nats.start(server)
        for node in self.spares:
            node.end()
        for node in self.cluster.services:
            node.revive()
        for node in self.cluster.services:
            node.wait_until_ready()

    def _remove_added(self, recorder: Recorder) -> None:
        """Remove the VMs that the workload has added, so that the next run finds their addresses free."""
        found: list[v1.Vm] = []

        def has_read() -> bool:
            with suppress(ApiError):
                found.extend(self.cluster.controls[0].api.vms(name=f"{ADDED}*"))
                return True
            return False

        wait_until(has_read, "a control node answers")
        for vm in found:
            recorder.remove_vm(random.Random(vm.name), vm.scope, vm.name)

    def _finish(self) -> str | None:
        """Cancel what is not due, release every hold, and wait until all work is done."""
        deadline = time.monotonic() + QUIET_SECONDS
        left = "nothing was asked"
        while time.monotonic() < deadline:
            try:
                left = self._finish_step(self.cluster.controls[0])
            except (ApiError, OSError) as error:  # also of a host that is not ready
                left = str(error)
            if not left:
                return None
            time.sleep(0.1)
        return f"finish: after {QUIET_SECONDS:.0f} s there is still {left}"

    def _finish_step(self, node: ServiceNode) -> str:
        api = node.api
        for hold in api.holds().holds:
            api.release(v1.ReleaseHold(scope=hold.scope, reason="finish"))
        for campaign in api.campaigns(only_open=True):
            if campaign.state.value != "Aborting":
                api.abort_campaign(campaign.id, v1.AbortCampaign(reason="finish"))
        events = list(api.events())
        for event in events:
            if event.status == "Scheduled":
                api.cancel(event.id, v1.CancelEvent(reason="finish"))
        if events:
            return f"event {events[0].id}: {', '.join(events[0].explanation)} {events[0].impacts}"
        for host in self.cluster.hosts:
            if problems := host.problems:
                return f"{host.name}: {problems[0]}"
        return ""

    def _collect(self) -> None:
        """Read the journal, the platform's log, and what each control node answers."""
        self.archive()
        if self.history.expired:
            self.history.journals["NATS"] = asyncio.run(self._read_stream())
        positions = LastPositions()
        for node in self.cluster.controls:
            api = ApiClient(node.url, read_token(node.directory / "data/token"))
            api._transport.positions = positions  # it answers when it has everything that the node before had
            wait_until(lambda: self._has_purged(api), f"{node.name} has purged what is old")  # noqa: B023 - at once
            self.history.journals[node.name] = to_lines(api.journal())
            vms = list(api.vms())
            self.history.finals[node.name] = FinalState(
                vms={
                    f"{vm.scope}/{vm.name}": FinalVm(
                        host=vm.host or "",
                        vm_id=vm.vm_id,
                        addresses=tuple(address.ip for address in vm.addresses),
                        tag=vm.tags.get("n", ""),
                    )
                    for vm in vms
                },
                open_events={event.id: event.status for event in api.events()},
                tokens=tuple(sorted(token.name for token in api.tokens().tokens)),
                incarnations={scope.id: scope.incarnation for scope in api.scopes()},
            )
            self.history.domains |= {f"{vm.scope}/{vm.name}": vm.update_domain for vm in vms}
        self.history.work = read_work(self.cluster.work_log.read_text())

    async def _read_stream(self) -> list[Line]:
        """Read the whole journal from the servers, with a new index."""
        with TemporaryDirectory() as directory:
            store = await NatsStore.open(self.cluster.nats.settings(CELL), Path(directory))
            try:
                return to_lines(map(show_row, await whole_journal(store)))
            finally:
                await store.aclose()

    def _has_purged(self, api: ApiClient) -> bool:
        first = next(api.journal(), None)
        return first is None or first.position > self.history.expired


CLOCK_FILE = "clock"


def write_skew(directory: Path, seconds: int) -> None:
    """Let the clock of a node be wrong by some seconds."""
    with (directory / CLOCK_FILE).open("r+b") as file:
        file.write(seconds.to_bytes(8, "little", signed=True))


@contextmanager
def run_lab(directory: Path) -> Iterator[Lab]:
    """Run a cluster with links, points and clocks for all faults."""
    environ = {}
    if (compiler := shutil.which("gcc")) is not None:
        library = directory / "skewed_clock.so"
        subprocess.run(
            [
                compiler,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
                "-o",
                library,
                HERE / "skewed_clock.c",
                "-ldl",
            ],
            check=True,
        )
        environ = {"LD_PRELOAD": str(library), "SKEWED_CLOCK": CLOCK_FILE}
    with run_cluster(directory, has_links=True, is_faulty=True, environ=environ) as cluster:
        lab = Lab(cluster)
        try:
            yield lab
        finally:
            for node in lab.spares:
                node.end()


def to_lines(entries: Iterable[v1.JournalEntry]) -> list[Line]:
    """Return what the checker needs of a journal."""
    return [
        Line(
            position=entry.position,
            record=f"{entry.record_kind}/{entry.record_id}",
            action=entry.action.value,
            actor=entry.actor,
            reason=entry.reason,
            event=entry.event or "",
            vms=tuple(entry.vms),
            facts=entry.facts,
        )
        for entry in entries
    ]


def read_work(log: str) -> list[Work]:
    """Parse the log of the platform's program."""
    found: list[Work] = []
    for line in log.splitlines():
        at, step, host, scope, vm, event, _ = line.split()
        if step == "begin":
            found.append(Work(host=host, scope=scope, vm=vm, event=event, begun_at=float(at), ended_at=None))
            continue
        place = next(
            n
            for n, work in enumerate(found)
            if (work.scope, work.vm, work.event, work.ended_at) == (scope, vm, event, None)
        )
        begun = found[place]
        found[place] = Work(
            host=begun.host, scope=scope, vm=vm, event=event, begun_at=begun.begun_at, ended_at=float(at)
        )
    return found
