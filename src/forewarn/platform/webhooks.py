"""Webhook notifier: POSTs each notification about a campaign as JSON to every URL, HMAC-signed if a secret is set."""

import asyncio
import hmac
from hashlib import sha256
from pathlib import Path

import msgspec

from forewarn import __version__
from forewarn.http_client import HttpRequest, RequestFailed, send_request
from forewarn.platform.port import NotificationFailed, NotificationMessage
from forewarn.settings.schema import CampaignSettings

SIGNATURE = "Forewarn-Signature"
DELIVERY = "Forewarn-Delivery"
MAX_TRACKED = 10_000
"""For how many messages the receivers that have them are remembered, so that retries do not repeat deliveries."""

MAX_SECRET_BYTES = 65_536

_encode = msgspec.json.Encoder(order="deterministic").encode


class WebhookNotifier:
    """Sends notifications to every URL of the settings. A message is delivered when all of them have accepted it."""

    def __init__(self, settings: CampaignSettings) -> None:
        self._settings = settings
        self._delivered: dict[str, set[str]] = {}

    @property
    def has_receivers(self) -> bool:
        """Whether there are receivers."""
        return bool(self._settings.webhooks)

    def reload(self, settings: CampaignSettings) -> None:
        """Apply new settings."""
        self._settings = settings

    async def notify(self, message: NotificationMessage) -> None:
        """POST once to every URL that has not accepted it yet; NotificationFailed names those that did not."""
        delivered = self._delivered.setdefault(message.id, set())
        pending = [url for url in self._settings.webhooks if url not in delivered]
        body = encode_body(message)
        try:
            headers = {"Content-Type": "application/json", DELIVERY: message.id, **self._signature(body)}
        except (OSError, ValueError) as error:
            raise NotificationFailed(f"campaigns.webhook_secret_file cannot be used: {error}") from error
        problems = await asyncio.gather(*(self._deliver(url, headers, body) for url in pending))
        delivered.update(url for url, problem in zip(pending, problems, strict=True) if problem is None)
        if failed := [problem for problem in problems if problem is not None]:
            self._trim_delivered()
            raise NotificationFailed("; ".join(failed))
        self._delivered.pop(message.id, None)

    async def _deliver(self, url: str, headers: dict[str, str], body: bytes) -> str | None:
        request = HttpRequest("POST", url, headers, body)
        try:
            status = (await send_request(request, time_limit=self._settings.webhook_timeout)).status
        except RequestFailed as error:
            return str(error)
        return None if 200 <= status < 300 else f"{request.origin} returned {status}"

    def _signature(self, body: bytes) -> dict[str, str]:
        path = self._settings.webhook_secret_file
        return {} if path is None else {SIGNATURE: sign(_read_secret(path), body)}

    def _trim_delivered(self) -> None:
        while len(self._delivered) > MAX_TRACKED:
            del self._delivered[next(iter(self._delivered))]


def encode_body(message: NotificationMessage) -> bytes:
    """Encode a message as the body of a webhook."""
    return _encode({"version": 1, "from": f"forewarn/{__version__}", **msgspec.structs.asdict(message)})


def sign(secret: str, body: bytes) -> str:
    """Return the signature of a body, by which receivers with the secret can verify the sender."""
    return f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}"


def _read_secret(path: Path) -> str:
    """Read the secret again for each message: it may be changed while the service runs."""
    with path.open(encoding="utf-8") as file:
        secret = file.read(MAX_SECRET_BYTES).strip()
    if not secret or "\n" in secret:
        raise ValueError(f"{path} must have exactly one line with a secret")
    return secret
