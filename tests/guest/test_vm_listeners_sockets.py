"""The Unix socket of a VM: opened once, kept at its path, and reopened by the next service."""

import os
from pathlib import Path

from forewarn.guest.vm_listeners import VmSocketListeners
from tests.guest.running_endpoint import RunningEndpoint, run_endpoint

NAME = "/metadata/instance/compute/name?api-version=2020-09-01&format=text"


def _sockets(endpoint: RunningEndpoint, directory: Path) -> VmSocketListeners:
    return VmSocketListeners(endpoint.fleet.replica, endpoint.server, directory)


async def _name(endpoint: RunningEndpoint, path: Path) -> bytes:
    return (await (await endpoint.connect_unix(str(path))).get(target=NAME)).body


async def test_socket_is_opened_on_demand_for_its_owner_only(tmp_path: Path) -> None:
    async with run_endpoint() as endpoint:
        sockets = _sockets(endpoint, tmp_path / "sockets")
        await sockets.reopen()
        assert not (tmp_path / "sockets").exists()
        path = await sockets.open("web/web-1")
        assert await sockets.open("web/web-1") == path
        assert [oct(file.stat().st_mode & 0o777) for file in (path.parent, path)] == ["0o700", "0o600"]
        assert await _name(endpoint, path) == b"web-1"


async def test_next_service_reopens_the_sockets_of_its_vms_only(tmp_path: Path) -> None:
    async with run_endpoint() as endpoint:
        sockets = _sockets(endpoint, tmp_path)
        path = await sockets.open("web/web-1")
        (await sockets.open("web/web-0")).rename(tmp_path / "of-nobody.sock")
    async with run_endpoint() as endpoint:
        await _sockets(endpoint, tmp_path).reopen()
        assert os.listdir(tmp_path) == [path.name]
        assert await _name(endpoint, path) == b"web-1"


async def test_symlink_instead_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.sock").touch()
    (tmp_path / "sockets").symlink_to(elsewhere)
    async with run_endpoint() as endpoint:
        sockets = _sockets(endpoint, tmp_path / "sockets")
        await sockets.reopen()
        assert (await sockets.open("web/web-0")).is_socket()
    assert [file.name for file in elsewhere.iterdir()] == ["precious.sock"]
