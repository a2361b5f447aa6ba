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
from forewarn.operator.campaign_planner import CampaignPlanner
from forewarn.operator.errors import TooManyStreams
from forewarn.operator.import_job import ImportJobs
from forewarn.operator.metrics import GuestCounters, StatusCounts
from forewarn.operator.pagination import SortedScopeIds

MAX_STREAMS = 64
"""As many as this; others must be able to ask beside them."""


class StreamSlots:
    """The places of those who follow the journal."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self.taken = 0

    def acquire(self) -> None:
        """Take a place, if one is free."""
        if self.taken >= self._limit:
            raise TooManyStreams(self._limit)
        self.taken += 1

    def release(self) -> None:
        """Give a place back."""
        self.taken -= 1


class FaultControl(Protocol):
    """What the endpoint does wrong on purpose."""

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
        """End a fault, unless `check` refuses that."""
        ...

    async def clear_all(
        self, matches: Callable[[Fault], bool], *, by: str, why: str, idempotency_key: IdempotencyKey | None
    ) -> tuple[Fault, ...]:
        """End all faults that are meant."""
        ...

    def list(self) -> tuple[Fault, ...]:
        """Return the faults that are set."""
        ...


class SocketControl(Protocol):
    """What takes programs on this machine for VMs."""

    async def open(self, vm: str) -> Path:
        """Return where the VM `scope/name` is listened for."""
        ...


class GuestEndpoints(Protocol):
    """Where VMs find their endpoint."""

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL at which a VM finds its endpoint; None if it cannot reach any."""
        ...

    @property
    def networks(self) -> Mapping[str, str]:
        """The networks whose VMs find it at 169.254.169.254, known by their addresses, each with its interface."""
        ...

    @property
    def ports(self) -> object | None:
        """Whatever gives each VM a port of its own; None: no VM has one."""
        ...

    @property
    def faults(self) -> FaultControl | None:
        """What it does wrong on purpose; None: it never does."""
        ...

    @property
    def sockets(self) -> SocketControl | None:
        """What takes programs on this machine for VMs; None: nothing does."""
        ...

    @property
    def counters(self) -> GuestCounters:
        """What the endpoint counts."""
        ...


class ServiceState(NamedTuple):
    """What the handlers of one service work on."""

    fleet: Fleet
    guests: GuestEndpoints
    status_counts: StatusCounts
    scope_ids: SortedScopeIds
    stream_slots: StreamSlots
    import_jobs: ImportJobs
    planner: CampaignPlanner


_current_parts: ContextVar[ServiceState] = ContextVar("current_parts")


def with_parts(app: ASGIApp, parts: ServiceState) -> ASGIApp:
    """Return the application of one service: its requests are answered with these parts."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        token = _current_parts.set(parts)
        try:
            await app(scope, receive, send)
        finally:
            _current_parts.reset(token)

    return serve


class AppState(State):
    """The parts of the service whose request is being answered: all services of a process share the handlers."""

    fleet: Fleet
    guests: GuestEndpoints
    status_counts: StatusCounts
    scope_ids: SortedScopeIds
    stream_slots: StreamSlots
    import_jobs: ImportJobs
    planner: CampaignPlanner

    def __getattr__(self, name: str) -> Any:
        """Return a part."""
        return getattr(_current_parts.get(), name)
