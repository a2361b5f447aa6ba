"""Errors of the API client, and hints for "not found" codes.

ApiError
├── InvalidUrl             the given URL is not a URL of a service
├── ServiceUnreachable     no response from the URL
│   └── ConnectionClosed   the connection ended before the response was complete
├── CertificateError       the service's TLS certificate could not be verified
│   └── CertificateMismatch  the certificate is valid for other names
├── InvalidResponse        the response is not one of this API
├── ServiceNotFound        no URL given, and no service runs on this machine
├── DirectoryNotAllowed    no URL given, and the data directory belongs to another user
├── AmbiguousService       no URL given, and several services run on this machine
├── CellNotChosen          the request concerns one cell, and the file of cells lists several
├── CellNotFound           the file of cells does not list the named cell
├── InvalidCells           the file of cells cannot be read
├── InvalidToken           the token file has no valid token, or cannot be read
└── RequestRefused         the service refused the request
    └── NotFound           the named object does not exist
"""

from collections.abc import Mapping
from pathlib import Path

from forewarn.core.base_error import BaseError


class ApiError(BaseError):
    """The request failed."""


class InvalidUrl(ApiError):
    """The given URL is not a URL of a service."""

    template = "{url} is not the URL of a service; use a URL such as http://127.0.0.1:8170"
    url: str


class ServiceUnreachable(ApiError):
    """There is no response from the URL."""

    template = "cannot reach {url}: {why}"
    url: str
    why: str


class ConnectionClosed(ServiceUnreachable):
    """The connection ended before the response was complete: the request may or may not have been processed."""

    why: str = "the connection ended before the response was complete; check whether the request was processed"


class CertificateError(ApiError):
    """The service's TLS certificate could not be verified."""

    template = "{url} is not trusted: {why}; if it was signed by your own CA, use --ca FILE"
    url: str
    why: str


class CertificateMismatch(CertificateError):
    """The service's TLS certificate is valid, but for other names than the one in the URL."""

    template = (
        "{url} is not trusted: its certificate is not valid for {host}, only for {names}; use one of these names "
        "in the URL, as in --url {example}, or give the service a certificate for {host}"
    )
    host: str
    names: str
    example: str


class InvalidResponse(ApiError):
    """The response is not one of this API."""

    template = (
        "{url} does not respond as Forewarn's operator API: {why} "
        "(is this a VM's port? `forewarn up` prints the URL of the operator API)"
    )
    url: str
    why: str


class ServiceNotFound(ApiError):
    """No service was found on this machine."""

    template = (
        "{why}; start one with `forewarn up` (the emulator) or `forewarn serve` (for real VMs), or specify one with "
        "--url or --data"
    )
    why: str


class DirectoryNotAllowed(ApiError):
    """The data directory belongs to another user."""

    template = "cannot read {path} ({why}); run the command as the user who started the service, or use another --data"
    path: Path
    why: str


class AmbiguousService(ApiError):
    """Several services run on this machine. `services` describes each, by its data directory."""

    template = "several services run on this machine; choose one: {choices}"
    services: Mapping[str, str]

    @property
    def choices(self) -> str:
        """The option for each service. On one line: a command escapes line breaks in its messages."""
        return " or ".join(f"--data {directory} ({text})" for directory, text in self.services.items())


class CellNotChosen(ApiError):
    """The request concerns one cell, and the file of cells lists several."""

    template = "this concerns one cell: choose it with --cell ({cells})"
    cells: tuple[str, ...]


class CellNotFound(ApiError):
    """The file of cells does not list the named cell."""

    template = "{file} has no cell {cell}; it has {cells}"
    cell: str
    file: Path
    cells: tuple[str, ...]


class InvalidCells(ApiError):
    """The file of cells cannot be read; the reason names the file, the line and the cell."""

    template = "{reason}"
    reason: str


class InvalidToken(ApiError):
    """The token file has no valid token, or cannot be read."""

    template = "no token in {path}: {why}"
    path: Path
    why: str


class RequestRefused(ApiError):
    """The service refused the request. `code` is stable; `message` is the service's text."""

    template = "{message}"
    status: int
    code: str
    message: str
    details: Mapping[str, object]


class NotFound(RequestRefused):
    """The named object does not exist."""


NOT_FOUND_HINTS = {
    "campaign-not-found": "; `forewarn campaign list --all` shows them",
    "event-not-found": "; `forewarn event list` shows open events, `forewarn journal` all",
    "host-not-found": "; `forewarn host list` shows them",
    "scope-not-found": "; `forewarn scope list` shows them",
    "token-not-found": "; `forewarn token list` shows them",
    "vm-not-found": "; `forewarn vm list` shows them",
}
"""Hints that are appended to the message of a refusal, by its code."""
