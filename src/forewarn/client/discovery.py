"""Endpoint discovery: the link-local address, else the address in DHCP option 245. For VMs outside a virtual network.

NotDiscovered
├── InterfaceNotFound     no network interface is up, or not the named one
├── DhcpNotAllowed        the system does not let this program act as a DHCP client
├── DhcpTimeout           no DHCP server has answered
├── EndpointNotFound      DHCP servers have answered, but none names an endpoint
└── EndpointUnavailable   DHCP names an endpoint, but it serves no Scheduled Events
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
"""How many seconds pass before each time that DHCP is asked."""
RECEIVE_LIMIT = 10.0
"""For how many seconds offers are awaited each time."""
POLLS, POLL_INTERVAL = 24, 5.0
"""How often, and with how many seconds between, a service is asked that is there but not ready: for two minutes."""
NOT_READY = Document()


class NotDiscovered(ClientError):
    """The endpoint was not found."""

    advice = "if you know where it is, set FOREWARN_ENDPOINT to its URL"


class InterfaceNotFound(NotDiscovered):
    """No network interface is up, or not the one that was named."""

    advice = "see with `ip link` which ones this machine has, and name one that is up"
    template = "there is no network interface{named} that is up, so DHCP cannot be asked"
    interfaces: Sequence[str]

    @property
    def named(self) -> str:
        """The interfaces that were named."""
        return f" {' or '.join(self.interfaces)}" if self.interfaces else ""


class DhcpNotAllowed(NotDiscovered):
    """The system does not let this program ask as a DHCP client."""

    advice = (
        "run this once as root, or with the capability CAP_NET_BIND_SERVICE, and set FOREWARN_ENDPOINT to what it says"
    )
    template = f"cannot ask DHCP from port {CLIENT_PORT}: {{why}}"
    why: str


class DhcpTimeout(NotDiscovered):
    """No DHCP server has answered."""

    template = f"there is no answer at {USUAL_ENDPOINT}, and no answer from a DHCP server on {{interfaces}}"
    interfaces: Sequence[str]


class EndpointNotFound(NotDiscovered):
    """DHCP servers have answered, but none says where the endpoint is."""

    advice = "this network has no Scheduled Events; or, if you know better, set FOREWARN_ENDPOINT to the endpoint's URL"
    template = f"there is no answer at {USUAL_ENDPOINT}, and the DHCP server {{which}} has no option 245 for this VM"
    servers: Sequence[str]

    @property
    def which(self) -> str:
        """The servers that answered."""
        return ", ".join(self.servers) or "that answers"


class EndpointUnavailable(NotDiscovered):
    """DHCP says where the endpoint is, but nothing there tells of events."""

    advice = "check that the service runs, and that this VM is one that it serves"
    template = "according to DHCP the endpoint is {urls:or}, but it does not serve Scheduled Events"
    urls: Sequence[str]


def discover_endpoint(*interfaces: str) -> str:
    """Return the URL of the endpoint, as `ScheduledEvents` takes it.

    The usual address comes first; if nobody takes the call there within 5 s, or if it has no events, DHCP is asked: on
    the interfaces that are named, else on all that are up, and up to five times, at once, then after 10, 30, 60 and
    60 s, with 10 s for offers each time. The first address in an option 245 that has events is the endpoint. It ends
    early when servers answer and none of them knows: they would say the same again.

    Asking DHCP needs root or CAP_NET_BIND_SERVICE on Linux. It takes no lease and changes no address. In a coroutine,
    call `await asyncio.to_thread(discover_endpoint)`.

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
            return "the system does not allow it"
        case errno.EADDRINUSE:
            return "another program has the port for itself (`ss -ulpn` shows which)"
        case _:
            return error.strerror or str(error)


def find_endpoint(
    discover: Callable[[float], Iterable[DhcpResponse]],
    interfaces: Sequence[Interface],
    *,
    is_right: Callable[[str], bool],
    pause: Callable[[float], None],
) -> str:
    """Ask for offers again and again, until one has the endpoint or it is clear that none will."""
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
    """Tell whether a document of events is there: now, or within two minutes where the service has to get ready first.

    An address that can be reached is asked as patiently as `ScheduledEvents.get` asks.
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
        socket.create_connection(endpoint, CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


# Names of earlier versions: the errors are public.
NothingToAskBy = InterfaceNotFound
MayNotAsk = DhcpNotAllowed
NoOffer = DhcpTimeout
NoEndpointOffered = EndpointNotFound
WrongEndpoint = EndpointUnavailable
