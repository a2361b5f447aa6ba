"""Why a request to the service brought no answer, or a refusal.

ApiError
├── NoUrl           what was given as URL is none
├── CannotReach     nobody answers at the URL
│   └── LostAnswer  the connection ended before the answer had come
├── NotTrusted      the service's certificate is not one to trust
├── NotForewarn     somebody answers, but not as this API does
├── NoService       no URL was given, and no running service was found on this machine
├── NotAllowed      no URL was given, and the data directory belongs to another user
├── SeveralServices no URL was given, and more than one service runs on this machine
├── UnusableToken   the token file is there, but it has no token, or may not be read
└── Refusal         the service said no
    └── NotFound    what was named does not exist
"""

from collections.abc import Mapping
from pathlib import Path


class ApiError(Exception):
    """The request was not done."""


class NoUrl(ApiError):
    """What was given as URL is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is no URL of a service: write it like http://127.0.0.1:8170")


class CannotReach(ApiError):
    """Nobody answers at the URL."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"cannot reach {url}: {why}")


class LostAnswer(CannotReach):
    """The connection ended before the answer had come: what was asked may or may not have been done."""

    def __init__(self, url: str, advice: str = "look whether it was done") -> None:
        super().__init__(url, f"the connection ended before the answer had come; {advice}")


class NotTrusted(ApiError):
    """The service's certificate is not one to trust."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(
            f"{url} is not trusted: {why}; if its certificate is from an authority of your own, say so with --ca FILE"
        )


class NotForewarn(ApiError):
    """Somebody answers at the URL, but not as this API does."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(
            f"{url} does not answer as Forewarn's operator API: {why} "
            "(is this a VM's port? `forewarn up` says at its end where operators are served)"
        )


class NoService(ApiError):
    """No service was found on this machine."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"{why}: start one with `forewarn up` (the emulator) or `forewarn serve` (for real VMs), or say where it "
            "is with --url or --data"
        )


class NotAllowed(ApiError):
    """The data directory belongs to another user."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(
            f"cannot read {path} ({why}): are you the user who started the service? Use sudo, or another --data"
        )


class SeveralServices(ApiError):
    """More than one service was found on this machine. `services` tells of each, by its data directory."""

    def __init__(self, services: Mapping[str, str]) -> None:
        self.services = services
        each = "".join(f"\n  --data {directory} ({told})" for directory, told in services.items())
        super().__init__(f"several services run here, say which:{each}")


class UnusableToken(ApiError):
    """The token file is there, but it has no token, or may not be read."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"no token in {path}: {why}")


class Refusal(ApiError):
    """The service said no. `code` is stable; the message is the service's own sentence."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, object]) -> None:
        self.status, self.code, self.details = status, code, details
        super().__init__(message)


class NotFound(Refusal):
    """What was named does not exist."""
