"""The shared port: one listener for all VMs, on which the path of each request names the VM.

For containers and other places where a port per VM is impractical, and for clients that can only change their base URL:
`http://forewarn:8180/vm/web-0/metadata/…`, or `/vm/web/web-0/…` for a name that several scopes have. Any caller can
name any VM, so it is for the emulator only.

Requests are not cached by their bytes as on other listeners, whose bytes mean something else.
"""

import re

import msgspec

from forewarn.fleet.errors import FleetError
from forewarn.fleet.replica import AddressIndex, Replica
from forewarn.guest.identity import Caller, CallerResolver, FixedVmResolver, Peer
from forewarn.guest.parser import ParseState, RequestParser
from forewarn.guest.server_state import ServerState
from forewarn.guest.session import HttpSession
from forewarn.wire.error_responses import ErrorReason, ErrorResponse, error_response

PREFIX = "/vm/"

NO_VM_NAMED = error_response(
    404,
    ErrorReason.UNKNOWN_CALLER,
    "Not found: this port serves all VMs: begin the path with the VM, such as /vm/web-0/metadata/versions",
)

_NAMED = re.compile(
    r"(?:http://[^/?#]*)?/vm/(?:(?P<scope>[^/?#]+)/(?P<name>[^/?#]+)(?=/metadata(?:[/?#]|$))|(?P<bare>[^/?#]+))(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)


def vm_path(replica: Replica, scope: str, vm: str) -> str:
    """Return the path that names a VM: its name alone, if that is unambiguous."""
    try:
        replica.find(vm)
    except FleetError:
        return f"{PREFIX}{scope}/{vm}"
    return f"{PREFIX}{vm}"


class UnknownVmResolver:
    """A caller that has not named an existing VM."""

    anonymous_key = "@shared"

    def __init__(self, refusal: ErrorResponse) -> None:
        self._refusal = refusal
        self.address_index = AddressIndex()

    def address(self, peername: object) -> str:
        """Return the source address."""
        return str(peername[0]) if isinstance(peername, tuple) else ""

    def identify(self, _: str) -> Caller | ErrorResponse:
        """Return why there is no VM."""
        return self._refusal


class SharedPortSession(HttpSession):
    """A session in which each request comes from the VM that its path names."""

    __slots__ = ("_named", "_peername", "_replica")

    def __init__(self, server_state: ServerState, peer: Peer, *, replica: Replica) -> None:
        super().__init__(server_state, peer)
        self._replica = replica
        self._peername = (peer.address,)
        self._named: str | None = None

    def _read(self, data: bytes, at: int) -> int:
        parser, observer = self._parser, self._server_state.observer
        if parser is None:
            parser = self._parser = RequestParser(self._server_state.limits)
        if parser.is_at_start:
            self._raw = None if observer is None or not observer.keeps_bytes else b""
        end = parser.read(data, at)
        if self._raw is not None:
            self._raw += data[at:end]
        if parser.state is not ParseState.HEAD and self._routed is None:
            self._take_vm(parser)
            self._handle_head(parser)
        if parser.state is ParseState.DONE and self._routed is not None and not self.is_over:
            self._handle_request(parser, self._routed, b"")
        return end

    def _take_vm(self, parser: RequestParser) -> None:
        """Make the VM that the path names the peer, and remove it from the path."""
        named = _NAMED.fullmatch(parser.head.target)
        vm: str | None = None
        if named is not None:
            vm = named["bare"] or f"{named['scope']}/{named['name']}"
            parser.head = msgspec.structs.replace(parser.head, target=named["rest"] or "/")
        if vm is None or vm != self._named:
            self.peer.disconnect()
            self.peer = Peer(self._resolver(vm), self._peername, self._server_state.rate_limiter)
            self._named = vm

    def _resolver(self, vm: str | None) -> CallerResolver:
        if vm is None:
            return UnknownVmResolver(NO_VM_NAMED)
        try:
            view, found = self._replica.find(vm)
        except FleetError as error:
            return UnknownVmResolver(error_response(404, ErrorReason.UNKNOWN_CALLER, f"Not found: {error}"))
        return FixedVmResolver(view, found.name)
