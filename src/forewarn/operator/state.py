"""Application state of the route handlers, protocols for the guest endpoint, and slots for event streams."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from litestar.datastructures import State
from litestar.types import ASGIApp, Receive, Scope, Send

from forewarn.core.fault import Fault, FaultKind
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.vm import Vm
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import TokenCheck
from forewarn.operator.campaign_planner import CampaignPlanner
from forewarn.operator.counters import Counters
from forewarn.operator.errors import TooManyStreams
from forewarn.operator.import_job import ImportJobs
from forewarn.operator.pagination import SortedScopeIds
from forewarn.operator.report_store import ReportStore
from forewarn.operator.scenario_runs import ScenarioRuns
from forewarn.operator.sessions import Sessions
from forewarn.store.port import JournalRow
from forewarn.wire.error_responses import ErrorReason
from forewarn.wire.exchange import ExchangeList
from forewarn.wire.preview import ResponsePreview

MAX_STREAMS = 64
"""The limit of open journal streams, so that other requests still get connections."""


class StreamSlots:
    """Slots for journal streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self.taken = 0

    def acquire(self) -> None:
        """Take a slot; raise an error if none is free."""
        if self.taken >= self._limit:
            raise TooManyStreams(self._limit)
        self.taken += 1

    def release(self) -> None:
        """Release a slot."""
        self.taken -= 1


class GuestCounters(Protocol):
    """The counters of the guest endpoint."""

    responses: dict[int, int]
    refusals: dict[ErrorReason, int]
    ambiguous_callers: int
    failures: int
    accepted: int
    connections: int
    timed_out: int
    long_polls: int


class FaultControl(Protocol):
    """Fault injection in the guest endpoint."""

    async def set(
        self,
        kind: FaultKind,
        *,
        vm: str | None,
        lasting: timedelta | None,
        times: int | None,
        amount: timedelta | None,
        by: str,
        why: str,
        idempotency_key: IdempotencyKey | None,
    ) -> Fault:
        """Set a fault, for the VM `scope/name` or for all."""
        ...

    async def clear(
        self, id_: str, *, check: Callable[[Fault], None], by: str, why: str, idempotency_key: IdempotencyKey | None
    ) -> Fault:
        """Clear a fault, unless `check` raises an error."""
        ...

    async def clear_all(
        self, matches: Callable[[Fault], bool], *, by: str, why: str, idempotency_key: IdempotencyKey | None
    ) -> tuple[Fault, ...]:
        """Clear all faults that match."""
        ...

    def list(self) -> tuple[Fault, ...]:
        """Return the current faults."""
        ...


class SocketControl(Protocol):
    """Unix sockets through which programs on this machine act as VMs."""

    async def open(self, vm: str) -> Path:
        """Open the socket of the VM `scope/name` and return its path."""
        ...


class RequestRecords(Protocol):
    """The recorder of requests of single VMs."""

    keeps_bytes: bool
    """Whether it keeps the bytes of requests and responses."""

    def watch(self, vm: str) -> ExchangeList:
        """Return the exchanges of the VM `scope/name` since it is watched, and watch it from now on."""
        ...


class GuestEndpoints(Protocol):
    """The guest endpoint, as the operator API sees it."""

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL of a VM's endpoint; None if it has none."""
        ...

    def preview(self, scope: str, vm: Vm) -> ResponsePreview | None:
        """Return what the VM gets if it polls now; None if it has no endpoint."""
        ...

    def port_problem(self, scope: str, vm: Vm) -> str | None:
        """Return why a VM has no port of its own; None if no reason is known."""
        ...

    @property
    def networks(self) -> Mapping[str, str]:
        """The networks that are served at 169.254.169.254, each with its interface."""
        ...

    @property
    def ports(self) -> object | None:
        """The listeners with one port per VM; None if VMs have no ports."""
        ...

    @property
    def shared_url(self) -> str | None:
        """The URL of the port that serves all VMs; None if there is none."""
        ...

    @property
    def faults(self) -> FaultControl | None:
        """Fault injection; None outside the emulator."""
        ...

    @property
    def sockets(self) -> SocketControl | None:
        """The VM sockets; None if they are not available."""
        ...

    @property
    def recorder(self) -> RequestRecords | None:
        """The recorder of requests; None if the endpoint is on other machines."""
        ...

    @property
    def counters(self) -> GuestCounters:
        """The counters of the endpoint."""
        ...


class ServiceState(NamedTuple):
    """The parts of one service that handlers use."""

    fleet: Fleet
    guests: GuestEndpoints
    counters: Counters
    scope_ids: SortedScopeIds
    stream_slots: StreamSlots
    encode_row: Callable[[JournalRow], bytes]
    import_jobs: ImportJobs
    planner: CampaignPlanner
    token_check: TokenCheck
    sessions: Sessions
    scenario_runs: ScenarioRuns
    reports: ReportStore


_current_parts: ContextVar[ServiceState] = ContextVar("current_parts")


def with_parts(app: ASGIApp, parts: ServiceState) -> ASGIApp:
    """Wrap the shared application so that its handlers use these parts."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        token = _current_parts.set(parts)
        try:
            await app(scope, receive, send)
        finally:
            _current_parts.reset(token)

    return serve


def current_service() -> ServiceState:
    """Return the parts of the service that the current request belongs to."""
    return _current_parts.get()


class AppState(State):
    """The parts of the service that the current request belongs to; all services of a process share the handlers."""

    fleet: Fleet
    guests: GuestEndpoints
    counters: Counters
    scope_ids: SortedScopeIds
    stream_slots: StreamSlots
    encode_row: Callable[[JournalRow], bytes]
    import_jobs: ImportJobs
    planner: CampaignPlanner
    token_check: TokenCheck
    sessions: Sessions
    scenario_runs: ScenarioRuns
    reports: ReportStore

    def __getattr__(self, name: str) -> Any:
        """Return a part of the current service."""
        return getattr(current_service(), name)
