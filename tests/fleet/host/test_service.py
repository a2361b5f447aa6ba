"""The fleet on a host, with a real NATS server and a control node: it follows its own scopes, and saves by commands."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.core.event import EventType
from forewarn.core.impact import Done, ImpactOutcome, ImpactState, NotStarted, Unknown
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import Scope
from forewarn.fleet.errors import HostRunning, SaveFailed
from forewarn.fleet.events import new_request_id
from forewarn.fleet.host.service import HostFleet, HostPorts
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Work
from tests.core.sample_scopes import scope, vm
from tests.fleet.host.clusters import run_control, run_host, until
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


def web() -> Scope:
    return scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))


def db() -> Scope:
    return scope("db", vm("db-0", host="hv-1"))


async def schedule(control: Fleet, *vms: str, type_: EventType = EventType.REBOOT, failure: bool = False) -> str:
    request = ScheduleRequest(id=new_request_id(), type=type_, vms=vms, by="test", failure=failure)
    ((_, event),) = await control.events.schedule(request)
    return event


def states(fleet: Fleet | HostFleet, id_: str = "web") -> list[ImpactState]:
    value = fleet.replica.scope(id_)
    return [impact.state for event in value.events for impact in event.impacts]


class StoppedPlatform:
    """Work that ends when the test says so, and keeps a log."""

    repeatable = False

    def __init__(self, probed: Done | NotStarted | Unknown | None = None) -> None:
        self.log: list[str] = []
        self.may_end = asyncio.Event()
        self.outcome: ImpactOutcome = Done()
        self._probed = probed or Done()

    async def carry_out(self, work: Work) -> ImpactOutcome:
        self.log.append(f"carry out {work.vm} {work.attempt}")
        await self.may_end.wait()
        return self.outcome

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        self.log.append(f"probe {work.vm} {work.attempt}")
        return self._probed


async def test_host_follows_only_the_scopes_of_its_own_vms(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with (
        run_control(settings, tmp_path / "c", web(), db()) as control,
        run_host(settings, tmp_path / "h") as host,
    ):
        await until(lambda: [view.id for view in host.replica.views()] == ["web"])
        moved = msgspec.structs.replace(control.replica.scope("db").vm("db-0"), host="hv-0")
        await control.inventory.change_vm("db", "db-0", lambda _: moved, by="test")
        await until(lambda: {view.id for view in host.replica.views()} == {"web", "db"})
        back = msgspec.structs.replace(moved, host="hv-1")
        await control.inventory.change_vm("db", "db-0", lambda _: back, by="test")
        await until(lambda: {view.id for view in host.replica.views()} == {"web"})
        await control.inventory.change_vm("db", "db-0", lambda _: moved, by="test")
        await until(lambda: {view.id for view in host.replica.views()} == {"web", "db"})


async def test_approval_on_a_host_starts_the_event_and_its_impact(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control, run_host(settings, tmp_path / "h") as host:
        await until(lambda: control.scopes.rule_context.hosts and control.hosts.heard_ago("hv-0") is not None)
        event = await schedule(control, "web/web-0")
        await until(lambda: host.replica.scope("web").events)
        await host.events.approve("web", "web-0", (event,))
        assert host.replica.scope("web").has_ended(event) or host.replica.scope("web").event(event).started_at
        await until(lambda: control.replica.scope("web").has_ended(event))
        await until(lambda: host.replica.scope("web").has_ended(event))


async def test_first_request_enables_the_scope_before_it_is_answered(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control, run_host(settings, tmp_path / "h") as host:
        view = host.replica.view("web")
        saving = host.last_seen.record_request(view)
        assert saving is not None
        await saving
        assert host.replica.scope("web").enabled
        assert control.replica.scope("web").enabled
        assert host.last_seen.record_request(view) is None


async def test_second_process_waits_for_the_first_one(
    nats_server: NatsCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        serving = asyncio.Event()

        async def second() -> int:
            async with run_host(settings, tmp_path / "h2") as host:
                serving.set()
                return host.client.term

        async with run_host(settings, tmp_path / "h1") as first:
            assert first.client.term == 1
            waiting = asyncio.create_task(second())
            await until(lambda: "host hv-0 is served by process" in caplog.text)
            assert not serving.is_set()
        assert await waiting == 2
        record = control.hosts.record("hv-0")
        assert record is not None
        assert (record.term, record.process) == (2, "")


async def test_impact_is_settled_after_a_restart_of_the_host_by_a_probe(
    nats_server: NatsCluster, tmp_path: Path
) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        platform = StoppedPlatform()
        async with run_host(settings, tmp_path / "h", platform=platform):
            event = await schedule(control, "web/web-0", failure=True)
            await until(lambda: platform.log)
            (impact,) = control.replica.scope("web").event(event).impacts
            assert (impact.state, impact.host, impact.term) == (ImpactState.BEGUN, "hv-0", 1)
        again = StoppedPlatform(probed=Done())
        async with run_host(settings, tmp_path / "h", platform=again):
            await until(lambda: control.replica.scope("web").has_ended(event))
        assert (platform.log, again.log) == (["carry out web-0 1"], ["probe web-0 1"])


async def test_redeploy_hands_the_vm_over_to_the_other_host(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    db_scope = scope("db", vm("db-0", host="hv-0"))
    async with (
        run_control(settings, tmp_path / "c", db_scope) as control,
        run_host(settings, tmp_path / "h0") as source,
        run_host(settings, tmp_path / "h1", "hv-1") as target,
    ):
        await until(lambda: [view.id for view in source.replica.views()] == ["db"])
        event = await schedule(control, "db/db-0", type_=EventType.REDEPLOY, failure=True)
        await until(lambda: control.replica.scope("db").has_ended(event))
        assert control.replica.scope("db").vm("db-0").host == "hv-1"
        await until(lambda: [view.id for view in target.replica.views()] == ["db"])
        await until(lambda: not list(source.replica.views()))


async def test_begun_impacts_of_a_lost_host_become_unknown(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        platform = StoppedPlatform()
        async with run_host(settings, tmp_path / "h", platform=platform):
            await schedule(control, "web/web-0", failure=True)
            await until(lambda: platform.log)
            with pytest.raises(HostRunning):
                await control.hosts.abandon("hv-0", by="ann", why="fire")
        assert await control.hosts.abandon("hv-0", by="ann", why="fire") == 1
        assert states(control) == [ImpactState.UNKNOWN]


async def test_host_answers_from_disk_without_a_server_and_resumes(own_server: NatsCluster, tmp_path: Path) -> None:
    settings = await own_server.create_cell()
    (server,) = own_server.servers
    async with run_control(settings, tmp_path / "c", web()) as control, run_host(settings, tmp_path / "h") as host:
        await schedule(control, "web/web-0")
        await until(lambda: host.replica.scope("web").events)
        seen = host.replica.scope("web")
    server.kill()
    async with run_host(settings, tmp_path / "h") as host:
        assert host.client.term == 0
        assert host.replica.scope("web") == seen
        with pytest.raises(SaveFailed):
            await host.events.approve("web", "web-0", (seen.events[0].id,))
        assert host.age is not None
        own_server.start(server)
        async with run_control(settings, tmp_path / "c"):
            await until(lambda: host.client.term)
            await host.events.approve("web", "web-0", (seen.events[0].id,))


async def test_ports_are_kept_on_disk_and_shown_by_control(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        web_0 = control.replica.scope("web").vm("web-0")
        async with run_host(settings, tmp_path / "h") as host:
            await host.ports.assign({"web/web-0": 20_001})
            await until(lambda: control.hosts.url("web", web_0) == "http://127.0.0.1:20001")
        assert HostPorts(tmp_path / "h").assigned == {"web/web-0": 20_001}
        async with run_host(settings, tmp_path / "other") as host:
            assert host.ports.assigned == {"web/web-0": 20_001}


async def test_planned_event_waits_for_a_host_that_was_never_heard_of(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        await until(lambda: control.scopes.rule_context.hosts is not None)
        request = ScheduleRequest(
            id=new_request_id(),
            type=EventType.REBOOT,
            vms=("web/web-0",),
            by="test",
            not_before=SystemClock().now() - timedelta(seconds=1),
        )
        ((_, event),) = await control.events.schedule(request)
        assert control.replica.scope("web").event(event).started_at is None
        async with run_host(settings, tmp_path / "h"):
            await until(lambda: control.replica.scope("web").has_ended(event))
