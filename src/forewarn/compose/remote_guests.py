"""Guest endpoints of a control node, which has none itself: those of the hosts, as their records describe them."""

from collections.abc import Mapping
from typing import NamedTuple

from forewarn.core.vm import Vm
from forewarn.fleet.host.registry import HostRegistry
from forewarn.guest.counters import Counters
from forewarn.wire.preview import ResponsePreview


class RemoteGuests(NamedTuple):
    """The guest endpoints on hosts."""

    hosts: HostRegistry
    counters: Counters
    networks: Mapping[str, str] = {}
    ports: object | None = None
    shared_url: str | None = None
    faults: None = None
    sockets: None = None
    recorder: None = None
    link_local_url: None = None

    def url(self, scope: str, vm: Vm) -> str | None:
        """Return the URL of a VM's endpoint on its host, if it has a port there."""
        return self.hosts.url(scope, vm)

    def preview(self, scope: str, vm: Vm) -> ResponsePreview | None:
        """Return None: only the host knows what the VM would get."""
        del scope, vm
        return None

    def port_problem(self, scope: str, vm: Vm) -> str | None:
        """Return None: only the host knows why a VM has no port."""
        del scope, vm
        return None
