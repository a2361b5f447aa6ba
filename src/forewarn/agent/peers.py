"""Readiness of peers, the agents of the other affected VMs: request and response.

A peer that does not say it is ready is not ready.

The request is `GET /v1/ready/<EventId>` with the shared secret. The response names its VM and event, so that a wrong or
reused address is detected.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from hmac import compare_digest

import msgspec

from forewarn.agent.http_server import JSON, Request, Response, error_response
from forewarn.agent.phases import Phase
from forewarn.agent.settings import Address
from forewarn.agent.workflow.state import EventWorkflow, PeerState
from forewarn.client.document import normalize_name
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
"""Ids come from the service: what could not be part of a path is asked of nobody."""


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """Where the other agents are, and the secret that all of them share."""

    addresses: Mapping[str, Address]
    """Of each agent, by its VM's resource name."""
    secret: bytes
    timeout: timedelta = timedelta(seconds=3)

    def __post_init__(self) -> None:
        if not self.secret or not all(0x21 <= byte <= 0x7E for byte in self.secret):
            raise ValueError("the secret is one line of ASCII without blanks")

    def __repr__(self) -> str:
        return f"Peers({', '.join(sorted(self.addresses))})"

    @property
    def names(self) -> frozenset[str]:
        """The VMs that can be asked, as names are compared."""
        return frozenset(normalize_name(name) for name in self.addresses)


class PeerResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a peer: its VM, the event and whether it is ready."""

    name: str
    event: str
    ready: bool
    phase: Phase | None = None
    reason: str = msgspec.field(default="", name="why")


class PeerError(Exception):
    """A peer did not say what it was asked; the message says what it did instead."""


def peer_response(
    request: Request, workflows: Mapping[str, EventWorkflow], *, vm_name: str | None, secret: bytes | None
) -> Response:
    """Answer a peer that asks whether this VM is ready."""
    if secret is None or vm_name is None:
        return error_response(403, "this agent is not configured to answer peers, or does not know its own name yet")
    given = request.headers.get("authorization", "")
    if not given.startswith(SCHEME):
        return error_response(401, "say the secret: Authorization: Bearer SECRET", ("WWW-Authenticate", "Bearer"))
    if not compare_digest(given.removeprefix(SCHEME).encode("latin-1"), secret):
        return error_response(403, "this is not the secret of this agent")
    id_ = request.path.removeprefix(PATH).upper()
    workflow = workflows.get(id_)
    if workflow is None:
        unknown = PeerResponse(name=vm_name, event=id_, ready=False, reason="this agent knows of no such event")
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
    """Ask all peers in parallel; return the state of every one."""
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
        return PeerState(name=name, is_ready=False, reason=f"at its address answers {response.name[:64]!r}")
    if response.event.upper() != event_id.upper():
        return PeerState(name=name, is_ready=False, reason="it answered about another event")
    return PeerState(name=name, is_ready=response.ready, reason=response.reason[:256])


async def _ask(address: Address | None, peers: Peers, event_id: str) -> PeerResponse:
    if address is None:
        raise PeerError("no address of it is configured")
    if not PLAIN_ID.fullmatch(event_id):
        raise PeerError("the id of the event cannot be asked for")
    headers = {"Authorization": SCHEME + peers.secret.decode("ascii")}
    request = HttpRequest("GET", f"http://{address}{PATH}{event_id}", headers)
    try:
        response = await send_request(request, time_limit=peers.timeout, max_body=LARGEST_RESPONSE)
    except RequestTimeout as error:
        raise PeerError("no answer in time") from error
    except ResponseTooLarge as error:
        raise PeerError("its answer is too long") from error
    except InvalidResponse as error:
        raise PeerError("its answer is not HTTP") from error
    except RequestFailed as error:
        raise PeerError(f"cannot be reached: {error.reason}") from error
    return _parse_response(response)


def _parse_response(response: HttpResponse) -> PeerResponse:
    match response.status:
        case 200:
            pass
        case 404:
            raise PeerError("it knows of no such event")
        case 401 | 403:
            raise PeerError("it does not take our secret: the files differ")
        case status:
            raise PeerError(f"it answered with status {status}")
    try:
        return msgspec.json.decode(response.body, type=PeerResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError("its answer is no word of an agent") from error
