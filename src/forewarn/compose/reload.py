"""Settings reload in the running service: applies new settings to the parts that support it."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from forewarn.api import local_service
from forewarn.compose.guests import GuestListeners
from forewarn.compose.operators import create_tls_context, load_certificate
from forewarn.compose.platforms import PlatformAdapters, create_policy
from forewarn.compose.remote_guests import RemoteGuests
from forewarn.fleet.service import Fleet
from forewarn.settings.reload import SettingsChange, compare_settings, merge_reloadable
from forewarn.settings.schema import Settings
from forewarn.settings.types import RoleName

ReloadSettings = Callable[[Settings], Awaitable[SettingsChange]]
"""Applies reloadable settings; returns which were applied and which need a restart."""


class SettingsReloader:
    """The parts of a running service that support a reload."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        *,
        fleet: Fleet,
        adapters: PlatformAdapters,
        guests: GuestListeners | RemoteGuests,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._fleet = fleet
        self._adapters = adapters
        self._guests = guests
        self._tls = tls

    async def reload(self, new_settings: Settings) -> SettingsChange:
        """Apply reloadable settings; an invalid token or certificate is refused before anything has changed."""
        if self._settings.role is RoleName.SINGLE:
            await adopt_token(self._fleet, self._directory, by="reload")
        changed = compare_settings(self._settings, new_settings)
        settings = merge_reloadable(self._settings, new_settings)
        if self._tls is not None:
            create_tls_context(settings.tls)
            load_certificate(self._tls, settings.tls)
        self._settings = settings
        self._fleet.use_policy(create_policy(settings))
        if isinstance(self._guests, GuestListeners):
            self._guests.server.set_request_rate(settings.guest.requests_per_second)
        self._adapters.reload(settings)
        return changed


async def adopt_token(fleet: Fleet, directory: Path, *, by: str) -> None:
    """Register the token file of the data directory as an admin token; create the file if it is missing."""
    await fleet.tokens.adopt(local_service.ensure_token(directory), by=by)
