"""The command handler of a control node: a host acts for its own VMs only, and commands can be repeated."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.event import EventType
from forewarn.core.impact import Done, ImpactState
from forewarn.core.journal import EntryKind
from forewarn.fleet.host.commands import (
    Approve,
    Begin,
    CommandResponse,
    HostCommand,
    Renew,
    ScopePolls,
    Seen,
    Settle,
    decode_response,
    encode,
)
from forewarn.fleet.host.registry import digest_scopes
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, scope, vm
from tests.fleet.fleets import read_journal, run_fleet


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def fleet(store: MemoryStore) -> AsyncIterator[Fleet]:
    """Return a fleet whose impacts other processes carry out; both hosts have one."""
    web = scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))
    async with run_fleet(web, store=store) as running:
        await running.duties.impacts.stop()
        for host in ("hv-0", "hv-1"):
            await running.cluster.hosts.claim(host, f"p-{host}", f"the process of {host}", {})
        yield running


async def send(fleet: Fleet, host: str, command: HostCommand) -> CommandResponse:
    return decode_response(await fleet.cluster.host_commands.answer(host, command.name, encode(command)))


async def started(fleet: Fleet) -> str:
    ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0", failure=True))
    return event


def begin(event: str, *, host: str = "hv-0", term: int = 1, attempt: int = 1) -> Begin:
    return Begin(process=f"p-{host}", term=term, scope="web", event=event, vm="web-0", attempt=attempt)


def settle(event: str, *, host: str = "hv-0", term: int = 1) -> Settle:
    return Settle(process=f"p-{host}", term=term, scope="web", event=event, vm="web-0", attempt=1, done=Done())


async def test_host_approves_for_its_own_vms_only(fleet: Fleet) -> None:
    ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
    command = Approve(process="p-hv-1", term=1, scope="web", vm="web-0", events=(event,))
    assert (await send(fleet, "hv-1", command)).code == "wrong-host"
    own = Approve(process="p-hv-1", term=1, scope="web", vm="web-1", events=(event,))
    response = await send(fleet, "hv-1", own)
    assert (response.status, response.revision) == ("saved", fleet.replica.view("web").revision)
    assert fleet.replica.scope("web").event(event).started_at == TEN
    assert (await send(fleet, "hv-1", own)).status == "saved"


async def test_unknown_event_is_refused_as_on_one_machine(fleet: Fleet) -> None:
    command = Approve(process="p-hv-0", term=1, scope="web", vm="web-0", events=("E",))
    response = await send(fleet, "hv-0", command)
    assert (response.status, response.code, response.details) == (
        "refused",
        "event-not-found",
        {"event": "E", "scope": "web"},
    )


async def test_repeated_begin_and_settle_have_their_effect_once(fleet: Fleet, store: MemoryStore) -> None:
    event = await started(fleet)
    first, second = await send(fleet, "hv-0", begin(event)), await send(fleet, "hv-0", begin(event))
    assert first.work is not None
    assert (first.status, first.work.attempt, second) == ("saved", 1, first)
    assert (await send(fleet, "hv-0", begin(event, attempt=3))).code == "invalid-transition"
    assert [(await send(fleet, "hv-0", settle(event))).status for _ in range(2)] == ["saved", "saved"]
    kinds = [row.entry.kind for row in await read_journal(store)]
    assert (kinds.count(EntryKind.IMPACT_BEGUN), kinds.count(EntryKind.IMPACT_DONE)) == (1, 1)


async def test_other_host_can_neither_begin_nor_settle(fleet: Fleet) -> None:
    event = await started(fleet)
    assert (await send(fleet, "hv-1", begin(event, host="hv-1"))).code == "wrong-host"
    await send(fleet, "hv-0", begin(event))
    assert (await send(fleet, "hv-1", settle(event, host="hv-1"))).code == "wrong-host"
    assert fleet.replica.scope("web").event(event).impacts[0].state is ImpactState.BEGUN


async def test_process_that_was_replaced_is_refused(fleet: Fleet) -> None:
    event = await started(fleet)
    await send(fleet, "hv-0", begin(event))
    await fleet.cluster.hosts.release("hv-0", "p-hv-0")
    await fleet.cluster.hosts.claim("hv-0", "new", "a new process", {})
    response = await send(fleet, "hv-0", settle(event))
    assert (response.code, response.details) == ("host-taken", {"host": "hv-0", "holder": "a new process"})
    new = Settle(process="new", term=2, scope="web", event=event, vm="web-0", attempt=1, done=Done())
    assert (await send(fleet, "hv-0", new)).status == "saved"


async def test_process_cannot_use_the_term_of_another_host(fleet: Fleet) -> None:
    event = await started(fleet)
    assert (await send(fleet, "hv-1", begin(event, host="hv-0"))).code == "host-taken"


async def test_renewal_names_the_scopes_only_if_they_have_changed(fleet: Fleet) -> None:
    renewed = await send(fleet, "hv-0", Renew(process="p-hv-0", term=1))
    assert renewed.term is not None
    assert renewed.term.scopes == ("web",)
    same = await send(fleet, "hv-0", Renew(process="p-hv-0", term=1, scopes=digest_scopes(("web",))))
    assert same.term is not None
    assert same.term.scopes is None


async def test_polls_enable_scopes_with_vms_on_the_host(fleet: Fleet) -> None:
    await fleet.inventory.add_scope(scope("db", vm("db-0", host="hv-1")), by="test")
    polls = ScopePolls(seen_at=TEN, version="2020-07-01", vms={"web-0": TEN})
    command = Seen(process="p-hv-0", term=1, scopes={"web": polls, "db": polls, "none": polls})
    assert (await send(fleet, "hv-0", command)).status == "saved"
    view = fleet.replica.view("web")
    assert (view.scope is not None and view.scope.enabled, view.poll_version) == (True, "2020-07-01")
    assert view.polled_at == {"web-0": TEN}
    assert not fleet.replica.scope("db").enabled


async def test_polls_of_an_enabled_scope_save_nothing(fleet: Fleet) -> None:
    clock = fleet.clock
    assert isinstance(clock, ManualClock)
    polls = ScopePolls(seen_at=TEN)
    await send(fleet, "hv-0", Seen(process="p-hv-0", term=1, scopes={"web": polls}))
    revision = fleet.replica.view("web").revision
    clock.set(TEN + timedelta(hours=2))
    later = ScopePolls(seen_at=TEN + timedelta(hours=2))
    response = await send(fleet, "hv-0", Seen(process="p-hv-0", term=1, scopes={"web": later}))
    assert (response.status, fleet.last_seen.busy) == ("saved", 0)
    assert fleet.replica.view("web").revision == revision
    assert fleet.replica.view("web").seen_at == TEN + timedelta(hours=2)


async def test_times_of_polls_do_not_depend_on_the_clock_of_the_host(fleet: Fleet) -> None:
    day = timedelta(days=1)
    polls = ScopePolls(seen_at=TEN - day - timedelta(seconds=20))
    seen = Seen(process="p-hv-1", term=1, scopes={"web": polls}, sent_at=TEN - day)
    fleet.cluster.host_commands.hear("hv-1", Seen.name, encode(seen))
    assert fleet.replica.view("web").seen_at == TEN - timedelta(seconds=20)


async def test_polls_of_vms_on_other_hosts_and_of_the_future_are_not_taken(fleet: Fleet) -> None:
    vms = {"web-0": TEN, "web-1": TEN + timedelta(days=1), "nobody": TEN}
    seen = Seen(process="p-hv-1", term=1, scopes={"web": ScopePolls(seen_at=TEN, vms=vms)})
    assert (await send(fleet, "hv-1", seen)).status == "saved"
    assert fleet.replica.view("web").polled_at == {"web-1": TEN}


async def test_time_without_a_zone_is_refused(fleet: Fleet) -> None:
    body = b'{"process":"p-hv-1","term":1,"scopes":{"web":{"seen_at":"2026-03-02T10:00:00"}}}'
    fleet.cluster.host_commands.hear("hv-1", Seen.name, body)
    response = decode_response(await fleet.cluster.host_commands.answer("hv-1", Seen.name, body))
    assert (response.status, response.code) == ("refused", "invalid-command")


async def test_every_control_node_hears_of_hosts_and_polls(fleet: Fleet) -> None:
    fleet.cluster.hosts._heard.clear()
    fleet.cluster.host_commands.hear("hv-0", Renew.name, encode(Renew(process="p-hv-0", term=1)))
    assert fleet.cluster.hosts.heard_ago("hv-0") is not None
    polls = ScopePolls(seen_at=TEN, version="2020-07-01", vms={"web-1": TEN})
    seen = Seen(process="p-hv-1", term=1, scopes={"web": polls})
    fleet.cluster.host_commands.hear("hv-1", Seen.name, encode(seen))
    view = fleet.replica.view("web")
    assert (view.seen_at, view.poll_version, view.polled_at) == (TEN, "2020-07-01", {"web-1": TEN})
    fleet.cluster.host_commands.hear("hv-0", Renew.name, b"no JSON")


@pytest.mark.parametrize(("name", "body"), [("purge", b"{}"), ("approve", b"{}"), ("approve", b"no JSON")])
async def test_invalid_command_is_refused(fleet: Fleet, name: str, body: bytes) -> None:
    response = decode_response(await fleet.cluster.host_commands.answer("hv-0", name, body))
    assert (response.status, response.code) == ("refused", "invalid-command")
