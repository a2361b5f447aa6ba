"""Host registry: which process serves each host, when it was last heard from, and where its VMs reach their endpoint.

A host has one record. Its term grows when another process takes over, and the record guards whatever a host begins or
settles, so a process that was replaced without its knowledge changes nothing. When a host was last heard from is in
memory: every control node hears the renewals of every host.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping

import msgspec

from forewarn.clock import Clock
from forewarn.core.impact_lifecycle import Worker, abandon_host, check_abandon_reason
from forewarn.core.policy import HostState
from forewarn.core.vm import Vm
from forewarn.fleet.errors import HostNotFound, HostRunning, HostTaken, HostUnheard
from forewarn.fleet.host.commands import REPORT_SECONDS, ClaimResult
from forewarn.fleet.main_loop import Decision, MainLoop, RecordCodec, RecordTable
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scopes import ScopeChange, Scopes
from forewarn.settings.types import local_address
from forewarn.store.port import Guards, RecordKind

log = logging.getLogger(__name__)

LEASE_SECONDS = 12.0
"""How long a process keeps its host after its last renewal. An election of a leader takes up to 8 s."""

FIRST_SECONDS = LEASE_SECONDS + 3.0
"""How long a control node that has just started waits for renewals before it lets another process take over."""

SILENT_SECONDS = 60.0
"""After this time without a renewal no planned event starts for the VMs of a host."""

FIRST_REPORT_SECONDS = REPORT_SECONDS + 5.0
"""After this time a control node that has just started has heard of the polls of all hosts that it can hear."""

CHECK_SECONDS = 1.0
"""How often hosts are checked for silence."""


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a host."""

    term: int = 0
    process: str = ""
    """The random id of the process that serves the host; empty if none does."""
    holder: str = ""
    """That process, for people."""
    address: str = ""
    """The address of its VMs' ports."""
    ports: dict[str, int] = {}
    """The port of each VM, by `scope/name`."""
    version: str = ""
    """The version of Forewarn of that process."""
    format: int = 1
    """The newest format of records that it knows."""


class HostRegistry:
    """The hosts of a cluster, as one process knows them. Outside a cluster there are none."""

    def __init__(self, main_loop: MainLoop, scopes: Scopes) -> None:
        self._scopes = scopes
        self.silence_observers: list[Callable[[ScopeView], None]] = []
        """Called with each scope of a host that is silent or heard from again, in order."""
        self._table = RecordTable[HostRecord]()
        codec = RecordCodec(RecordKind.HOST, msgspec.json.Encoder().encode, msgspec.json.Decoder(HostRecord).decode)
        self._loop = main_loop.add(codec, self._table)
        self._heard: dict[str, tuple[str, float]] = {}
        """The process of each host that was last heard from, and when, by the event loop's clock."""
        self.clock_offsets: dict[str, float | None] = {}
        """How many seconds the clock of each host is ahead, as its last renewal says."""
        self._listens_since: float | None = None
        self.on_placed: Callable[[str], None] | None = None
        """Called with a host that gets VMs of another scope."""

    @property
    def _clock(self) -> Clock:
        return self._scopes.clock

    @property
    def _replica(self) -> Replica:
        return self._scopes.replica

    def names(self) -> list[str]:
        """Return the hosts that have a record."""
        return sorted(self._table.ids())

    def record(self, host: str) -> HostRecord | None:
        """Return the record of a host, if any process has ever served it."""
        return self._loop.newest(host)[0]

    def heard_ago(self, host: str) -> float | None:
        """Return how many seconds ago the process that serves the host was heard from; None: not yet."""
        record, heard = self.record(host), self._heard.get(host)
        if record is None or heard is None or heard[0] != record.process:
            return None
        return asyncio.get_running_loop().time() - heard[1]

    @property
    def knows_polls(self) -> bool:
        """Whether every host has had the time to report which VMs poll. Outside a cluster the VMs poll this process."""
        since = self._listens_since
        return since is None or asyncio.get_running_loop().time() - since >= FIRST_REPORT_SECONDS

    def silent(self) -> dict[str, HostState]:
        """Return the hosts with VMs that cannot be relied on now."""
        placed = self._replica.hosts()
        states = self._scopes.host_states or {}
        return {name: state for name, state in states.items() if state.is_silent and name in placed}

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL at which a VM reaches its endpoint, on its host."""
        record = self.record(vm.host) if vm.host is not None else None
        port = record.ports.get(f"{scope}/{vm.name}") if record is not None else None
        return None if record is None or port is None else f"http://{local_address(record.address, port)}"

    def guards(self, worker: Worker) -> Guards:
        """Return the record of the worker's host as a guard; refuse a worker whose term has ended."""
        host = worker.host or ""
        record, revision = self._loop.newest(host)
        if record is None or record.term != worker.term:
            raise HostTaken(host, record.holder if record is not None else "")
        return {self._loop.key(host): revision}

    async def check_term(self, host: str, process: str, term: int) -> Worker:
        """Return the worker of the process that serves the host; refuse any other process."""
        record = self.record(host)
        if record is None or (record.process, record.term) != (process, term):
            await self._loop.catch_up(host)  # another control node may have granted the term just now
            record = self.record(host)
        if record is None or (record.process, record.term) != (process, term):
            raise HostTaken(host, record.holder if record is not None and record.process else "no process now")
        return Worker(host, term)

    def hear(self, host: str, process: str) -> None:
        """Note that the process of a host has renewed its term.

        One that was replaced without its knowledge does not displace the process that serves the host now. But if that
        one is silent, another control node may have granted a term that this one does not know yet.
        """
        record = self.record(host)
        if record is not None and record.process not in ("", process) and self._may_live(host, record.process):
            return
        self._heard[host] = (process, asyncio.get_running_loop().time())

    async def claim(
        self, host: str, process: str, holder: str, ports: Mapping[str, int], *, version: str = "", format_: int = 1
    ) -> ClaimResult:
        """Let a process serve a host, unless another one does; the same process gets its term again."""

        def command(value: HostRecord | None) -> Decision[HostRecord, int]:
            record = value or HostRecord()
            kept = {**record.ports, **ports}
            if record.process == process:
                same = msgspec.structs.replace(record, ports=kept)
                return Decision(value if same == record else same, (), record.term)
            if record.process and self._may_live(host, record.process):
                raise HostTaken(host, record.holder)
            taken = HostRecord(
                term=record.term + 1,
                process=process,
                holder=holder,
                address=record.address,
                ports=kept,
                version=version,
                format=format_,
            )
            return Decision(taken, (), taken.term)

        term = await self._loop.apply(host, command)
        self.hear(host, process)
        record = self.record(host) or HostRecord()
        log.info("host %s is served by %s in term %d", host, holder, term)
        return ClaimResult(term=term, scopes=self.scopes_of(host), ports=record.ports)

    def _may_live(self, host: str, process: str) -> bool:
        """Return whether the process that has a host may go on with it."""
        now, heard = asyncio.get_running_loop().time(), self._heard.get(host)
        if heard is not None and heard[0] == process:
            return now - heard[1] < LEASE_SECONDS
        return self._listens_since is None or now - self._listens_since < FIRST_SECONDS

    async def release(self, host: str, process: str) -> None:
        """Let another process serve a host at once."""

        def command(value: HostRecord | None) -> Decision[HostRecord, None]:
            if value is None or value.process != process:
                return Decision(value, (), None)
            return Decision(msgspec.structs.replace(value, process="", holder=""), (), None)

        await self._loop.apply(host, command)

    async def assign_ports(self, host: str, process: str, address: str, ports: Mapping[str, int]) -> None:
        """Save where the VMs of a host reach their endpoint."""

        def command(value: HostRecord | None) -> Decision[HostRecord, None]:
            record = value or HostRecord()
            if record.process != process:
                raise HostTaken(host, record.holder or "no process now")
            known = {name: port for name, port in record.ports.items() if name not in ports and self._exists(name)}
            changed = msgspec.structs.replace(record, address=address, ports={**known, **ports})
            return Decision(value if changed == record else changed, (), None)

        await self._loop.apply(host, command)

    def _exists(self, name: str) -> bool:
        scope, _, vm = name.rpartition("/")
        value, _ = self._replica.newest(scope)
        return value is not None and value.roster.find(vm) is not None

    def scopes_of(self, host: str) -> tuple[str, ...]:
        """Return the ids of the scopes with VMs on a host."""
        hosts = self._replica.hosts()
        return tuple(sorted({view.id for view, _ in hosts[host]})) if host in hosts else ()

    async def abandon(self, host: str, *, by: str, why: str) -> int:
        """Turn the begun impacts of a host that is gone to unknown, and return how many they were.

        A process that returns nevertheless has lost its term, and cannot report an outcome any more.
        """
        check_abandon_reason(why)

        def command(value: HostRecord | None) -> Decision[HostRecord, int]:
            if value is None:
                raise HostNotFound(host)
            if value.process and self._may_live(host, value.process):
                ago = self.heard_ago(host)
                if ago is None:
                    raise HostUnheard(host, value.holder, int(FIRST_SECONDS))
                raise HostRunning(host, value.holder, int(ago))
            term = value.term + 1
            return Decision(msgspec.structs.replace(value, term=term, process="", holder=""), (), term)

        raised = await self._loop.apply(host, command)
        found = 0
        for view in self._replica.views_with_events():
            if view.scope is not None and any(
                impact.host == host for event in view.scope.events for impact in event.impacts
            ):
                found += await self._scopes.apply(
                    view.id,
                    lambda scope: abandon_host(
                        scope,
                        host,
                        self._scopes.rule_context,
                        before_term=raised,
                        by=by,
                        why=why,
                        now=self._clock.now(),
                    ),
                )
        return found

    def observe(self, change: ScopeChange) -> None:
        """Report the hosts that get VMs of a scope that this process has changed."""
        on_placed = self.on_placed
        if on_placed is not None and change.entries and change.after is not None:
            before = change.before.roster if change.before is not None else ()
            for host in {vm.host for vm in change.after.roster} - {vm.host for vm in before}:
                if host is not None:
                    on_placed(host)

    def expect_hosts(self) -> None:
        """Let the rules take every host for silent until it is heard from. Call this before anything is decided."""
        self._update_states()

    async def watch_silence(self) -> None:
        """Keep the rules informed about silent hosts, without end."""
        self._listens_since = asyncio.get_running_loop().time()
        while True:
            self._update_states()
            await asyncio.sleep(CHECK_SECONDS)

    def _update_states(self) -> None:
        before = self._scopes.host_states
        states = {name: self._state(name, (before or {}).get(name)) for name in self.names()}
        if states == before:
            return
        self._scopes.host_states = states
        hosts = self._replica.hosts()
        for name, state in states.items():
            old = (before or {}).get(name)
            if old == state:
                continue
            was_heard = old is not None and not old.is_unheard
            if old is not None and was_heard and not state.is_unheard and old.is_silent != state.is_silent:
                log.warning("host %s %s", name, "is silent" if state.is_silent else "reports again")
            views = {view for view, _ in hosts[name]} if name in hosts else set()
            for view in views:
                if old is not None and old.is_silent and not state.is_silent:
                    view.credited_at = self._clock.now()  # its VMs may have polled it all the time
                for observer in self.silence_observers:
                    observer(view)

    def _state(self, host: str, known: HostState | None) -> HostState:
        ago = self.heard_ago(host)
        if ago is None:
            return known if known is not None and known.silent_since is not None else HostState(is_unheard=True)
        if ago < SILENT_SECONDS:
            return HostState()
        if known is not None and known.silent_since is not None:
            return known
        return HostState(silent_since=self._clock.now())


def digest_scopes(scopes: tuple[str, ...]) -> str:
    """Return a short digest of some scopes, in order."""
    return hashlib.blake2s("\n".join(scopes).encode(), digest_size=8).hexdigest()
