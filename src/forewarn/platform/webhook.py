"""Telling others of campaigns: a POST of JSON to each URL, signed where there is a secret."""

import asyncio
import hmac
from hashlib import sha256
from pathlib import Path

import msgspec

from forewarn import __version__
from forewarn.platform.asking import NoAnswer, Request, status_of
from forewarn.platform.port import Message, Undelivered
from forewarn.settings import CampaignSettings

SIGNATURE = "Forewarn-Signature"
DELIVERY = "Forewarn-Delivery"
REMEMBERED = 10_000
"""Of how many messages it is remembered who has them, so that one who does not answer has others told but once."""

LARGEST_SECRET = 65_536

_encode = msgspec.json.Encoder(order="deterministic").encode


class Webhooks:
    """Tells every URL of the settings. A message counts as delivered when all of them have taken it."""

    def __init__(self, settings: CampaignSettings) -> None:
        self._settings = settings
        self._told: dict[str, set[str]] = {}

    @property
    def listens(self) -> bool:
        """Whether anybody is to be told."""
        return bool(self._settings.webhooks)

    def take(self, settings: CampaignSettings) -> None:
        """Go on with other settings."""
        self._settings = settings

    async def tell(self, message: Message) -> None:
        """Tell everybody who has not been told yet, once; Undelivered says who did not take it."""
        told = self._told.setdefault(message.id, set())
        waiting = [url for url in self._settings.webhooks if url not in told]
        body = body_of(message)
        try:
            headers = {"Content-Type": "application/json", DELIVERY: message.id, **self._signature(body)}
        except (OSError, ValueError) as error:
            raise Undelivered(f"campaigns.webhook_secret_file cannot be used: {error}") from error
        problems = await asyncio.gather(*(self._told_one(url, headers, body) for url in waiting))
        told.update(url for url, problem in zip(waiting, problems, strict=True) if problem is None)
        if failed := [problem for problem in problems if problem is not None]:
            self._forget_some()
            raise Undelivered("; ".join(failed))
        self._told.pop(message.id, None)

    async def _told_one(self, url: str, headers: dict[str, str], body: bytes) -> str | None:
        request = Request("POST", url, headers, body)
        try:
            status = await status_of(request, self._settings.webhook_timeout)
        except NoAnswer as error:
            return str(error)
        return None if 200 <= status < 300 else f"{request.place} answers {status}"

    def _signature(self, body: bytes) -> dict[str, str]:
        path = self._settings.webhook_secret_file
        return {} if path is None else {SIGNATURE: signature(_secret(path), body)}

    def _forget_some(self) -> None:
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]


def body_of(message: Message) -> bytes:
    """Write a message as those who are told get it."""
    return _encode({"version": 1, "from": f"forewarn/{__version__}", **msgspec.structs.asdict(message)})


def signature(secret: str, body: bytes) -> str:
    """Return what a body is signed with: whoever has the secret can tell that the message is ours."""
    return f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}"


def _secret(path: Path) -> str:
    """Read the secret anew each time: it may be changed while the service runs."""
    with path.open(encoding="utf-8") as file:
        secret = file.read(LARGEST_SECRET).strip()
    if not secret or "\n" in secret:
        raise ValueError(f"{path} has not one line with a secret")
    return secret
