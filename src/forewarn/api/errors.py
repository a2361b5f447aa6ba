"""Errors of the API client, and hints for codes of the kind "not found".

ApiError
├── InvalidUrl             the given URL is not a URL of a service
├── ServiceUnreachable     no response from the URL
│   └── ConnectionClosed   the connection ended before the response was complete
├── CertificateError       the service's TLS certificate could not be verified
├── InvalidResponse        the response is not one of this API
├── ServiceNotFound        no URL given, and no service runs on this machine
├── DirectoryNotAllowed    no URL given, and the data directory belongs to another user
├── AmbiguousService       no URL given, and several services run on this machine
├── InvalidToken           the token file has no valid token, or cannot be read
└── RequestRefused         the service refused the request
    └── NotFound           the named object does not exist
"""

from collections.abc import Mapping
from pathlib import Path

from forewarn.core.base_error import BaseError


class ApiError(BaseError):
    """The request was not done."""


class InvalidUrl(ApiError):
    """The given URL is not a URL of a service."""

    template = "{url} is not a URL of a service: use a URL such as http://127.0.0.1:8170"
    url: str


class ServiceUnreachable(ApiError):
    """There is no response from the URL."""

    template = "cannot reach {url}: {why}"
    url: str
    why: str


class ConnectionClosed(ServiceUnreachable):
    """The connection ended before the response was complete: the request may or may not have been done."""

    why: str = "the connection ended before the response was complete; check whether the request was done"


class CertificateError(ApiError):
    """The service's TLS certificate could not be verified."""

    template = "{url} is not trusted: {why}; if its certificate is from your own authority, use --ca FILE"
    url: str
    why: str


class InvalidResponse(ApiError):
    """The response is not one of this API."""

    template = (
        "{url} does not respond as Forewarn's operator API: {why} "
        "(is this a VM's port? `forewarn up` prints the address of the operator API at its end)"
    )
    url: str
    why: str


class ServiceNotFound(ApiError):
    """No service was found on this machine."""

    template = (
        "{why}: start one with `forewarn up` (the emulator) or `forewarn serve` (for real VMs), or name one with --url "
        "or --data"
    )
    why: str


class DirectoryNotAllowed(ApiError):
    """The data directory belongs to another user."""

    template = "cannot read {path} ({why}): are you the user who started the service? Use sudo, or another --data"
    path: Path
    why: str


class AmbiguousService(ApiError):
    """Several services run on this machine. `services` describes each, by its data directory."""

    template = "several services run on this machine; choose one:{choices}"
    services: Mapping[str, str]

    @property
    def choices(self) -> str:
        """One line for each service."""
        return "".join(f"\n  --data {directory} ({text})" for directory, text in self.services.items())


class InvalidToken(ApiError):
    """The token file has no valid token, or cannot be read."""

    template = "no token in {path}: {why}"
    path: Path
    why: str


class RequestRefused(ApiError):
    """The service refused the request. `code` is stable; the message is the service's own sentence."""

    template = "{message}"
    status: int
    code: str
    message: str
    details: Mapping[str, object]


class NotFound(RequestRefused):
    """The named object does not exist."""


NOT_FOUND_HINTS = {
    "campaign-not-found": "; `forewarn campaign list --all` shows them",
    "event-not-found": "; `forewarn event list` shows those that are open, `forewarn journal` all",
    "host-not-found": "; `forewarn host list` shows them",
    "scope-not-found": "; `forewarn scope list` shows them",
    "token-not-found": "; `forewarn token list` shows them",
    "vm-not-found": "; `forewarn vm list` shows them",
}
"""What is added to the sentence of a refusal, by its code."""
