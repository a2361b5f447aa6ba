"""Parse and route guest requests: a request head becomes one of four typed requests, or an error response.

The checks are in the order of PROTOCOL §5, from the path on; the endpoint has already checked the caller and its rate.
No request raises.
"""

import re
from collections.abc import Sequence
from datetime import date
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import unquote, unquote_plus

import msgspec

from forewarn.wire import error_responses
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.protocol import MAX_WAIT, NEWEST_INSTANCE_VERSIONS, PREVIEW_VERSION, VERSIONS

SCHEME = "http://"


class RequestTarget(NamedTuple):
    """The decoded path segments, and the decoded query pairs with lower-case names."""

    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]

    def values(self, name: str) -> tuple[str, ...]:
        """Return all values of a query parameter."""
        return tuple(value for key, value in self.query if key == name)


INVALID_TARGET = RequestTarget((), ())


def parse_target(target: str) -> RequestTarget:
    """Parse a request target.

    Segments are decoded after splitting, so an encoded slash stays within its segment; `.` and `..` have no special
    meaning. One trailing slash is ignored.
    """
    path, _, query = _without_origin(target).partition("?")
    if not path.startswith("/"):
        return INVALID_TARGET
    segments = path.removesuffix("/").split("/")[1:]
    return RequestTarget(tuple(unquote(segment) for segment in segments), tuple(_pairs(query)))


def _without_origin(target: str) -> str:
    """Remove the scheme and host that clients send to a proxy; the host is ignored."""
    if target[: len(SCHEME)].lower() != SCHEME:
        return target
    rest = target[len(SCHEME) :]
    authority = rest.partition("?")[0].partition("/")[0]
    return rest.removeprefix(authority)


def _pairs(query: str) -> list[tuple[str, str]]:
    parted = (pair.partition("=") for pair in query.split("&") if pair)
    return [(unquote_plus(name).lower(), unquote_plus(value)) for name, _, value in parted]


UNAVAILABLE_ROOTS = {
    "attested": error_responses.NO_ATTESTATION,
    "loadbalancer": error_responses.NO_LOAD_BALANCER,
    "reprovisiondata": error_responses.NO_REPROVISION_DATA,
    "thim": error_responses.NO_HARDWARE_CERTIFICATE,
}
"""Roots of Azure's metadata that a VM can be without, and the response in that case."""

Format: TypeAlias = Literal["json", "text"]

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class RequestHead(msgspec.Struct, frozen=True):
    """A request without its body, as received; header names in any case, repeated headers repeated."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()

    def values(self, name: str) -> list[str]:
        """Return all values of a header; the name is given in lower case."""
        return [value.strip(" \t") for key, value in self.headers if key.lower() == name]


class DocumentRequest(msgspec.Struct, frozen=True):
    """A request for the events of a scope. `wait` is None where it has no effect."""

    version: str
    wait: int | None = None
    if_none_match: str | None = None


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A request to approve events; `parse_approval` reads their ids from the body."""

    version: str


class InstanceRequest(msgspec.Struct, frozen=True):
    """A request for instance metadata. The path leads into the instance document."""

    version: str
    path: tuple[str, ...] = ()
    format: Format = "json"


class VersionsRequest(msgspec.Struct, frozen=True):
    """A request for the supported api-versions."""


GuestRequest: TypeAlias = DocumentRequest | ApprovalRequest | InstanceRequest | VersionsRequest


def route(
    head: RequestHead, *, unsupported_version_status: int = 404, versions: tuple[str, ...] = VERSIONS
) -> GuestRequest | ErrorResponse:
    """Return the typed request, or an error response. Never raises, whatever the head contains."""
    target = parse_target(head.target)
    match [segment.lower() for segment in target.path]:
        case ["metadata", "scheduledevents"]:
            return _check_head(head, target, ("GET", "POST")) or _events_request(
                head, target, unsupported_version_status, versions
            )
        case ["metadata", "instance", *_]:
            return _check_head(head, target, ("GET",)) or _instance_request(target)
        case ["metadata", "versions"]:
            return _check_head(head, target, ("GET",)) or VersionsRequest()
        case ["metadata", "identity", *_]:
            return _check_head(head, target, ("GET",)) or error_responses.IDENTITY_NOT_FOUND
        case ["metadata", root, *_] if root in UNAVAILABLE_ROOTS:
            version = _check_head(head, target, ("GET",)) or _version(target)
            return version if isinstance(version, ErrorResponse) else UNAVAILABLE_ROOTS[root]
        case _:
            return error_responses.PATH_NOT_FOUND


def _check_head(head: RequestHead, target: RequestTarget, methods: tuple[str, ...]) -> ErrorResponse | None:
    if head.method not in methods:
        return error_responses.method_not_allowed(head.method, methods)
    if head.values("x-forwarded-for"):
        return error_responses.FORWARDED
    if not (_has_metadata_header(head) or _needs_no_metadata_header(head, target)):
        return error_responses.METADATA_HEADER_MISSING
    return None


def _has_metadata_header(head: RequestHead) -> bool:
    values = head.values("metadata")
    return bool(values) and all(value.lower() == "true" for value in values)


def _needs_no_metadata_header(head: RequestHead, target: RequestTarget) -> bool:
    return head.method == "POST" and target.values("api-version") == (PREVIEW_VERSION,)


def _events_request(
    head: RequestHead, target: RequestTarget, unsupported_version_status: int, versions: tuple[str, ...]
) -> DocumentRequest | ApprovalRequest | ErrorResponse:
    version = _version(target)
    if isinstance(version, ErrorResponse):
        return version
    if version not in versions:
        return error_responses.version_unsupported(version, unsupported_version_status)
    return ApprovalRequest(version) if head.method == "POST" else _document_request(head, target, version)


def _document_request(head: RequestHead, target: RequestTarget, version: str) -> DocumentRequest | ErrorResponse:
    waits = target.values("wait")
    if waits and (len(waits) > 1 or not _is_wait(waits[0])):
        return error_responses.INVALID_WAIT
    if_none_match = ", ".join(head.values("if-none-match")) or None
    wait = int(waits[0]) if waits and if_none_match is not None else None
    return DocumentRequest(version, wait, if_none_match)


def _is_wait(text: str) -> bool:
    return len(text) <= 2 and text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_WAIT


def _instance_request(target: RequestTarget) -> InstanceRequest | ErrorResponse:
    version = _version(target)
    if isinstance(version, ErrorResponse):
        return version
    if not _is_instance_version(version):
        return error_responses.instance_version_unsupported(version)
    match [value.lower() for value in target.values("format")]:
        case [] | ["json"]:
            return InstanceRequest(version, target.path[2:], "json")
        case ["text"]:
            return InstanceRequest(version, target.path[2:], "text")
        case _:
            return error_responses.INVALID_FORMAT


def _version(target: RequestTarget) -> str | ErrorResponse:
    match target.values("api-version"):
        case () | ("",):
            return error_responses.VERSION_MISSING
        case (version,):
            return version
        case _:
            return error_responses.VERSION_REPEATED


def _is_instance_version(version: str) -> bool:
    """Return whether the version is a date from the preview to the newest known version.

    Azure has no version for most of these dates. A client that made one up gets the document of that day.
    """
    if not _DAY.fullmatch(version) or not PREVIEW_VERSION <= version <= NEWEST_INSTANCE_VERSIONS[0]:
        return False
    try:
        date.fromisoformat(version)
    except ValueError:
        return False
    return True
