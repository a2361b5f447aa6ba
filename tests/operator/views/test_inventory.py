"""API views of scopes, VMs, hosts and holds."""

from datetime import timedelta

import msgspec

from forewarn.api import v1
from forewarn.core.event import EventType
from forewarn.core.scope import Hold
from forewarn.core.vm import Priority, Traits, Vm
from forewarn.operator.views.inventory import first_vms, show_hold, show_host, show_scope, show_vm, sorted_vms
from tests.core.sample_scopes import TEN, schedule_request, scope, vm
from tests.fleet.fleets import run_fleet

WEB = msgspec.structs.replace(
    scope("web", vm("web-10", host="hv-0", ip="10.0.0.1"), vm("web-2", domain=1, host="hv-0")),
    traits=Traits(terminate_notice=timedelta(minutes=6), tags={"a": "scope"}, zone="1"),
)
DB = scope("db", vm("db-0", host="hv-0"))


def url(scope_id: str, each: Vm) -> str | None:
    return f"http://{scope_id}.{each.name}"


def test_hold_is_shown_with_its_scope() -> None:
    hold = Hold(by="ann", at=TEN, reason="audit")
    assert show_hold(hold, "web") == v1.Hold(scope="web", created_by="ann", created_at=TEN, reason="audit")
    assert show_hold(None, "web") is None


async def test_vm_is_shown_with_what_it_takes_from_its_scope() -> None:
    async with run_fleet(WEB) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-10"))
        value = fleet.replica.scope("web")
        shown = show_vm(value, value.vm("web-10"), url)
    assert (shown.name, shown.scope, shown.guest_url, shown.host) == ("web-10", "web", "http://web.web-10", "hv-0")
    assert (shown.terminate_notice, shown.zone, shown.tags, shown.priority) == (
        "6m",
        "1",
        {"a": "scope"},
        Priority.REGULAR,
    )
    assert (shown.addresses, shown.open_events) == ((v1.Address(ip="10.0.0.1", network="default", mac=""),), (event,))


async def test_scope_is_shown_with_its_domains_and_events() -> None:
    async with run_fleet(WEB) as fleet:
        shown = show_scope(fleet, fleet.replica.view("web"), fleet.replica.scope("web"))
    assert (shown.id, shown.vm_count, shown.update_domains, shown.open_events) == ("web", 2, (0, 1), ())
    assert (shown.terminate_notice, shown.tags, shown.last_seen_at) == ("6m", {"a": "scope"}, None)


def test_vms_are_in_the_order_in_which_people_count() -> None:
    assert [each.name for each in sorted_vms(WEB.roster)] == ["web-2", "web-10"]


async def test_first_vms_are_those_of_the_first_scopes() -> None:
    async with run_fleet(WEB, DB) as fleet:
        shown = [f"{each.scope}/{each.name}" for each in first_vms(fleet, url, 2)]
    assert shown == ["db/db-0", "web/web-2"]


async def test_host_has_the_events_that_affect_its_vms() -> None:
    async with run_fleet(WEB, DB) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-2"))
        web, db = fleet.replica.scope("web"), fleet.replica.scope("db")
    placed = [(web, web.vm("web-10")), (db, db.vm("db-0")), (web, web.vm("web-2"))]
    assert show_host("hv-0", placed) == v1.Host(
        name="hv-0", vms=("db/db-0", "web/web-2", "web/web-10"), scopes=("db", "web"), open_events=(event,)
    )
    assert show_host("hv-0", placed[:2]).open_events == ()
