"""The fleet on a host, with a real NATS server and a control node: it follows its own scopes, and saves by commands."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.core.errors import HostInUse
from forewarn.core.event import EventType
from forewarn.core.impact import Done, ImpactOutcome, ImpactState, NotStarted, Unknown
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import Scope
from forewarn.fleet.errors import HostRunning, SaveFailed
from forewarn.fleet.events import new_request_id
from forewarn.fleet.host import service
from forewarn.fleet.host.service import HostFleet
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Work
from tests.core.sample_scopes import scope, vm
from tests.fleet.host.clusters import GUARD_SECONDS, run_control, run_host, until, web
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


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
        await until(lambda: control.scopes.rule_context.hosts and control.cluster.hosts.heard_ago("hv-0") is not None)
        event = await schedule(control, "web/web-0")
        await until(lambda: host.replica.scope("web").events)
        await host.events.approve("web", "web-0", (event,))
        assert host.replica.scope("web").has_ended(event) or host.replica.scope("web").event(event).started_at
        await until(lambda: control.replica.scope("web").has_ended(event))
        await until(lambda: host.replica.scope("web").has_ended(event))


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
        record = control.cluster.hosts.record("hv-0")
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


async def test_redeploy_is_handed_over_although_both_hosts_end_between_its_steps(
    nats_server: NatsCluster, tmp_path: Path
) -> None:
    """The source ends after the move and before its report, the target before it has heard of the VM."""
    settings = await nats_server.create_cell()
    both = scope("db", vm("db-0", host="hv-0"), vm("db-1", host="hv-1", domain=1))
    async with run_control(settings, tmp_path / "c", both) as control:
        source, target = StoppedPlatform(), StoppedPlatform()
        async with run_host(settings, tmp_path / "h1", "hv-1", platform=target):
            async with run_host(settings, tmp_path / "h0", platform=source):
                event = await schedule(control, "db/db-0", type_=EventType.REDEPLOY, failure=True)
                await until(lambda: source.log)
                moved = msgspec.structs.replace(control.replica.scope("db").vm("db-0"), host="hv-1")
                with pytest.raises(HostInUse):
                    await control.inventory.change_vm("db", "db-0", lambda _: moved, by="test")
            assert control.replica.scope("db").vm("db-0").host == "hv-0"
        assert target.log == [], "only the host that has begun the impact probes it"
        again = StoppedPlatform(probed=Done(host="hv-1"))
        async with run_host(settings, tmp_path / "h0", platform=again) as host:
            await until(lambda: control.replica.scope("db").has_ended(event))
            await until(lambda: not list(host.replica.views()))
        assert control.replica.scope("db").vm("db-0").host == "hv-1"
        async with run_host(settings, tmp_path / "h1", "hv-1", platform=target) as host:
            assert host.replica.scope("db").vm("db-0").host == "hv-1"
        assert (again.log, target.log) == (["probe db-0 1"], [])


async def test_begun_impacts_of_a_lost_host_become_unknown(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()) as control:
        platform = StoppedPlatform()
        async with run_host(settings, tmp_path / "h", platform=platform):
            await schedule(control, "web/web-0", failure=True)
            await until(lambda: platform.log)
            with pytest.raises(HostRunning):
                await control.cluster.hosts.abandon("hv-0", by="ann", why="fire")
        assert await control.cluster.hosts.abandon("hv-0", by="ann", why="fire") == 1
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


async def test_age_of_the_replica_is_logged_until_it_is_current_again(
    own_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "STALE_AFTER", timedelta(seconds=2))
    settings = await own_server.create_cell()
    (server,) = own_server.servers
    async with run_control(settings, tmp_path / "c", web()), run_host(settings, tmp_path / "h") as host:
        server.kill()
        await until(lambda: "guests get responses from" in caplog.text)
        assert any("guests get responses from" in problem for problem in host.health.limitations())
        own_server.start(server)
        await until(lambda: "the replica is current again" in caplog.text)


async def test_host_compares_its_clock_with_the_control_nodes(nats_server: NatsCluster, tmp_path: Path) -> None:
    settings = await nats_server.create_cell()
    async with run_control(settings, tmp_path / "c", web()), run_host(settings, tmp_path / "h") as host:
        await until(lambda: host.clock_offset.seconds is not None)
        offset = host.clock_offset.offset
        assert offset is not None
        assert abs(offset) < timedelta(seconds=1)  # both have the clock of this machine


async def test_process_that_started_without_a_server_waits_for_the_one_before_it(
    own_server: NatsCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It serves guests meanwhile, and an approval is to be sent again."""
    settings = await own_server.create_cell()
    (server,) = own_server.servers
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(run_control(settings, tmp_path / "c", web()))
        async with run_host(settings, tmp_path / "h2") as host:
            await schedule(control, "web/web-0")
            await until(lambda: host.replica.scope("web").events)
        async with run_host(settings, tmp_path / "h1") as first:
            server.kill()
            second = await stack.enter_async_context(run_host(settings, tmp_path / "h2"))
            assert second.client.term == 0
            own_server.start(server)
            await until(lambda: "host hv-0 is served by process" in caplog.text)
            event = second.replica.scope("web").events[0].id
            with pytest.raises(SaveFailed):
                await second.events.approve("web", "web-0", (event,))
            assert first.client.term
        await until(lambda: second.client.term)
        await second.events.approve("web", "web-0", (event,))


async def test_refused_process_serves_from_disk_when_control_nodes_end(
    nats_server: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its killed predecessor still has the host; without a term of its own it carries out nothing."""
    monkeypatch.setattr(service, "LEASE_SECONDS", -service.FIRST_ANSWER_SECONDS)  # so it waits no longer
    settings = await nats_server.create_cell()
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(run_control(settings, tmp_path / "c", web()))
        async with run_host(settings, tmp_path / "h"):
            pass
        await control.cluster.hosts.claim("hv-0", "killed", "process 1 on hv-0", {})
        event = await schedule(control, "web/web-0", failure=True)

        async def restart() -> tuple[int, int, list[str]]:
            async with run_host(settings, tmp_path / "h") as host:
                events = [event.id for event in host.replica.scope("web").events]
                return host.client.term, host.impacts.waiting, events

        starting = asyncio.create_task(restart())
        await until(lambda: "host hv-0 is served by process 1" in caplog.text)
        await stack.aclose()
        async with asyncio.timeout(GUARD_SECONDS):
            assert await starting == (0, 0, [event])


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
