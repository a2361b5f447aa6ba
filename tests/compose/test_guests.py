"""Guest listeners: where VMs find their endpoint, and what keeps them from being served."""

import socket
from pathlib import Path

import pytest

from forewarn.compose.guests import GuestListeners, serve_guests
from forewarn.guest.counters import Counters
from forewarn.guest.faults import Faults
from forewarn.guest.limits import Limits
from forewarn.guest.server import GuestServer
from forewarn.guest.vm_listeners import ListenFailed
from forewarn.settings.schema import GuestSettings, Settings
from forewarn.settings.types import GuestInterface, ListenAddress
from forewarn.store.memory import MemoryStore
from tests.compose.reporters import RecordingReporter
from tests.core.sample_scopes import scope, vm
from tests.fleet.fleets import run_fleet

WEB = scope("web", vm("web-0", ip="10.0.0.1"), vm("web-1", ip="10.0.0.2", network="blue"), vm("web-2"))
PORTS = Settings(listen=ListenAddress("127.0.0.1", 0))


async def test_each_vm_has_a_url_where_ports_are_listened_on() -> None:
    reporter = RecordingReporter()
    async with run_fleet(WEB) as fleet, serve_guests(PORTS, fleet, reporter, operator_port=1) as guests:
        urls = [guests.url("web", each) for each in WEB.roster]
        assert urls == [f"http://127.0.0.1:{fleet.ports.assigned[f'web/{each.name}']}" for each in WEB.roster]
        assert (guests.link_local_url, guests.problem(), reporter.sentences) == (None, None, [])
        assert isinstance(guests.counters, Counters)


async def test_service_without_a_listener_says_that_no_vm_can_ask() -> None:
    reporter = RecordingReporter()
    async with run_fleet(WEB) as fleet, serve_guests(Settings(), fleet, reporter, operator_port=1) as guests:
        assert [guests.url("web", each) for each in WEB.roster] == [None, None, None]
    (sentence,) = reporter.sentences
    assert "listen_link_local" in sentence


async def test_vms_of_a_network_share_the_link_local_url() -> None:
    async with run_fleet(WEB) as fleet:
        guests = GuestListeners(server=a_server(fleet), ports=None, networks={"blue": "br0"})
        urls = {each.name: guests.url("web", each) for each in WEB.roster}
    assert urls == {"web-0": None, "web-1": "http://169.254.169.254", "web-2": None}


async def test_response_of_a_vm_at_the_port_of_all_vms_is_previewed() -> None:
    shared = Settings(listen_shared=ListenAddress("127.0.0.1", 0))
    async with (
        run_fleet(WEB) as fleet,
        serve_guests(shared, fleet, RecordingReporter(), operator_port=1) as guests,
    ):
        previews = [guests.preview("web", each) for each in WEB.roster]
        urls = [guests.url("web", each) for each in WEB.roster]
    assert urls == [f"{guests.shared_url}/vm/{each.name}" for each in WEB.roster]
    assert [None if preview is None else preview.status for preview in previews] == [200, 200, 200]


def a_server(fleet: object) -> GuestServer:
    return GuestServer(fleet, limits=Limits(), unsupported_version_status=404)  # type: ignore[arg-type]  # a fleet


async def test_vms_keep_their_ports_and_another_first_port_is_pointed_out() -> None:
    reporter = RecordingReporter()
    async with run_fleet(WEB) as fleet:
        async with serve_guests(PORTS, fleet, reporter, operator_port=1):
            first = min(fleet.ports.assigned.values())
        other = Settings(listen=ListenAddress("127.0.0.1", first + 1))
        async with serve_guests(other, fleet, reporter, operator_port=1):
            assert min(fleet.ports.assigned.values()) == first
    (sentence,) = reporter.sentences
    assert str(first) in sentence


async def test_busy_port_of_one_vm_is_shown_and_the_service_is_ready() -> None:
    store = MemoryStore()
    async with run_fleet(WEB, store=store) as fleet, serve_guests(PORTS, fleet, RecordingReporter(), operator_port=1):
        kept = fleet.ports.assigned["web/web-1"]
    with socket.create_server(("127.0.0.1", kept)):
        async with (
            run_fleet(store=store) as fleet,
            serve_guests(PORTS, fleet, RecordingReporter(), operator_port=1) as guests,
        ):
            assert (await fleet.health.problems(), fleet.health.limitations()) == ((), (guests.limitation(),))
            assert "1 guest port cannot be opened" in (guests.limitation() or "")
            assert "web-1" not in (guests.limitation() or ""), "anyone may read it"
            problems = {each.name: guests.port_problem("web", each) for each in WEB.roster}
            assert [name for name, problem in problems.items() if problem] == ["web-1"]
            assert f"cannot listen on 127.0.0.1:{kept}" in (problems["web-1"] or "")


async def test_endpoint_that_has_stopped_is_a_problem_of_the_service() -> None:
    async with run_fleet(WEB) as fleet, serve_guests(PORTS, fleet, RecordingReporter(), operator_port=1) as guests:
        assert await fleet.health.problems() == ()
        for listener in guests.server._listeners.values():
            listener.close()
        assert await fleet.health.problems() == (guests.problem(),)


async def test_settings_of_the_endpoint_are_those_of_the_service(tmp_path: Path) -> None:
    settings = Settings(guest=GuestSettings(requests_per_second=7))
    async with run_fleet(WEB) as fleet:
        faults = Faults(fleet)
        async with serve_guests(
            settings, fleet, RecordingReporter(), operator_port=1, faults=faults, socket_directory=tmp_path
        ) as guests:
            assert (guests.server._state.rate, guests.faults, guests.sockets is None) == (7, faults, False)


async def test_link_local_address_that_cannot_be_listened_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anywhere:
        def __init__(self, interface: str) -> None: ...

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr("forewarn.compose.guests.link_local_address", Anywhere)
    settings = Settings(listen_link_local=(GuestInterface("no-such-interface", "blue"),))
    async with run_fleet(WEB) as fleet:
        with pytest.raises(ListenFailed) as refused:
            async with serve_guests(settings, fleet, RecordingReporter(), operator_port=1):
                raise AssertionError("it listens")
    assert (refused.value.host, refused.value.port) == ("169.254.169.254", 80)
    assert "blue" in refused.value.what
