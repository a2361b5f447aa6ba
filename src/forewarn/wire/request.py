"""What a guest asks: the head of a request becomes one of four questions or a refusal, a POST's body becomes ids.

The checks are in the order of PROTOCOL §5, from the path on: who calls, and how often, is known to the endpoint only.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Literal, TypeAlias

import msgspec

from forewarn.core.text import is_guid, shortened
from forewarn.wire import answers
from forewarn.wire.answers import Refusal
from forewarn.wire.target import Target, read_target
from forewarn.wire.terms import BYTE_ORDER_MARK, LONGEST_WAIT
from forewarn.wire.versions import PREVIEW, VERSIONS

Format: TypeAlias = Literal["json", "text"]

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Head(msgspec.Struct, frozen=True):
    """A request without its body, as received; header names in any case, repeated ones repeated."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()

    def values(self, name: str) -> list[str]:
        """Return every value of a header; the name is given in lower case."""
        return [value.strip(" \t") for key, value in self.headers if key.lower() == name]


class Query(msgspec.Struct, frozen=True):
    """What events are there? `wait` is None where it has no effect."""

    version: str
    wait: int | None = None
    if_none_match: str | None = None


class Approve(msgspec.Struct, frozen=True):
    """Events may start; which ones, `start_requests` reads from the body."""

    version: str


class Instance(msgspec.Struct, frozen=True):
    """Who am I? The path leads into the instance document."""

    version: str
    path: tuple[str, ...] = ()
    format: Format = "json"


class Versions(msgspec.Struct, frozen=True):
    """Which api-versions are there?"""


Question: TypeAlias = Query | Approve | Instance | Versions


def route(head: Head, *, unsupported_version_status: int = 404) -> Question | Refusal:
    """Tell what a request asks for, or refuse it. Never raises, whatever the head holds."""
    target = read_target(head.target)
    match [segment.lower() for segment in target.path]:
        case ["metadata", "scheduledevents"]:
            return _refused(head, target, ("GET", "POST")) or _events(head, target, unsupported_version_status)
        case ["metadata", "instance", *_]:
            return _refused(head, target, ("GET",)) or _instance(target, unsupported_version_status)
        case ["metadata", "versions"]:
            return _refused(head, target, ("GET",)) or Versions()
        case _:
            return answers.UNKNOWN_PATH


def _refused(head: Head, target: Target, methods: tuple[str, ...]) -> Refusal | None:
    if head.method not in methods:
        return answers.method_not_allowed(head.method, methods)
    if head.values("x-forwarded-for"):
        return answers.FORWARDED
    if not (_has_metadata_header(head) or _needs_no_metadata_header(head, target)):
        return answers.NO_METADATA_HEADER
    return None


def _has_metadata_header(head: Head) -> bool:
    values = head.values("metadata")
    return bool(values) and all(value.lower() == "true" for value in values)


def _needs_no_metadata_header(head: Head, target: Target) -> bool:
    return head.method == "POST" and target.values("api-version") == (PREVIEW,)


def _events(head: Head, target: Target, unsupported_version_status: int) -> Query | Approve | Refusal:
    version = _version(target)
    if isinstance(version, Refusal):
        return version
    if version not in VERSIONS:
        return answers.version_unsupported(version, unsupported_version_status)
    return Approve(version) if head.method == "POST" else _query(head, target, version)


def _query(head: Head, target: Target, version: str) -> Query | Refusal:
    waits = target.values("wait")
    if waits and (len(waits) > 1 or not _is_wait(waits[0])):
        return answers.BAD_WAIT
    if_none_match = ", ".join(head.values("if-none-match")) or None
    wait = int(waits[0]) if waits and if_none_match is not None else None
    return Query(version, wait, if_none_match)


def _is_wait(text: str) -> bool:
    return len(text) <= 2 and text.isascii() and text.isdigit() and 1 <= int(text) <= LONGEST_WAIT


def _instance(target: Target, unsupported_version_status: int) -> Instance | Refusal:
    version = _version(target)
    if isinstance(version, Refusal):
        return version
    if not _is_instance_version(version):
        return answers.version_unsupported(version, unsupported_version_status)
    match [value.lower() for value in target.values("format")]:
        case [] | ["json"]:
            return Instance(version, target.path[2:], "json")
        case ["text"]:
            return Instance(version, target.path[2:], "text")
        case _:
            return answers.BAD_FORMAT


def _version(target: Target) -> str | Refusal:
    match target.values("api-version"):
        case () | ("",):
            return answers.VERSION_MISSING
        case (version,):
            return version
        case _:
            return answers.VERSION_TWICE


def _is_instance_version(version: str) -> bool:
    """Tell whether the version is a day since the preview. Instance metadata has many versions: all are taken."""
    if not _DAY.fullmatch(version) or version < PREVIEW:
        return False
    try:
        date.fromisoformat(version)
    except ValueError:
        return False
    return True


def start_requests(body: bytes) -> tuple[str, ...] | Refusal:
    """Read the ids of a POST, each once, in upper case. Everything in the body but the ids is ignored. Never raises."""
    try:
        asked = msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return answers.bad_body("the body is not JSON")
    if not isinstance(asked, dict):
        return answers.bad_body("the body is not a JSON object")
    if "StartRequests" not in asked:
        return answers.bad_body("the body has no StartRequests")
    entries = asked["StartRequests"]
    if not isinstance(entries, list):
        return answers.bad_body("StartRequests is not a list")
    return _event_ids(entries)


def _event_ids(entries: Iterable[object]) -> tuple[str, ...] | Refusal:
    ids: dict[str, None] = {}
    for entry in entries:
        id_ = entry.get("EventId") if isinstance(entry, dict) else None
        if not isinstance(id_, str):
            return answers.bad_body("an entry of StartRequests has no string EventId")
        if not is_guid(id_):
            return answers.bad_body(f"EventId {shortened(id_, answers.ECHO)} is not a GUID")
        ids[id_.upper()] = None
    return tuple(ids)
