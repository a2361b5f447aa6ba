"""One port per VM: assigned once, saved, and never reused for another VM."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forewarn.core.change import Change
from forewarn.core.inventory import add_vm, remove_vm
from forewarn.core.scope import Scope
from forewarn.fleet.service import Fleet
from forewarn.guest.limits import SPARE_FILES, Limits
from forewarn.guest.server import GuestServer
from forewarn.guest.vm_listeners import ListenFailed, PortUnavailable, VmPortListeners
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind, StoreFull
from tests.core.sample_scopes import scope, vm, web_scope
from tests.fleet.fleets import InterceptedStore, Save, run_fleet, until

HOST = "127.0.0.1"
ASK = b"GET /metadata/instance/compute/name?api-version=2021-02-01&format=text HTTP/1.0\r\nMetadata: true\r\n\r\n"


@asynccontextmanager
async def ports(fleet: Fleet, first: int = 0, operator_port: int | None = None) -> AsyncIterator[VmPortListeners]:
    server = GuestServer(fleet, limits=Limits())
    given = VmPortListeners(fleet, server, HOST, first, operator_port)
    try:
        async with given.serve():
            yield given
    finally:
        await server.aclose()


async def answer_at(url: str | None) -> tuple[bytes, bytes]:
    """Request the name of the VM; return the status line and the body."""
    assert url is not None
    reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
    writer.write(ASK)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0], answer.partition(b"\r\n\r\n")[2]


async def test_every_vm_has_its_own_port() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db"))) as fleet, ports(fleet) as given:
        urls = {
            (view.id, each.name): given.url(view.id, each.name)
            for view in fleet.replica.views()
            for each in view.roster or ()
        }
        assert len(set(urls.values())) == 7
        for (_, name), url in urls.items():
            assert await answer_at(url) == (b"HTTP/1.1 200 OK", name.encode())


async def test_ports_start_at_the_given_one_in_natural_order() -> None:
    many = scope("s", *(vm(f"vm-{n}") for n in (0, 10, 2)))
    async with run_fleet(many) as fleet:
        first = await free_row(3)
        async with ports(fleet, first):
            assert fleet.ports.assigned == {"s/vm-0": first, "s/vm-2": first + 1, "s/vm-10": first + 2}


async def free_row(length: int) -> int:
    """Return the first of `length` consecutive unused ports."""
    # Below the ephemeral ports; other processes of the test suite start elsewhere.
    begin = 10_000 + os.getpid() % 20_000
    for first in range(begin, begin + 2_000, length):
        try:
            for port in range(first, first + length):
                with socket.create_server((HOST, port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


async def test_new_vm_gets_a_port() -> None:
    async with run_fleet(web_scope()) as fleet, ports(fleet) as given:
        await fleet.scopes.apply("web", lambda value: add_vm(value, vm("web-6"), by="test", now=fleet.clock.now()))
        await fleet.inventory.add_scope(scope("db", vm("db")), by="test")
        await until(lambda: None not in (given.url("web", "web-6"), given.url("db", "db")))
        assert await answer_at(given.url("web", "web-6")) == (b"HTTP/1.1 200 OK", b"web-6")
        assert await answer_at(given.url("db", "db")) == (b"HTTP/1.1 200 OK", b"db")
        assert len(set(fleet.ports.assigned.values())) == 8


async def come(fleet: Fleet, name: str) -> None:
    await fleet.scopes.apply("web", lambda value: add_vm(value, vm(name), by="test", now=fleet.clock.now()))


class FullFleetStateStore(InterceptedStore):
    """A store that saves scopes, but fails to save the fleet state while `full` is set."""

    full = False
    refused = 0

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if self.full and key.kind is RecordKind.FLEET:
            self.refused += 1
            raise StoreFull(Path("/test"))
        return await save()


async def test_port_that_cannot_be_saved_is_opened_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then there is no listener: a port that is not saved could be assigned to another VM."""
    monkeypatch.setattr("forewarn.guest.vm_listeners.FIRST_PAUSE", 0.001)
    store = FullFleetStateStore()
    async with run_fleet(web_scope(), store=store) as fleet, ports(fleet) as given:
        store.full = True
        await come(fleet, "web-6")
        await until(lambda: store.refused > 1)
        await until(lambda: len(given._server._listeners) == 6)
        assert given.url("web", "web-6") is None
        assert list(given.failures) == [""]
        store.full = False
        await until(lambda: given.url("web", "web-6") is not None)
        await until(lambda: not given.failures)
        assert await answer_at(given.url("web", "web-6")) == (b"HTTP/1.1 200 OK", b"web-6")
        assert len(given._server._listeners) == 7


async def test_vm_removed_before_it_has_a_port_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    listen_as = GuestServer.listen_for_vm

    async def leave_before(server: GuestServer, name: str, host: str, port: int) -> int:
        if name == "web/hasty":
            await fleet.scopes.apply("web", lambda value: without(value, "hasty", fleet))
        return await listen_as(server, name, host, port)

    monkeypatch.setattr(GuestServer, "listen_for_vm", leave_before)
    async with run_fleet(web_scope()) as fleet, ports(fleet) as given:
        await come(fleet, "hasty")
        await come(fleet, "web-6")
        await until(lambda: given.url("web", "web-6") is not None)
        await come(fleet, "web-7")
        await until(lambda: given.url("web", "web-7") is not None)
        assert "web/hasty" not in fleet.ports.assigned


async def test_port_in_use_does_not_affect_other_vms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The VM gets its port as soon as it is free again."""
    monkeypatch.setattr("forewarn.guest.vm_listeners.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.guest.vm_listeners.LONGEST_PAUSE", 0.001)
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        async with run_fleet(web_scope()) as fleet, ports(fleet) as given:
            await fleet.ports.assign({"a/a": port})
            await fleet.inventory.add_scope(scope("a", vm("a")), by="test")
            await fleet.inventory.add_scope(scope("b", vm("b")), by="test")
            await until(lambda: given.url("b", "b") is not None)
            assert given.url("a", "a") is None
            other.close()
            await until(lambda: given.url("a", "a") is not None)
            assert await answer_at(given.url("a", "a")) == (b"HTTP/1.1 200 OK", b"a")


async def visit(fleet: Fleet, given: VmPortListeners, name: str) -> None:
    await come(fleet, name)
    await until(lambda: given.url("web", name) is not None)
    await fleet.scopes.apply("web", lambda value: without(value, name, fleet))


async def test_added_and_removed_vms_do_not_exhaust_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener of the VM removed first is closed; its port is still not reused."""
    files = SPARE_FILES + 2 * 8
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    async with run_fleet(web_scope()) as fleet, ports(fleet) as given:
        for n in range(6):
            await visit(fleet, given, f"guest-{n}")
        assert len(given._server._listeners) == 8
        assert (await answer_at(given.url("web", "guest-5")))[0] == b"HTTP/1.1 403 Forbidden"
        assert (await answer_at(given.url("web", "guest-4")))[0] == b"HTTP/1.1 403 Forbidden"
        with pytest.raises(ConnectionRefusedError):
            await answer_at(f"http://{HOST}:{fleet.ports.assigned['web/guest-0']}")
        assert len(set(fleet.ports.assigned.values())) == 12
        assert (await answer_at(given.url("web", "web-0")))[0] == b"HTTP/1.1 200 OK"


async def test_internal_error_while_opening_ports_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the missing ports of new VMs would not be noticed."""

    async def fail(*_: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(VmPortListeners, "_open_for_new", fail)

    async def serve(fleet: Fleet) -> None:
        async with asyncio.timeout(60), ports(fleet):
            await come(fleet, "web-6")
            await asyncio.Event().wait()

    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(RuntimeError, match="a bug"):
            await serve(fleet)


async def test_port_of_a_removed_vm_is_403_and_never_reused() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet, ports(fleet) as given:
        url, port = given.url("web", "web-0"), fleet.ports.assigned["web/web-0"]
        await fleet.scopes.apply("web", lambda value: without(value, "web-0", fleet))
        status, _ = await answer_at(url)
        assert status == b"HTTP/1.1 403 Forbidden"
        await fleet.inventory.add_scope(scope("db", vm("db")), by="test")
        await until(lambda: given.url("db", "db") is not None)
        before = dict(fleet.ports.assigned)
    async with run_fleet(store=store) as fleet, ports(fleet) as given:
        await fleet.scopes.apply("web", lambda value: add_vm(value, vm("new"), by="test", now=fleet.clock.now()))
        await until(lambda: given.url("web", "new") is not None)
        assert fleet.ports.assigned["web/new"] not in before.values()
        assert {name: fleet.ports.assigned[name] for name in before} == before
        assert before["web/web-0"] == port


def without(value: Scope, name: str, fleet: Fleet) -> Change[None]:
    return remove_vm(value, name, fleet.scopes.rule_context, by="test", now=fleet.clock.now())


async def test_ports_stay_the_same_after_a_restart() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet, ports(fleet):
        before = dict(fleet.ports.assigned)
    async with run_fleet(store=store) as fleet, ports(fleet, 8180):
        assert fleet.ports.assigned == before


async def test_port_in_use_is_reported_and_not_saved() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        async with run_fleet(web_scope()) as fleet:
            with pytest.raises(ListenFailed, match=f"VM web/web-0: cannot listen on {HOST}:{port}: already in use"):
                async with ports(fleet, port):
                    pass
            assert fleet.ports.assigned == {}


async def test_busy_port_at_the_start_does_not_affect_other_vms(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is retried, and logged once when it fails and once when it is back."""
    monkeypatch.setattr("forewarn.guest.vm_listeners.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.guest.vm_listeners.LONGEST_PAUSE", 0.001)
    tries = count_attempts(monkeypatch)
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet, ports(fleet):
        kept = fleet.ports.assigned["web/web-2"]
    with socket.create_server((HOST, kept)) as other:
        tries.clear()
        async with run_fleet(store=store) as fleet, ports(fleet) as given:
            assert [name for name in fleet.ports.assigned if given.url(*name.split("/")) is None] == ["web/web-2"]
            assert await answer_at(given.url("web", "web-5")) == (b"HTTP/1.1 200 OK", b"web-5")
            await until(lambda: tries.count("web/web-2") > 3)
            assert list(given.failures) == ["web/web-2"]
            other.close()
            await until(lambda: not given.failures)
            assert await answer_at(given.url("web", "web-2")) == (b"HTTP/1.1 200 OK", b"web-2")
            assert fleet.ports.assigned["web/web-2"] == kept
    lines = [record.getMessage() for record in caplog.records if record.name == "forewarn.guest.vm_listeners"]
    assert [line.partition(":")[0] for line in lines] == [
        "cannot open a guest port, retrying",
        "VM web/web-2 has its guest port again",
    ]


def count_attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the VMs for which the server is asked to listen."""
    listen, tries = GuestServer.listen_for_vm, list[str]()

    async def record(server: GuestServer, name: str, host: str, port: int) -> int:
        tries.append(name)
        return await listen(server, name, host, port)

    monkeypatch.setattr(GuestServer, "listen_for_vm", record)
    return tries


async def test_removed_vm_with_a_busy_port_is_no_longer_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.guest.vm_listeners.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.guest.vm_listeners.LONGEST_PAUSE", 0.001)
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet, ports(fleet):
        kept = fleet.ports.assigned["web/web-2"]
    with socket.create_server((HOST, kept)):
        async with run_fleet(store=store) as fleet, ports(fleet) as given:
            await fleet.scopes.apply("web", lambda value: without(value, "web-2", fleet))
            await until(lambda: not given.failures)


async def test_start_fails_if_no_saved_port_is_free() -> None:
    store = MemoryStore()
    async with run_fleet(scope("s", vm("a"), vm("b")), store=store) as fleet, ports(fleet):
        kept = list(fleet.ports.assigned.values())
    with socket.create_server((HOST, kept[0])), socket.create_server((HOST, kept[1])):
        async with run_fleet(store=store) as fleet:
            with pytest.raises(ListenFailed, match="VM s/a: cannot listen"):
                async with ports(fleet):
                    pass


async def test_port_of_the_operator_api_is_not_assigned_to_a_vm() -> None:
    async with run_fleet(scope("s", *(vm(f"vm-{n}") for n in range(2)))) as fleet:
        first = await free_row(3)
        with socket.create_server((HOST, first + 1)):
            async with ports(fleet, first, operator_port=first + 1):
                assert fleet.ports.assigned == {"s/vm-0": first, "s/vm-1": first + 2}


async def test_saved_port_used_by_the_operator_api_is_reported() -> None:
    store = MemoryStore()
    async with run_fleet(scope("s", vm("vm")), store=store) as fleet, ports(fleet):
        kept = fleet.ports.assigned["s/vm"]
    with socket.create_server((HOST, kept)):
        async with run_fleet(store=store) as fleet:
            with pytest.raises(ListenFailed, match="already in use by this service's operator API"):
                async with ports(fleet, operator_port=kept):
                    pass


async def test_ports_in_use_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await free_row(8)
    monkeypatch.setattr("forewarn.guest.vm_listeners.FREE_PORT_RANGE", range(first, first + 1))
    with socket.create_server((HOST, first + 1)), socket.create_server((HOST, first + 3)):
        async with run_fleet(web_scope()) as fleet, ports(fleet):
            assert list(fleet.ports.assigned.values()) == [first, first + 2, *range(first + 4, first + 8)]


async def test_lower_ports_are_tried_before_ephemeral_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await free_row(8)
    monkeypatch.setattr("forewarn.guest.vm_listeners.FREE_PORT_RANGE", range(first, first + 6))
    monkeypatch.setattr("forewarn.guest.vm_listeners.secrets.randbelow", lambda number: number - 2)
    async with run_fleet(web_scope()) as fleet, ports(fleet):
        assert list(fleet.ports.assigned.values()) == [first + 4, first + 5, *range(first, first + 4)]


async def test_more_vms_than_ports_is_reported() -> None:
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(PortUnavailable, match="not enough ports from 65534 on"):
            async with ports(fleet, 65_534):
                pass
        assert fleet.ports.assigned == {}
