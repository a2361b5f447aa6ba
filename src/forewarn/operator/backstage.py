"""What the handlers work on, and what they need to know of the guests' side."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from litestar.datastructures import State

from forewarn.core.fault import Fault, FaultKind
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.vm import Vm
from forewarn.fleet.service import Fleet
from forewarn.operator.counting import Answers
from forewarn.operator.importing import Imports
from forewarn.operator.metrics import GuestCounters
from forewarn.operator.paging import Roll
from forewarn.operator.planning import Planner
from forewarn.operator.seats import Seats


class FaultSide(Protocol):
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
        once: IdempotencyKey | None,
    ) -> Fault:
        """Set a fault, for the VM `scope/name` or for all."""
        ...

    async def clear(
        self, id_: str, *, may: Callable[[Fault], None], by: str, why: str, once: IdempotencyKey | None
    ) -> Fault:
        """End a fault, unless `may` refuses that."""
        ...

    async def clear_all(
        self, meant: Callable[[Fault], bool], *, by: str, why: str, once: IdempotencyKey | None
    ) -> tuple[Fault, ...]:
        """End all faults that are meant."""
        ...

    def list(self) -> tuple[Fault, ...]:
        """Return the faults that are set."""
        ...


class SocketSide(Protocol):
    """What takes programs on this machine for VMs."""

    async def open(self, vm: str) -> Path:
        """Return where the VM `scope/name` is listened for."""
        ...


class GuestSide(Protocol):
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
    def faults(self) -> FaultSide | None:
        """What it does wrong on purpose; None: it never does."""
        ...

    @property
    def sockets(self) -> SocketSide | None:
        """What takes programs on this machine for VMs; None: nothing does."""
        ...

    @property
    def counters(self) -> GuestCounters:
        """What the endpoint counts."""
        ...


class Backstage(State):
    """What the handlers work on."""

    fleet: Fleet
    guests: GuestSide
    answers: Answers
    roll: Roll
    seats: Seats
    imports: Imports
    planner: Planner
