"""The journal of walks on disk: a file for each, on the disk for good before anything is done.

What is written is whole or not there: a new file takes the old one's place. A full disk, or any other trouble with it,
ends nothing: the agent goes on in memory, says so, and writes again what is missing as soon as that works.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from forewarn.agent import durable
from forewarn.agent.walk import Course, Walk
from forewarn.client.document import STATUSES, Event
from forewarn.wire.document_parser import SOURCES, TYPES

FORMAT = 1
LARGEST = 64 * 1024 * 1024
"""No walk is longer, whatever the service writes into an event: what is, is none."""

PLAIN_ID = re.compile(r"[0-9A-Z][0-9A-Z-]{0,63}")
"""Such ids are file names by themselves; the service may send others."""

LOG = logging.getLogger("forewarn.agent.journal")


class KeptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the words in which the service told it: types, states and sources are open."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: datetime | None
    description: str | None
    source: str | None
    duration: timedelta | None
    resource_type: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a file, together with a sum over it: what was damaged is not to be taken for what was done."""

    format: int
    sum: int
    walk: msgspec.Raw


class KeptWalk(msgspec.Struct, frozen=True, kw_only=True):
    """A walk as it is in a page."""

    event: KeptEvent
    comeback: KeptEvent | None
    course: Course


class Journal:
    """Keeps walks in a directory, or nowhere. Nothing here raises because of the disk."""

    def __init__(self, directory: Path | None, *, on_trouble: Callable[[str], None] | None = None) -> None:
        self._directory = directory
        self._on_trouble = on_trouble or (lambda _: None)
        self._unsaved: dict[str, Walk | None] = {}
        self.in_trouble = asyncio.Event()
        """Is set while something is not on disk that should be."""
        self.unread: list[str] = []
        """What was in the directory and could not be read, a sentence each."""
        self.trouble: str | None = None
        """Why the disk does not have everything; None if it has."""

    def read(self) -> tuple[Walk, ...]:
        """Return all walks. A file that is none is put aside under another name, for people to look at."""
        if self._directory is None:
            return ()
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = sorted(self._directory.iterdir())
        except OSError as error:
            self._note(f"the journal cannot be read: {_words(error)}; look whether something is left prepared")
            return ()
        for path in paths:
            if path.suffix == durable.UNFINISHED:
                with suppress(OSError):
                    path.unlink()
        walks = (self._read(path) for path in paths if path.suffix == ".json")
        return tuple(walk for walk in walks if walk is not None)

    def save(self, walk: Walk) -> None:
        """Have the walk on disk, if at all possible; in any case remember that it should be."""
        self._unsaved[walk.id] = walk
        self.catch_up()

    def strike(self, id_: str) -> None:
        """Have the walk on disk no more."""
        self._unsaved[id_] = None
        self.catch_up()

    def catch_up(self) -> None:
        """Write whatever is not on disk yet."""
        why: str | None = None
        for id_, walk in list(self._unsaved.items()):
            try:
                self._write(id_, walk)
                del self._unsaved[id_]
            except (OSError, ValueError) as error:
                why = _words(error)
        if why is not None:
            self._say(f"the journal cannot be written: {why}; what is done is only known until the agent ends")
        elif self.trouble is not None:
            self.trouble = None
            self.in_trouble.clear()
            LOG.warning("the journal is on disk again")

    def _write(self, id_: str, walk: Walk | None) -> None:
        if self._directory is None:
            return
        path = self._directory / f"{file_name(id_)}.json"
        if walk is None:
            durable.remove(path)
        else:
            durable.write(path, write_page(walk))

    def _read(self, path: Path) -> Walk | None:
        try:
            return read_page(path)
        except (OSError, ValueError) as error:
            # It may have been the only trace of something that is prepared.
            where = self._move_aside(path)
            self._note(
                f"{path.name} in the journal is unreadable ({error}){where}; look whether something is left prepared"
            )
            return None

    def _move_aside(self, path: Path) -> str:
        for name in _names_beside(path):
            if not name.exists():
                with suppress(OSError):
                    path.rename(name)
                    return f" and is now {name.name}"
                break
        return ""

    def _note(self, unread: str) -> None:
        self.unread.append(unread)
        LOG.error("%s", unread)
        self._on_trouble(unread)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            LOG.error("%s", trouble)
        self.trouble = trouble
        self.in_trouble.set()
        self._on_trouble(trouble)


def read_page(path: Path) -> Walk:
    """Read one file of a journal; raises OSError or ValueError."""
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"longer than {LARGEST} bytes")
    return walk_in(text)


def walk_in(text: bytes) -> Walk:
    """Read the content of a walk's file; raises ValueError."""
    try:
        page = msgspec.json.decode(text, type=Page)
        if page.format != FORMAT:
            raise ValueError(f"of format {page.format}; this agent knows {FORMAT}")
        if crc32(page.walk) != page.sum:
            raise ValueError("damaged: its sum is wrong")
        kept = msgspec.json.decode(page.walk, type=KeptWalk)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    comeback = None if kept.comeback is None else _event(kept.comeback)
    return Walk(event=_event(kept.event), comeback=comeback, **_fields(kept.course, Course))


def write_page(walk: Walk) -> bytes:
    """Return the content of a walk's file."""
    comeback = None if walk.comeback is None else _kept(walk.comeback)
    course = Course(**_fields(walk, Course))
    kept = msgspec.json.encode(KeptWalk(event=_kept(walk.event), comeback=comeback, course=course))
    return msgspec.json.encode(Page(format=FORMAT, sum=crc32(kept), walk=msgspec.Raw(kept)))


def _kept(event: Event) -> KeptEvent:
    return KeptEvent(**_fields(event, KeptEvent))


def _event(kept: KeptEvent) -> Event:
    return Event(
        **_fields(kept, KeptEvent)
        | {
            "status": STATUSES.get(kept.status, kept.status),
            "type": TYPES.get(kept.type, kept.type),
            "source": None if kept.source is None else SOURCES.get(kept.source, kept.source),
        }
    )


def _fields(value: msgspec.Struct, type_: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type_.__struct_fields__}


def file_name(id_: str) -> str:
    """Return the name under which a walk is kept, whatever the service calls its event."""
    if PLAIN_ID.fullmatch(id_):
        return id_
    return "sha256-" + hashlib.sha256(id_.encode(errors="surrogatepass")).hexdigest()


def _names_beside(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}.unreadable-{number}") for number in range(1, 1000))


def _words(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
