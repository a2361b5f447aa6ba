"""The inventory: list, show, add, change and remove scopes, VMs and hosts."""

import asyncio

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.api.fleet_file import derived_id
from forewarn.core.access import Role
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Os, Priority
from forewarn.store.port import JournalQuery, RecordKey, RecordKind
from tests.operator.running_api import TEN, TOKEN, RunningApi, run_api

MANY = """
    [[scopes]]
    name = "s10"
    kind = "availability-set"
    vms = [{ name = "vm-{n}", count = 12 }]
    [[scopes]]
    name = "s9"
    kind = "availability-set"
    vms = [{ name = "vm-{n}", count = 3 }]
"""


async def test_vm_is_shown_with_own_and_inherited_properties() -> None:
    async with run_api() as service:
        vms = {vm.name: vm for vm in await service.client(lambda api: list(api.vms()))}
    assert len(vms) == 15
    assert vms["batch_1"] == v1.Vm(
        name="batch_1",
        scope="batch",
        scope_kind=ScopeKind.PLACEMENT_GROUP,
        vm_id=vms["batch_1"].vm_id,
        guest_url="http://batch.batch_1",
        host="hv-4",
        update_domain=1,
        fault_domain=1,
        priority=Priority.LOW,
        role_instance=False,
        addresses=[v1.Address(ip="10.20.2.5", network="default", mac="")],
        tags={"stage": "demonstration", "role": "batch"},
        terminate_notice="5m",
        location="westeurope",
        zone=None,
        resource_group="demonstration",
        subscription=vms["batch_1"].subscription,
        os=Os.LINUX,
        scale_set="batch",
        open_events=[],
    )
    assert (vms["web-0"].priority, vms["db-0"].zone) == (Priority.REGULAR, "1")


async def test_vms_are_paged_in_natural_order() -> None:
    expected = [("s10", f"vm-{n}") for n in range(12)] + [("s9", f"vm-{n}") for n in range(3)]
    async with run_api(fleet_file=MANY) as service:
        for limit in (1, 2, 3, 7, 15, 16):
            seen: list[tuple[str, str]] = []
            after: str | None = ""
            while after is not None:
                page = (await service.request("GET", f"/v1/vms?limit={limit}&after={after}")).json
                assert len(page["vms"]) <= limit
                seen += [(vm["scope"], vm["name"]) for vm in page["vms"]]
                after = page["next"]
            assert seen == expected


async def test_page_continues_after_a_removed_vm() -> None:
    async with run_api(fleet_file=MANY) as service:
        page = (await service.request("GET", "/v1/vms?after=s10/vm-4x&limit=2")).json
        assert [vm["name"] for vm in page["vms"]] == ["vm-5", "vm-6"]


async def test_vms_of_one_scope() -> None:
    async with run_api() as service:
        found = await service.client(lambda api: [vm.name for vm in api.vms(scope="shop")])
        assert found == ["BackEnd_IN_0", "BackEnd_IN_1", "FrontEnd_IN_0", "FrontEnd_IN_1"]
        with pytest.raises(NotFound, match="there is no scope shops"):
            await service.client(lambda api: list(api.vms(scope="shops")))


FILTERS = {
    "kind": ("kind=cloud-service", ["shop"]),
    "name": ("name=B*", ["batch"]),
    "held": ("held=true", ["web"]),
    "not held, of a kind": ("held=false&kind=availability-set", []),
    "enabled": ("enabled=true", ["shop"]),
}


async def test_scopes_are_listed_by_filter() -> None:
    async with run_api() as service:
        await service.fleet.holds.set(by="test", reason="a reason", scope="web")
        await enabled(service, "shop")
        pages = {
            case: (await service.request("GET", f"/v1/scopes?{query}")).json for case, (query, _) in FILTERS.items()
        }
    found = {case: [scope["id"] for scope in page["scopes"]] for case, page in pages.items()}
    assert found == {case: expected for case, (_, expected) in FILTERS.items()}


async def enabled(service: RunningApi, scope: str) -> None:
    noted = service.fleet.last_seen.record_request(service.fleet.replica.view(scope))
    if noted is not None:
        await noted


VM_FILTERS = {
    "scope": ("scope=shop&name=front*", ["FrontEnd_IN_0", "FrontEnd_IN_1"]),
    "host": ("host=hv-0&scope=web", ["web-0", "web-3"]),
    "name in any case": ("name=WEB-1", ["web-1"]),
    "tag": ("tag=role&scope=batch&name=*_1", ["batch_1"]),
    "tag and value": ("tag=role%3Dbatch&name=*_0", ["batch_0"]),
    "tag and other value": ("tag=role%3Dother", []),
    "priority": ("priority=low&name=*_0", ["batch_0"]),
    "held": ("held=true&name=*-2", ["web-2"]),
    "enabled": ("enabled=true&name=Back*", ["BackEnd_IN_0", "BackEnd_IN_1"]),
    "kind": ("kind=standalone", ["db-0"]),
}


async def test_vms_are_listed_by_filter() -> None:
    async with run_api() as service:
        await service.fleet.holds.set(by="test", reason="a reason", scope="web")
        await enabled(service, "shop")
        pages = {
            case: (await service.request("GET", f"/v1/vms?{query}")).json for case, (query, _) in VM_FILTERS.items()
        }
    found = {case: [vm["name"] for vm in page["vms"]] for case, page in pages.items()}
    assert found == {case: expected for case, (_, expected) in VM_FILTERS.items()}


async def test_every_list_shows_holds() -> None:
    async with run_api() as service:
        await service.fleet.holds.set(by="ann", reason="the storage is shaky")
        await service.fleet.holds.set(by="bob", reason="a demonstration", scope="web")
        pages = [(await service.request("GET", f"/v1/{what}")).json for what in ("scopes", "vms", "hosts", "events")]
        shown = await service.client(lambda api: (api.scope("web").hold, api.vm("web-0").hold, api.vm("db-0").hold))
    everywhere = {
        "scope": None,
        "created_by": "ann",
        "created_at": "2026-03-02T10:00:00Z",
        "reason": "the storage is shaky",
    }
    here = v1.Hold(scope="web", created_by="bob", created_at=TEN, reason="a demonstration")
    assert [page["fleet_hold"] for page in pages] == [everywhere] * 4
    assert shown == (here, here, None)


async def test_scope_is_shown_with_its_enablement() -> None:
    async with run_api() as service:
        made = await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["batch_0"])))
        await enabled(service, "batch")
        scope = await service.client(lambda api: api.scope("batch"))
    assert scope == v1.Scope(
        id="batch",
        kind=ScopeKind.PLACEMENT_GROUP,
        vm_count=scope.vm_count,
        update_domains=scope.update_domains,
        approval=ApprovalRule.ANY,
        auto_approve=[],
        scale_set="batch",
        placement_group=scope.placement_group,
        priority=Priority.LOW,
        terminate_notice="5m",
        location="westeurope",
        zone=None,
        resource_group="demonstration",
        subscription=scope.subscription,
        os=Os.LINUX,
        tags=scope.tags,
        incarnation=2,
        enabled=True,
        last_seen_at=TEN,
        changed_at=TEN,
        open_events=[made.created[0].id],
        hold=None,
    )
    assert (scope.vm_count, scope.update_domains[:2], scope.tags["stage"]) == (4, [0, 1], "demonstration")


async def test_hosts_are_derived_from_their_vms() -> None:
    async with run_api() as service:
        made = await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["web-0"])))
        hosts = {host.name: host for host in await service.client(lambda api: list(api.hosts()))}
        host = await service.client(lambda api: api.host("hv-0"))
        with pytest.raises(NotFound, match="no VM is on a host hv-99"):
            await service.client(lambda api: api.host("hv-99"))
        paged = [(await service.request("GET", f"/v1/hosts?limit=1&after={name}")).json for name in ("", "hv-0")]
    on_it = [f"{vm['scope']}/{vm['name']}" for vm in await vms_on("hv-0")]
    assert (hosts["hv-0"], list(host.vms), list(host.open_events)) == (host, on_it, [made.created[0].id])
    assert sorted(hosts) == list(hosts)
    assert [page["hosts"][0]["name"] for page in paged] == list(hosts)[:2]


async def vms_on(host: str) -> list[dict[str, str]]:
    async with run_api() as service:
        vms: list[dict[str, str]] = (await service.request("GET", f"/v1/vms?host={host}")).json["vms"]
        return vms


async def test_scope_is_added_changed_and_removed() -> None:
    async with run_api() as service:
        added = await service.client(
            lambda api: api.add_scope(
                v1.AddScope(id="new", kind=ScopeKind.PLACEMENT_GROUP, scale_set="new", priority=Priority.LOW, zone="1")
            )
        )
        changed = await service.client(
            lambda api: api.change_scope(
                "new", v1.ChangeScope(approval=ApprovalRule.ALL, zone=None, tags={"a": "b"}, terminate_notice="7m")
            )
        )
        await service.client(lambda api: api.remove_scope("new", reason="not needed"))
        with pytest.raises(NotFound):
            await service.client(lambda api: api.scope("new"))
        did = await journal(service, "new")
    assert (added.id, added.kind, added.zone, added.vm_count) == ("new", ScopeKind.PLACEMENT_GROUP, "1", 0)
    assert added.placement_group is not None
    assert (changed.approval, changed.zone, changed.tags) == (ApprovalRule.ALL, None, {"a": "b"})
    assert (changed.terminate_notice, changed.priority) == ("7m", Priority.LOW)
    assert did == [
        (EntryKind.SCOPE_CREATED, "admin", ""),
        (EntryKind.SCOPE_CHANGED, "admin", "traits, approval"),
        (EntryKind.SCOPE_REMOVED, "admin", "not needed"),
    ]


async def journal(service: RunningApi, scope: str) -> list[tuple[EntryKind, str, str]]:
    rows = await service.store.journal(JournalQuery(key=RecordKey(RecordKind.SCOPE, scope)))
    return [(row.entry.kind, row.entry.by, row.entry.why) for row in rows]


async def test_vm_is_added_changed_and_removed() -> None:
    async with run_api() as service:
        added = await service.client(
            lambda api: api.add_vm(
                v1.AddVm(
                    name="web-9",
                    scope="web",
                    host="hv-1",
                    update_domain=2,
                    addresses=[v1.NewAddress(ip="10.9.9.9", mac="00:0d:3a:12:34:56")],
                    tags={"role": "spare"},
                )
            )
        )
        changed = await service.client(
            lambda api: api.change_vm(
                "web/web-9", v1.ChangeVm(host=None, addresses=[v1.NewAddress(ip="10.9.9.10")], os=Os.WINDOWS)
            )
        )
        freed = service.fleet.replica.find_by_address("default", "10.9.9.9")
        await service.client(lambda api: api.remove_vm("web-9", reason="enough of them"))
        with pytest.raises(NotFound):
            await service.client(lambda api: api.vm("web-9"))
        did = (await journal(service, "web"))[-4:]
    assert (added.name, added.scope, added.host, added.update_domain) == ("web-9", "web", "hv-1", 2)
    assert added.addresses == [v1.Address(ip="10.9.9.9", network="default", mac="00:0d:3a:12:34:56")]
    assert (added.tags["role"], added.tags["stage"]) == ("spare", "demonstration")
    assert (changed.host, changed.addresses, changed.os, changed.vm_id) == (
        None,
        [v1.Address(ip="10.9.9.10", network="default", mac="")],
        Os.WINDOWS,
        added.vm_id,
    )
    assert freed is None
    assert [(what, by) for what, by, _ in did] == [
        (EntryKind.VM_ADDED, "admin"),
        (EntryKind.VM_CHANGED, "admin"),
        (EntryKind.VM_MOVED, "admin"),
        (EntryKind.VM_REMOVED, "admin"),
    ]


async def test_standalone_vm_is_added_and_removed_with_its_scope() -> None:
    async with run_api() as service:
        added = await service.client(lambda api: api.add_vm(v1.AddVm(name="alone", terminate_notice="5m")))
        scope = await service.client(lambda api: api.scope("alone"))
        await service.client(lambda api: api.remove_vm("alone"))
        with pytest.raises(NotFound):
            await service.client(lambda api: api.scope("alone"))
    assert (added.scope, added.scope_kind, added.terminate_notice) == ("alone", ScopeKind.STANDALONE, "5m")
    assert (scope.kind, scope.vm_count) == (ScopeKind.STANDALONE, 1)


async def test_vm_with_open_events_is_removed_only_by_force() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0", "web-0"])))
        before = await service.stored_state()
        refused = await service.request("DELETE", "/v1/vms/web-0")
        scope_refused = await service.request("DELETE", "/v1/scopes/web")
        unchanged = await service.stored_state() == before
        forced = await service.request("DELETE", "/v1/vms/web-0?force=true&reason=it+is+gone")
        events = await service.client(lambda api: [event.scope for event in api.events()])
    assert (refused.status, refused.code) == (scope_refused.status, scope_refused.code) == (409, "resource-in-use")
    assert (unchanged, forced.status, forced.body, events) == (True, 204, b"", ["db-0"])


REPEATED = {
    "add a VM": ("POST", "/v1/vms", {"name": "web-9", "scope": "web"}, 201),
    "add a standalone VM": ("POST", "/v1/vms", {"name": "alone"}, 201),
    "add a scope": ("POST", "/v1/scopes", {"id": "new", "kind": "cloud-service"}, 201),
    "change a VM": ("PATCH", "/v1/vms/web-0", {"host": "hv-7"}, 200),
    "change a scope": ("PATCH", "/v1/scopes/web", {"approval": "all"}, 200),
    "remove a VM": ("DELETE", "/v1/vms/web-0", None, 204),
    "remove a VM in full": ("DELETE", "/v1/vms/web/web-0", None, 204),
    "remove a standalone VM": ("DELETE", "/v1/vms/db-0?reason=x", None, 204),
    "remove a scope": ("DELETE", "/v1/scopes/shop", None, 204),
}


@pytest.mark.parametrize("case", REPEATED)
async def test_same_key_changes_nothing_again(case: str) -> None:
    method, path, body, status = REPEATED[case]
    async with run_api() as service:
        first = await service.request(method, path, body, Idempotency_Key="k")
        before = await service.stored_state()
        again = await service.request(method, path, body, Idempotency_Key="k")
        after = await service.stored_state()
        other_body = None if body is None else {**body, "host" if "vms" in path else "location": "elsewhere"}
        other_path = path if body is not None else f"{path}{'&' if '?' in path else '?'}force=true"
        other = await service.request(method, other_path, other_body, Idempotency_Key="k")
    assert (first.status, again.status, again.body, after) == (status, status, first.body, before)
    assert (other.status, other.code) == (409, "idempotency-key-reused")


async def test_same_key_of_another_caller_is_independent() -> None:
    async with run_api() as service:
        other = await service.token("other", Role.OPERATOR)
        for host, token in (("hv-7", TOKEN), ("hv-8", other), ("hv-7", TOKEN)):
            reply = await service.request("PATCH", "/v1/vms/web-0", {"host": host}, Idempotency_Key="k", token=token)
            assert reply.status == 200
        vm = await service.client(lambda api: api.vm("web-0"))
    assert vm.host == "hv-8"


async def test_concurrent_changes_are_all_applied() -> None:
    tags = ["location", "zone", "resource_group", "subscription"]
    async with run_api() as service:
        async with asyncio.TaskGroup() as tasks:
            for tag in tags:
                tasks.create_task(service.request("PATCH", "/v1/scopes/web", {tag: "new"}))
                tasks.create_task(service.request("PATCH", "/v1/vms/web-0", {tag: "newer"}))
        scope, vm = await service.client(lambda api: (api.scope("web"), api.vm("web-0")))
    assert [getattr(scope, tag) for tag in tags] == ["new"] * 4
    assert [getattr(vm, tag) for tag in tags] == ["newer"] * 4


async def test_escaped_name_is_not_found() -> None:
    async with run_api() as service:
        for name in ("a b", "%2e%2e/web-0", "web/web-0/x", "Ä", "web-0?x", "*"):
            with pytest.raises(NotFound):
                await service.client(lambda api, name=name: api.vm(name))  # type: ignore[misc]


IMPOSSIBLE: dict[str, tuple[str, str, object, int, str]] = {
    "unknown field": ("POST", "/v1/vms", {"name": "x", "hosts": "hv-1"}, 400, "invalid-request"),
    "unknown field of an address": (
        "POST", "/v1/vms", {"name": "x", "addresses": [{"ip": "10.0.0.1", "port": 1}]}, 400, "invalid-request",
    ),
    "number for a name": ("POST", "/v1/vms", {"name": 5}, 400, "invalid-request"),
    "no name": ("POST", "/v1/vms", {}, 400, "invalid-request"),
    "text for a number": ("POST", "/v1/vms", {"name": "x", "update_domain": "1"}, 400, "invalid-request"),
    "wrong notice": ("POST", "/v1/vms", {"name": "x", "terminate_notice": "soon"}, 400, "invalid-request"),
    "wrong parameter": ("DELETE", "/v1/vms/web-0?forced=true", None, 400, "invalid-request"),
    "wrong flag": ("DELETE", "/v1/vms/web-0?force=perhaps", None, 400, "invalid-request"),
    "wrong kind": ("GET", "/v1/scopes?kind=group", None, 400, "invalid-request"),
    "wrong kind of a new scope": ("POST", "/v1/scopes", {"id": "x", "kind": "group"}, 400, "invalid-request"),
    "field of another request": ("PATCH", "/v1/vms/web-0", {"name": "web-1"}, 400, "invalid-request"),
    "null for a required field": ("PATCH", "/v1/vms/web-0", {"update_domain": None}, 400, "invalid-request"),
    "invalid name": ("POST", "/v1/vms", {"name": "a/b"}, 422, "invalid-value"),
    "invalid address": ("POST", "/v1/vms", {"name": "x", "addresses": [{"ip": "10.0.0.256"}]}, 422, "invalid-value"),
    "invalid MAC": ("PATCH", "/v1/vms/web-0", {"addresses": [{"ip": "10.8.8.8", "mac": "x"}]}, 422, "invalid-value"),
    "invalid GUID": ("POST", "/v1/vms", {"name": "x", "vm_id": "5"}, 422, "invalid-value"),
    "notice too long": ("PATCH", "/v1/scopes/web", {"terminate_notice": "16m"}, 422, "invalid-value"),
    "too many tags": ("PATCH", "/v1/vms/web-0", {"tags": {str(n): "" for n in range(51)}}, 422, "invalid-value"),
    "auto-approval of another type": ("PATCH", "/v1/scopes/web", {"auto_approve": ["Freeze"]}, 422, "invalid-value"),
    "unknown scope": ("POST", "/v1/vms", {"name": "x", "scope": "nowhere"}, 404, "scope-not-found"),
    "unknown VM": ("PATCH", "/v1/vms/nothing", {"host": "hv-1"}, 404, "vm-not-found"),
    "VM of another scope": ("PATCH", "/v1/vms/shop/web-0", {"host": "hv-1"}, 404, "vm-not-found"),
    "unknown VM to remove": ("DELETE", "/v1/vms/nothing", None, 404, "vm-not-found"),
    "unknown scope to show": ("GET", "/v1/scopes/nowhere", None, 404, "scope-not-found"),
    "unknown scope to change": ("PATCH", "/v1/scopes/nowhere", {}, 404, "scope-not-found"),
    "unknown scope to remove": ("DELETE", "/v1/scopes/nowhere", None, 404, "scope-not-found"),
    "VMs of an unknown host": ("GET", "/v1/vms?host=nowhere", None, 404, "host-not-found"),
    "existing scope": ("POST", "/v1/scopes", {"id": "web", "kind": "standalone"}, 409, "scope-exists"),
    "scope in another case": ("POST", "/v1/scopes", {"id": "Web", "kind": "standalone"}, 409, "scope-exists"),
    "standalone VM in another case": ("POST", "/v1/vms", {"name": "DB-0"}, 409, "scope-exists"),
    "existing standalone VM": ("POST", "/v1/vms", {"name": "db-0"}, 409, "scope-exists"),
    "existing VM": ("POST", "/v1/vms", {"name": "WEB-0", "scope": "web"}, 409, "resource-exists"),
    "second VM of a standalone scope": ("POST", "/v1/vms", {"name": "db-1", "scope": "db-0"}, 422, "invalid-value"),
    "address of another VM": (
        "POST", "/v1/vms", {"name": "x", "addresses": [{"ip": "10.20.2.5"}]}, 409, "address-in-use",
    ),
    "change to the address of another VM": (
        "PATCH", "/v1/vms/web-0", {"addresses": [{"ip": "10.20.2.5"}]}, 409, "address-in-use",
    ),
    "address twice": (
        "POST", "/v1/vms", {"name": "x", "addresses": [{"ip": "10.8.8.8"}, {"ip": "10.8.8.8", "mac": "000d3a123456"}]},
        422, "invalid-value",
    ),
    "address twice in a change": (
        "PATCH", "/v1/vms/web-0", {"addresses": [{"ip": "10.8.8.8"}, {"ip": "10.8.8.8"}]}, 422, "invalid-value",
    ),
    "zone index": ("POST", "/v1/vms", {"name": "x", "addresses": [{"ip": "fe80::1%eth0"}]}, 422, "invalid-value"),
    "zone index in a change": (
        "PATCH", "/v1/vms/web-0", {"addresses": [{"ip": "fe80::1%1"}]}, 422, "invalid-value",
    ),
    "id of another VM, in another case": (
        "POST", "/v1/vms", {"name": "x", "vm_id": derived_id("vm", "web", "web-0").upper()}, 409, "vm-id-in-use",
    ),
    "id of another VM of the scope": (
        "POST", "/v1/vms", {"name": "x", "scope": "web", "vm_id": derived_id("vm", "web", "web-0")},
        409, "vm-id-in-use",
    ),
}  # fmt: skip


async def test_impossible_change_is_refused_and_changes_nothing() -> None:
    expected = {case: (status, code) for case, (_, _, _, status, code) in IMPOSSIBLE.items()}
    answers = {}
    async with run_api() as service:
        before = await service.stored_state()
        for case, (method, path, body, _, _) in IMPOSSIBLE.items():
            reply = await service.request(method, path, body)
            assert set(reply.json["error"]) == {"code", "message", "details"}, case
            assert await service.stored_state() == before, case
            answers[case] = (reply.status, reply.code)
    assert answers == expected


async def test_lost_host_is_given_up() -> None:
    async with run_api() as service:
        await service.fleet.cluster.hosts.claim("hv-0", "p", "a test", {})
        with pytest.raises(RequestRefused) as refused:
            await service.client(lambda api: api.give_up_host("hv-0", v1.AbandonHost(reason="fire")))
        assert refused.value.code == "host-running"
        await service.fleet.cluster.hosts.release("hv-0", "p")
        result = await service.client(lambda api: api.give_up_host("hv-0", v1.AbandonHost(reason="fire")))
        assert result == v1.AbandonedHost(name="hv-0", unknown_impacts=0)
