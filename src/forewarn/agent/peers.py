"""Readiness of peers, the agents of the other affected VMs: request and response.

A peer counts as ready only if it answers that it is.

The request is `GET /v1/ready/<EventId>` with the shared secret. The response names its VM and event, so that a wrong or
reused address is detected.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from forewarn.agent.http_server import JSON, Request, Response, error_response
from forewarn.agent.phases import Phase
from forewarn.agent.settings import Address
from forewarn.agent.workflow.state import EventWorkflow, PeerState
from forewarn.client.document import normalize_name
from forewarn.core.base_error import BaseError
from forewarn.http_client import (
    HttpRequest,
    HttpResponse,
    InvalidResponse,
    RequestFailed,
    RequestTimeout,
    ResponseTooLarge,
    send_request,
)

PATH = "/v1/ready/"
SCHEME = "Bearer "

LARGEST_RESPONSE = 64 * 1024
MOST_AT_ONCE = 32

PLAIN_ID = re.compile(r"[0-9A-Za-z._-]{1,128}")
"""Event ids that are safe in a URL path. Ids come from the service; peers are not asked about any other id."""


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the other agents, and the secret that all of them share."""

    addresses: Mapping[str, Address]
    """The address of each agent, by the resource name of its VM."""
    secret: bytes
    timeout: timedelta = timedelta(seconds=3)

    def __post_init__(self) -> None:
        if not self.secret or not all(0x21 <= byte <= 0x7E for byte in self.secret):
            raise ValueError("the secret must be one line of ASCII without spaces")

    def __repr__(self) -> str:
        return f"Peers({', '.join(sorted(self.addresses))})"

    @property
    def names(self) -> frozenset[str]:
        """The normalized names of the VMs with a configured agent."""
        return frozenset(normalize_name(name) for name in self.addresses)


class PeerResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a peer: its VM, the event and whether it is ready."""

    name: str
    event: str
    ready: bool
    phase: Phase | None = None
    reason: str = msgspec.field(default="", name="why")


class PeerError(BaseError):
    """A peer gave no usable answer; the message says why."""

    template = "{problem}"
    problem: str


def peer_response(
    request: Request, workflows: Mapping[str, EventWorkflow], *, vm_name: str | None, secret: bytes | None
) -> Response:
    """Answer a peer that asks whether this VM is ready."""
    if secret is None or vm_name is None:
        return error_response(403, "this agent is not configured to answer peers, or does not know its own name yet")
    given = request.headers.get("authorization", "")
    if not given.startswith(SCHEME):
        return error_response(401, "secret required: send Authorization: Bearer SECRET", ("WWW-Authenticate", "Bearer"))
    from hmac import compare_digest  # late: an idle agent does not need it

    if not compare_digest(given.removeprefix(SCHEME).encode("latin-1"), secret):
        return error_response(403, "wrong secret")
    id_ = request.path.removeprefix(PATH).upper()
    workflow = workflows.get(id_)
    if workflow is None:
        unknown = PeerResponse(name=vm_name, event=id_, ready=False, reason="unknown event")
        return Response(404, msgspec.json.encode(unknown), JSON)
    response = PeerResponse(
        name=vm_name, event=workflow.id, ready=workflow.is_ready, phase=workflow.phase, reason=_reason(workflow)
    )
    return Response(200, msgspec.json.encode(response), JSON)


def _reason(workflow: EventWorkflow) -> str:
    if workflow.is_ready:
        return "ready"
    if workflow.ending is not None:
        return f"the event is {workflow.ending.value}"
    waiting = ", ".join(step.handler for step in workflow.steps if step.is_blocking)
    return f"not prepared yet: {waiting}" if waiting else "not prepared"


async def check_peers(peers: Peers, names: Iterable[str], event_id: str) -> tuple[PeerState, ...]:
    """Ask the peers in parallel whether they are ready, and return the state of each."""
    slots = asyncio.Semaphore(MOST_AT_ONCE)
    addresses = {normalize_name(name): address for name, address in peers.addresses.items()}

    async def check(name: str) -> PeerState:
        async with slots:
            return await _peer_state(name, addresses.get(normalize_name(name)), peers, event_id)

    return tuple(await asyncio.gather(*(check(name) for name in names)))


async def _peer_state(name: str, address: Address | None, peers: Peers, event_id: str) -> PeerState:
    try:
        response = await _ask(address, peers, event_id)
    except PeerError as error:
        return PeerState(name=name, is_ready=False, reason=str(error))
    if normalize_name(response.name) != normalize_name(name):
        return PeerState(name=name, is_ready=False, reason=f"another VM answered: {response.name[:64]!r}")
    if response.event.upper() != event_id.upper():
        return PeerState(name=name, is_ready=False, reason="answered for another event")
    return PeerState(name=name, is_ready=response.ready, reason=response.reason[:256])


async def _ask(address: Address | None, peers: Peers, event_id: str) -> PeerResponse:
    if address is None:
        raise PeerError("no address configured")
    if not PLAIN_ID.fullmatch(event_id):
        raise PeerError("not asked: the event id is not safe in a URL")
    headers = {"Authorization": SCHEME + peers.secret.decode("ascii")}
    request = HttpRequest("GET", f"http://{address}{PATH}{event_id}", headers)
    try:
        response = await send_request(request, time_limit=peers.timeout, max_body=LARGEST_RESPONSE)
    except RequestTimeout as error:
        raise PeerError("request timed out") from error
    except ResponseTooLarge as error:
        raise PeerError(f"response exceeds {LARGEST_RESPONSE} bytes") from error
    except InvalidResponse as error:
        raise PeerError("invalid HTTP response") from error
    except RequestFailed as error:
        raise PeerError(f"unreachable: {error.reason}") from error
    return _parse_response(response)


def _parse_response(response: HttpResponse) -> PeerResponse:
    match response.status:
        case 200:
            pass
        case 404:
            raise PeerError("unknown event there")
        case 401 | 403:
            raise PeerError("rejected the secret: the secret files differ")
        case status:
            raise PeerError(f"unexpected status {status}")
    try:
        return msgspec.json.decode(response.body, type=PeerResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError("invalid response body") from error
