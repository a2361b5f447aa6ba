"""Settings reload in the running service: applies new settings to the parts that support it."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from forewarn.api import local_service
from forewarn.compose.guests import GuestListeners
from forewarn.compose.operators import create_tls_context, load_certificate
from forewarn.compose.platforms import PlatformAdapters, create_policy
from forewarn.fleet.service import Fleet
from forewarn.settings.reload import SettingsChange, compare_settings, merge_reloadable
from forewarn.settings.schema import Settings

ReloadSettings = Callable[[Settings], Awaitable[SettingsChange]]
"""Take over what can be taken over of settings that were read again; tell what that was, and what was not."""


class SettingsReloader:
    """The parts of a running service that can take settings over."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        *,
        fleet: Fleet,
        adapters: PlatformAdapters,
        guests: GuestListeners,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._fleet = fleet
        self._adapters = adapters
        self._guests = guests
        self._tls = tls

    async def reload(self, new_settings: Settings) -> SettingsChange:
        """Take over what can be; a token or certificate that cannot be used is refused before anything has changed."""
        await adopt_token(self._fleet, self._directory, by="reload")
        changed = compare_settings(self._settings, new_settings)
        settings = merge_reloadable(self._settings, new_settings)
        if self._tls is not None:
            create_tls_context(settings.tls)
            load_certificate(self._tls, settings.tls)
        self._settings = settings
        self._fleet.use_policy(create_policy(settings))
        self._guests.server.set_request_rate(settings.guest.requests_per_second)
        self._adapters.reload(settings)
        return changed


async def adopt_token(fleet: Fleet, directory: Path, *, by: str) -> None:
    """Let the token in the data directory be an admin's, and make one where there is none."""
    await fleet.tokens.adopt(local_service.ensure_token(directory), by=by)
