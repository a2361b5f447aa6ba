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


class ApiError(Exception):
    """The request was not done."""


class InvalidUrl(ApiError):
    """What was given as URL is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is no URL of a service: write it like http://127.0.0.1:8170")


class ServiceUnreachable(ApiError):
    """Nobody answers at the URL."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"cannot reach {url}: {why}")


class ConnectionClosed(ServiceUnreachable):
    """The connection ended before the answer had come: what was asked may or may not have been done."""

    def __init__(self, url: str, advice: str = "look whether it was done") -> None:
        super().__init__(url, f"the connection ended before the answer had come; {advice}")


class CertificateError(ApiError):
    """The service's certificate is not one to trust."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(
            f"{url} is not trusted: {why}; if its certificate is from an authority of your own, say so with --ca FILE"
        )


class InvalidResponse(ApiError):
    """Somebody answers at the URL, but not as this API does."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(
            f"{url} does not answer as Forewarn's operator API: {why} "
            "(is this a VM's port? `forewarn up` says at its end where operators are served)"
        )


class ServiceNotFound(ApiError):
    """No service was found on this machine."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"{why}: start one with `forewarn up` (the emulator) or `forewarn serve` (for real VMs), or say where it "
            "is with --url or --data"
        )


class DirectoryNotAllowed(ApiError):
    """The data directory belongs to another user."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(
            f"cannot read {path} ({why}): are you the user who started the service? Use sudo, or another --data"
        )


class AmbiguousService(ApiError):
    """More than one service was found on this machine. `services` tells of each, by its data directory."""

    def __init__(self, services: Mapping[str, str]) -> None:
        self.services = services
        each = "".join(f"\n  --data {directory} ({told})" for directory, told in services.items())
        super().__init__(f"several services run here, say which:{each}")


class InvalidToken(ApiError):
    """The token file is there, but it has no token, or may not be read."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"no token in {path}: {why}")


class RequestRefused(ApiError):
    """The service said no. `code` is stable; the message is the service's own sentence."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, object]) -> None:
        self.status, self.code, self.details = status, code, details
        super().__init__(message)


class NotFound(RequestRefused):
    """What was named does not exist."""


NOT_FOUND_HINTS = {
    "campaign-not-found": "; `forewarn campaign list --all` shows them",
    "event-not-found": "; `forewarn event list` shows those that are open, `forewarn journal` all",
    "host-not-found": "; `forewarn host list` shows them",
    "scope-not-found": "; `forewarn scope list` shows them",
    "token-not-found": "; `forewarn token list` shows them",
    "vm-not-found": "; `forewarn vm list` shows them",
}
"""What is added to the sentence of a refusal, by its code."""
