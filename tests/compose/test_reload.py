"""Settings reload: what a running service takes over, and what is refused before anything has changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from forewarn.api import local_service
from forewarn.api.errors import InvalidToken
from forewarn.clock import ManualClock
from forewarn.compose.guests import GuestListeners
from forewarn.compose.operators import InvalidCertificate, create_tls_context
from forewarn.compose.platforms import HostSet, create_adapters
from forewarn.compose.reload import SettingsReloader, adopt_token
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import Limits
from forewarn.guest.server import GuestServer
from forewarn.settings.gates import Gate, GateSettings
from forewarn.settings.reload import SettingsChange
from forewarn.settings.schema import GuestSettings, PolicySettings, Settings, TlsSettings
from forewarn.settings.types import PlatformName
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import run_fleet


class Reloaded:
    """A service whose settings can be reloaded, but for its operator side."""

    def __init__(self, fleet: Fleet, settings: Settings, directory: Path) -> None:
        self.fleet = fleet
        self.server = GuestServer(fleet, limits=Limits(), unsupported_version_status=404)
        self.adapters = create_adapters(settings, ManualClock(TEN), HostSet(), directory)
        guests = GuestListeners(server=self.server, ports=None, networks={})
        tls = create_tls_context(settings.tls)
        self.reloader = SettingsReloader(
            settings, directory, fleet=fleet, adapters=self.adapters, guests=guests, tls=tls
        )


@asynccontextmanager
async def run_reloaded(directory: Path, settings: Settings | None = None) -> AsyncIterator[Reloaded]:
    async with run_fleet() as fleet:
        service = Reloaded(fleet, settings or Settings(), directory)
        try:
            yield service
        finally:
            await service.server.aclose()


CHANGED = Settings(
    platform=PlatformName.COMMAND,
    guest=GuestSettings(requests_per_second=9),
    policy=PolicySettings(idle_after=timedelta(hours=1)),
    gates=(Gate("web", GateSettings(url="http://h")),),
)


async def test_running_parts_take_over_what_they_can_and_the_rest_is_named(tmp_path: Path) -> None:
    async with run_reloaded(tmp_path) as service:
        changed = await service.reloader.reload(CHANGED)
        assert changed == SettingsChange(
            live=("gates", "guest.requests_per_second", "policy.idle_after"), after_restart=("platform",)
        )
        assert service.server._state.rate == 9
        assert service.fleet.scopes.policy.idle_after == timedelta(hours=1)
        assert service.adapters.gates.gates == ("web",)
        again = await service.reloader.reload(CHANGED)
        assert again == SettingsChange(live=(), after_restart=("platform",))


async def test_token_of_the_directory_is_an_admins_after_reload(tmp_path: Path) -> None:
    async with run_reloaded(tmp_path) as service:
        await service.reloader.reload(Settings())
        token = local_service.read_token(tmp_path / local_service.TOKEN_FILE)
        assert service.fleet.tokens.find(token) is not None
        await adopt_token(service.fleet, tmp_path, by="test")
        assert local_service.read_token(tmp_path / local_service.TOKEN_FILE) == token


async def test_token_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / local_service.TOKEN_FILE).write_text("short\n")
    async with run_reloaded(tmp_path) as service:
        with pytest.raises(InvalidToken):
            await service.reloader.reload(CHANGED)
        assert service.server._state.rate == Limits().requests_per_second
        assert service.adapters.gates.gates == ()


def certified(directory: Path) -> TlsSettings:
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(directory / "key.pem"))
    (directory / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return TlsSettings(certificate=directory / "cert.pem", key=directory / "key.pem")


async def test_certificate_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    tls = certified(tmp_path)
    running = Settings(tls=tls)
    async with run_reloaded(tmp_path, running) as service:
        (tmp_path / "cert.pem").write_text("nonsense")
        with pytest.raises(InvalidCertificate):
            await service.reloader.reload(Settings(tls=tls, guest=GuestSettings(requests_per_second=9)))
        assert service.server._state.rate == Limits().requests_per_second
        certified(tmp_path)
        changed = await service.reloader.reload(Settings(tls=tls, guest=GuestSettings(requests_per_second=9)))
        assert changed.live == ("guest.requests_per_second",)
