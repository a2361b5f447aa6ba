"""Two control nodes on three NATS servers: a hold and a pause win against a thousand approvals; many hosts return."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from forewarn.clock import SystemClock
from forewarn.core.event import EventType, State
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import Scope
from forewarn.fleet.events import new_request_id
from forewarn.fleet.host.service import HostFleet
from forewarn.fleet.service import Fleet
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.store import NatsStore
from tests.core.sample_scopes import scope, vm
from tests.end_to_end.cluster.checker import check_holds
from tests.end_to_end.cluster.history import History, Line
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, campaign_spec, start_campaign
from tests.fleet.host.clusters import quick_platform, run_control, run_host, until
from tests.store.contract import whole_journal
from tests.support.nats_servers import NatsCluster, run_nats

APPROVALS = 1_000
EARLY = 200
"""After how many approvals the hold or pause is requested."""

HOSTS = 200
HOUR = timedelta(hours=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    with run_nats(tmp_path / "nats", servers=3) as cluster:
        yield cluster


def many_scopes(count: int) -> list[Scope]:
    return [scope(f"s{n}", vm(f"vm-{n}")) for n in range(count)]


@asynccontextmanager
async def run_fleet(settings: NatsSettings, directory: Path) -> AsyncIterator[Fleet]:
    """Run a control node without hosts, so that nothing is carried out."""
    store = await NatsStore.open(settings, directory)
    try:
        async with Fleet.run(
            store=store, platform=quick_platform(), clock=SystemClock(), policy=EMULATOR, has_duties=False
        ) as fleet:
            yield fleet
    finally:
        await store.aclose()


@asynccontextmanager
async def run_two(settings: NatsSettings, directory: Path) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Run two control nodes with the scopes of all approvals."""
    async with run_fleet(settings, directory / "one") as first, run_fleet(settings, directory / "two") as second:
        await asyncio.gather(*(first.inventory.add_scope(new, by="test") for new in many_scopes(APPROVALS)))
        await until(lambda: len(list(second.replica.views())) == APPROVALS)
        yield first, second


async def read_history(settings: NatsSettings, directory: Path) -> History:
    """Return the whole journal of the cell."""
    store = await NatsStore.open(settings, directory)
    try:
        rows = await whole_journal(store)
    finally:
        await store.aclose()
    return History(
        journal=[
            Line(
                position=row.position,
                record=f"{row.key.kind.value}/{row.key.id}",
                action=row.entry.kind.value,
                event=row.entry.event or "",
                facts=row.entry.facts,
            )
            for row in rows
        ]
    )


def events_of(fleet: Fleet) -> dict[str, str]:
    """Return the open event of each scope."""
    return {view.id: view.scope.events[0].id for view in fleet.replica.views() if view.scope and view.scope.events}


def started(fleet: Fleet) -> int:
    """Return how many events have started."""
    scopes = [view.scope for view in fleet.replica.views()]
    return sum(event.state is State.STARTED for scope in scopes if scope is not None for event in scope.events)


async def approve_all(fleets: tuple[Fleet, Fleet], events: dict[str, str]) -> None:
    """Approve all events, half of them at each node."""
    await asyncio.gather(
        *(
            fleets[n % 2].events.approve(id_, f"vm-{id_.removeprefix('s')}", [event])
            for n, (id_, event) in enumerate(events.items())
        )
    )


async def test_nothing_starts_after_a_hold_that_races_a_thousand_approvals(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    settings = await cluster.create_cell()
    async with run_two(settings, tmp_path) as fleets:
        vms = tuple(f"s{n}/vm-{n}" for n in range(APPROVALS))
        request = ScheduleRequest(id=new_request_id(), type=EventType.REBOOT, vms=vms, by="test", notice=HOUR)
        await fleets[0].events.schedule(request)
        await until(lambda: len(events_of(fleets[1])) == APPROVALS)
        approvals = asyncio.create_task(approve_all(fleets, events_of(fleets[0])))
        await until(lambda: min(started(fleet) for fleet in fleets) >= EARLY)
        await fleets[1].holds.set(by="ann", reason="storm")
        at_hold = {fleet: started(fleet) for fleet in fleets}
        await approvals
    history = await read_history(settings, tmp_path / "reader")
    assert list(check_holds(history)) == []
    count = sum(line.action == EntryKind.STARTED for line in history.journal)
    assert EARLY <= at_hold[fleets[1]] <= count < APPROVALS
    assert sum(line.action == EntryKind.APPROVED for line in history.journal) == APPROVALS


@pytest.mark.long
async def test_nothing_starts_after_a_pause_that_races_a_thousand_approvals(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    settings = await cluster.create_cell()
    async with run_two(settings, tmp_path) as fleets:
        await fleets[0].campaigns.duty.start()
        await start_campaign(fleets[0], campaign_spec(notice=HOUR, advance=True))
        await until(lambda: len(events_of(fleets[1])) == APPROVALS)
        approvals = asyncio.create_task(approve_all(fleets, events_of(fleets[0])))
        await until(lambda: started(fleets[0]) >= EARLY)
        await fleets[1].campaigns.pause(CAMPAIGN_ID, by="ann", why="storm")
        await approvals
    history = await read_history(settings, tmp_path / "reader")
    assert list(check_holds(history)) == []
    assert EARLY <= sum(line.action == EntryKind.STARTED for line in history.journal) < APPROVALS


def has_event(host: HostFleet, id_: str, event: str) -> bool:
    return [each.id for each in host.replica.scope(id_).events] == [event]


@pytest.mark.long
async def test_two_hundred_hosts_return_after_all_servers_were_killed(cluster: NatsCluster, tmp_path: Path) -> None:
    """Every host renews its term, and gets what changed while it was away."""
    settings = await cluster.create_cell()
    scopes = [scope(f"s{n}", vm(f"vm-{n}", host=f"h-{n}")) for n in range(HOSTS)]
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(run_control(settings, tmp_path / "control", *scopes))
        hosts = await asyncio.gather(
            *(stack.enter_async_context(run_host(settings, tmp_path / f"h-{n}", f"h-{n}")) for n in range(HOSTS))
        )
        terms = [host.client.term for host in hosts]
        assert terms == [1] * HOSTS
        for server in cluster.servers:
            server.kill()
        for server in cluster.servers:
            cluster.start(server)
        vms = tuple(f"s{n}/vm-{n}" for n in range(HOSTS))
        request = ScheduleRequest(id=new_request_id(), type=EventType.REBOOT, vms=vms, by="test", notice=HOUR)
        created = dict(await control.events.schedule(request))
        for n, host in enumerate(hosts):
            await until(partial(has_event, host, f"s{n}", created[f"s{n}"]))
        assert [host.client.term for host in hosts] == terms
