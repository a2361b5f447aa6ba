"""Endpoint discovery: the link-local address, else the address in DHCP option 245. For VMs outside a virtual network.

NotDiscovered
├── InterfaceNotFound     no network interface is up, or not the given one
├── DhcpNotAllowed        the system does not let this program act as a DHCP client
├── DhcpTimeout           no DHCP server answered
├── EndpointNotFound      DHCP servers answered, but without an endpoint
└── EndpointUnavailable   DHCP returned an endpoint, but it serves no Scheduled Events
"""

import errno
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from forewarn.client.dhcp import DhcpResponse
from forewarn.client.dhcp_socket import CLIENT_PORT, DhcpSocket, Interface, active_interfaces
from forewarn.client.document import Document
from forewarn.client.endpoint import LINK_LOCAL, Endpoint, parse_endpoint
from forewarn.client.errors import ClientError
from forewarn.client.sync import ScheduledEvents
from forewarn.client.transport import CONNECT_TIMEOUT

USUAL_ENDPOINT = f"http://{LINK_LOCAL}"

PAUSES = (0.0, 10.0, 30.0, 60.0, 60.0)
"""Pauses, in seconds, before each DHCP request."""
RECEIVE_LIMIT = 10.0
"""How many seconds to wait for offers after each request."""
POLLS, POLL_INTERVAL = 24, 5.0
"""How often, and at which interval in seconds, to poll a service that answers but is not ready: two minutes in all."""
NOT_READY = Document()


class NotDiscovered(ClientError):
    """The endpoint was not found."""

    advice = "if you know its URL, set FOREWARN_ENDPOINT"


class InterfaceNotFound(NotDiscovered):
    """No network interface is up, or not the given one."""

    advice = "list the interfaces with `ip link`, and choose one that is up"
    template = "no network interface{named} is up, so DHCP discovery is not possible"
    interfaces: Sequence[str]

    @property
    def named(self) -> str:
        """The given interfaces."""
        return f" {' or '.join(self.interfaces)}" if self.interfaces else ""


class DhcpNotAllowed(NotDiscovered):
    """The system does not let this program act as a DHCP client."""

    advice = "run it once as root or with CAP_NET_BIND_SERVICE, and set FOREWARN_ENDPOINT to the URL that it finds"
    template = f"cannot send DHCP requests from port {CLIENT_PORT}: {{why}}"
    why: str


class DhcpTimeout(NotDiscovered):
    """No DHCP server answered."""

    template = f"no answer from {USUAL_ENDPOINT}, and none from a DHCP server on {{interfaces}}"
    interfaces: Sequence[str]


class EndpointNotFound(NotDiscovered):
    """DHCP servers answered, but without the address of an endpoint."""

    advice = "this network probably has no Scheduled Events; if it has, set FOREWARN_ENDPOINT to the endpoint's URL"
    template = f"no answer from {USUAL_ENDPOINT}, and the DHCP server {{which}} has no option 245 for this VM"
    servers: Sequence[str]

    @property
    def which(self) -> str:
        """The servers that answered."""
        return ", ".join(self.servers) or "that answered"


class EndpointUnavailable(NotDiscovered):
    """DHCP returned an endpoint, but it serves no Scheduled Events."""

    advice = "check that the service runs and knows this VM"
    template = "according to DHCP the endpoint is {urls:or}, but it does not serve Scheduled Events"
    urls: Sequence[str]


def discover_endpoint(*interfaces: str) -> str:
    """Return the URL of the endpoint, for `ScheduledEvents`.

    It tries the link-local address first. If that does not accept a connection within 5 s, or serves no Scheduled
    Events, it sends DHCP requests on the given interfaces, or on all that are up. The first address in an option 245
    that serves Scheduled Events is the endpoint.

    It sends up to five requests, immediately and after 10, 30, 60 and 60 s, and waits 10 s for offers each time. If
    servers answer, but none returns an endpoint, it stops early, because they would answer the same again.

    DHCP discovery needs root or CAP_NET_BIND_SERVICE on Linux. It takes no lease and changes no address. In a
    coroutine, call `await asyncio.to_thread(discover_endpoint)`.

    Raises NotDiscovered: InterfaceNotFound, DhcpNotAllowed, DhcpTimeout, EndpointNotFound or EndpointUnavailable.
    """
    if has_events(USUAL_ENDPOINT):
        return USUAL_ENDPOINT
    chosen = _chosen(interfaces)
    with _open_socket(chosen) as dhcp:
        return find_endpoint(dhcp.discover, chosen, is_right=has_events, pause=time.sleep)


def _chosen(names: Sequence[str]) -> tuple[Interface, ...]:
    chosen = tuple(each for each in active_interfaces() if not names or each.name in names)
    if not chosen:
        raise InterfaceNotFound(tuple(names))
    return chosen


def _open_socket(interfaces: Iterable[Interface]) -> DhcpSocket:
    try:
        return DhcpSocket(interfaces)
    except OSError as error:
        raise DhcpNotAllowed(_reason(error)) from error


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case errno.EADDRINUSE:
            return "another program uses the port exclusively (`ss -ulpn` shows which)"
        case _:
            return error.strerror or str(error)


def find_endpoint(
    discover: Callable[[float], Iterable[DhcpResponse]],
    interfaces: Sequence[Interface],
    *,
    is_right: Callable[[str], bool],
    pause: Callable[[float], None],
) -> str:
    """Request offers until one has an endpoint that is right, all servers answered without one, or retries ran out."""
    for seconds in PAUSES:
        pause(seconds)
        offers: list[DhcpResponse] = []
        for offer in discover(RECEIVE_LIMIT):
            if offer.endpoint is not None and is_right(_url(offer.endpoint)):
                return _url(offer.endpoint)
            offers.append(offer)
        if offers:
            raise _without_endpoint(offers)
    raise DhcpTimeout(tuple(str(interface) for interface in interfaces))


def _without_endpoint(offers: Sequence[DhcpResponse]) -> NotDiscovered:
    if wrong := sorted({_url(offer.endpoint) for offer in offers if offer.endpoint is not None}):
        return EndpointUnavailable(tuple(wrong))
    return EndpointNotFound(tuple(sorted({offer.server for offer in offers if offer.server is not None})))


def _url(address: str) -> str:
    return f"http://{address}"


def has_events(url: str, pause: Callable[[float], None] = time.sleep) -> bool:
    """Return whether the URL serves Scheduled Events; wait up to two minutes for a service that is being enabled.

    If the address accepts connections, requests are retried as in `ScheduledEvents.get`.
    """
    if not _is_reachable(parse_endpoint(url)):
        return False
    try:
        with ScheduledEvents(url) as service:
            for _ in range(POLLS):
                if service.get() != NOT_READY:
                    return True
                pause(POLL_INTERVAL)
    except ClientError:
        return False
    return False


def _is_reachable(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection((endpoint.host, endpoint.port), CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


# Names of earlier versions: the errors are public.
NothingToAskBy = InterfaceNotFound
MayNotAsk = DhcpNotAllowed
NoOffer = DhcpTimeout
NoEndpointOffered = EndpointNotFound
WrongEndpoint = EndpointUnavailable
