"""Whether the agents of the other VMs are ready, asked and answered. Whoever does not say that he is, is not.

The question is `GET /v1/ready/<EventId>` with the secret that all agents share. The answer says which VM and which
event it is about, so that a wrong address, or an agent that has taken over another's, is found out.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from hmac import compare_digest

import msgspec

from forewarn.agent.http import JSON, Answer, Request, refuse
from forewarn.agent.phases import Phase
from forewarn.agent.settings import Address
from forewarn.agent.walk import PeerWord, Walk
from forewarn.client.document import plain

PATH = "/v1/ready/"
SCHEME = "Bearer "

LARGEST_ANSWER = 64 * 1024
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
        return frozenset(plain(name) for name in self.addresses)


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of itself and an event."""

    name: str
    event: str
    ready: bool
    phase: Phase | None = None
    why: str = ""


class NoWord(Exception):
    """A peer did not say what it was asked; the message says what it did instead."""


def answer_peer(request: Request, walks: Mapping[str, Walk], *, me: str | None, secret: bytes | None) -> Answer:
    """Answer a peer that asks whether this VM is ready."""
    if secret is None or me is None:
        return refuse(403, "this agent is not configured to answer peers, or does not know its own name yet")
    given = request.headers.get("authorization", "")
    if not given.startswith(SCHEME):
        return refuse(401, "say the secret: Authorization: Bearer SECRET", ("WWW-Authenticate", "Bearer"))
    if not compare_digest(given.removeprefix(SCHEME).encode("latin-1"), secret):
        return refuse(403, "this is not the secret of this agent")
    id_ = request.path.removeprefix(PATH).upper()
    walk = walks.get(id_)
    if walk is None:
        unknown = Word(name=me, event=id_, ready=False, why="this agent knows of no such event")
        return Answer(404, msgspec.json.encode(unknown), JSON)
    word = Word(name=me, event=walk.id, ready=walk.is_ready, phase=walk.phase, why=_why(walk))
    return Answer(200, msgspec.json.encode(word), JSON)


def _why(walk: Walk) -> str:
    if walk.is_ready:
        return "ready"
    if walk.gone is not None:
        return f"the event is {walk.gone.value}"
    waiting = ", ".join(step.handler for step in walk.steps if step.holds_back)
    return f"not prepared yet: {waiting}" if waiting else "not prepared"


async def ask_peers(peers: Peers, names: Iterable[str], event_id: str) -> tuple[PeerWord, ...]:
    """Ask all at once; every one of them has a word in what is returned."""
    turn = asyncio.Semaphore(MOST_AT_ONCE)
    addresses = {plain(name): address for name, address in peers.addresses.items()}

    async def ask(name: str) -> PeerWord:
        async with turn:
            return await _word_of(name, addresses.get(plain(name)), peers, event_id)

    return tuple(await asyncio.gather(*(ask(name) for name in names)))


async def _word_of(name: str, address: Address | None, peers: Peers, event_id: str) -> PeerWord:
    try:
        async with asyncio.timeout(peers.timeout.total_seconds()):
            word = _read(await _get(address, peers.secret, event_id))
    except TimeoutError:
        return PeerWord(name=name, is_ready=False, why="no answer in time")
    except OSError as error:
        return PeerWord(name=name, is_ready=False, why=f"cannot be reached: {error.strerror or type(error).__name__}")
    except NoWord as error:
        return PeerWord(name=name, is_ready=False, why=str(error))
    if plain(word.name) != plain(name):
        return PeerWord(name=name, is_ready=False, why=f"at its address answers {word.name[:64]!r}")
    if word.event.upper() != event_id.upper():
        return PeerWord(name=name, is_ready=False, why="it answered about another event")
    return PeerWord(name=name, is_ready=word.ready, why=word.why[:256])


async def _get(address: Address | None, secret: bytes, event_id: str) -> bytes:
    if address is None:
        raise NoWord("no address of it is configured")
    if not PLAIN_ID.fullmatch(event_id):
        raise NoWord("the id of the event cannot be asked for")
    try:
        reader, writer = await asyncio.open_connection(*address, limit=LARGEST_ANSWER)
    except UnicodeError as error:
        raise NoWord("its address is none") from error
    try:
        head = f"GET {PATH}{event_id} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
        writer.write(head.encode("latin-1") + b"Authorization: Bearer " + secret + b"\r\n\r\n")
        await writer.drain()
        return await _whole(reader)
    finally:
        writer.transport.abort()


async def _whole(reader: asyncio.StreamReader) -> bytes:
    text = b""
    while chunk := await reader.read(LARGEST_ANSWER):
        text += chunk
        if len(text) > LARGEST_ANSWER:
            raise NoWord("its answer is too long")
    return text


def _read(text: bytes) -> Word:
    head, end, body = text.partition(b"\r\n\r\n")
    first = head.partition(b"\r\n")[0].split(b" ")
    if not end or len(first) < 2 or not first[0].startswith(b"HTTP/1."):
        raise NoWord("its answer is not HTTP")
    match first[1]:
        case b"200":
            pass
        case b"404":
            raise NoWord("it knows of no such event")
        case b"401" | b"403":
            raise NoWord("it does not take our secret: the files differ")
        case status:
            raise NoWord(f"it answered with status {status[:3].decode('latin-1')}")
    try:
        return msgspec.json.decode(body, type=Word)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoWord("its answer is no word of an agent") from error
