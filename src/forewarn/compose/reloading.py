"""Taking settings over while the service runs."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from forewarn.api import local
from forewarn.compose.guests import Guests
from forewarn.compose.operators import load_certificate, tls_context
from forewarn.compose.platforms import Outside
from forewarn.compose.policy import policy
from forewarn.fleet.service import Fleet
from forewarn.settings import Changed, Settings, compare, taken_over

Reload = Callable[[Settings], Awaitable[Changed]]
"""Take over what can be taken over of settings that were read again; tell what that was, and what was not."""


class Reloading:
    """The parts of a running service that can take settings over."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        *,
        fleet: Fleet,
        outside: Outside,
        guests: Guests,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._fleet = fleet
        self._outside = outside
        self._guests = guests
        self._tls = tls

    async def take(self, read: Settings) -> Changed:
        """Take over what can be; a token or certificate that cannot be used is refused before anything has changed."""
        await adopt_token(self._fleet, self._directory, by="reload")
        changed = compare(self._settings, read)
        settings = taken_over(self._settings, read)
        if self._tls is not None:
            tls_context(settings.tls)
            load_certificate(self._tls, settings.tls)
        self._settings = settings
        self._fleet.use_policy(policy(settings))
        self._guests.server.limit_requests(settings.guest.requests_per_second)
        self._outside.take(settings)
        return changed


async def adopt_token(fleet: Fleet, directory: Path, *, by: str) -> None:
    """Let the token in the data directory be an admin's, and make one where there is none."""
    await fleet.tokens.adopt(local.ensure_token(directory), by=by)
