"""The guest port: what the guest endpoint needs of a fleet. The whole fleet has it, and so has the fleet of a host."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from forewarn.clock import Clock
from forewarn.fleet.health import HealthCheck
from forewarn.fleet.replica import Replica, ScopeView
from forewarn.fleet.scopes import Scopes


class GuestApprovals(Protocol):
    """Records approvals."""

    async def approve(self, scope: str, vm: str, ids: Sequence[str]) -> None:
        """Record a VM's approval of events of its own scope."""
        ...


class GuestRequests(Protocol):
    """Records that scopes are in use."""

    def record_request(self, view: ScopeView) -> Awaitable[None] | None:
        """Record a valid request. The caller must await the returned task, if any, before it responds."""
        ...


class GuestPorts(Protocol):
    """The ports of VMs."""

    @property
    def assigned(self) -> Mapping[str, int]:
        """The port of each VM, by `scope/name`, including removed VMs."""
        ...

    async def assign(self, ports: Mapping[str, int]) -> None:
        """Assign ports to VMs."""
        ...


class GuestFleet(Protocol):
    """The fleet of a guest endpoint."""

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def replica(self) -> Replica:
        """The scopes, as last saved."""
        ...

    @property
    def scopes(self) -> Scopes:
        """The scopes with their observers and the context of the rules; the endpoint changes nothing there."""
        ...

    @property
    def events(self) -> GuestApprovals:
        """Approvals."""
        ...

    @property
    def last_seen(self) -> GuestRequests:
        """The times of requests."""
        ...

    @property
    def ports(self) -> GuestPorts:
        """The ports of VMs."""
        ...

    @property
    def health(self) -> HealthCheck:
        """The health check, which includes the endpoint."""
        ...
