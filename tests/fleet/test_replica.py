"""The replica finds scopes, VMs and callers, and never goes back to an older value."""

import gc
import weakref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.scope import Scope
from forewarn.core.vm import VM_ID, Address, Roster, Vm
from forewarn.fleet.errors import AmbiguousVm, ScopeNotFound, VmNotFound
from forewarn.fleet.main_loop import RecordChange
from forewarn.fleet.replica import LongPollObserver, Replica
from tests.core.sample_scopes import TEN, scope, vm, web_scope


def replica_of(*scopes: Scope) -> Replica:
    """Make a replica that has taken these scopes."""
    replica = Replica()
    for revision, value in enumerate(scopes, start=1):
        replica.update(value.id, value, revision)
    return replica


def test_vm_is_found_by_its_full_name_and_by_its_bare_name_where_that_is_unambiguous() -> None:
    """`FrontEnd_IN_0` exists in every cloud service, so the scope's name can be put before it."""
    replica = replica_of(scope("shop", vm("FrontEnd_IN_0"), vm("Only_IN_0")), scope("bank", vm("FrontEnd_IN_0")))
    view, found = replica.find("bank/FrontEnd_IN_0")
    assert (view.id, found.name) == ("bank", "FrontEnd_IN_0")
    assert replica.find("only_in_0")[0].id == "shop"
    with pytest.raises(AmbiguousVm, match="shop/FrontEnd_IN_0 or bank/FrontEnd_IN_0"):
        replica.find("FrontEnd_IN_0")
    with pytest.raises(VmNotFound):
        replica.find("shop/nobody")
    with pytest.raises(ScopeNotFound):
        replica.find("nowhere/FrontEnd_IN_0")


def test_caller_is_known_by_network_and_address() -> None:
    """The same address in another network is another VM."""
    replica = replica_of(
        scope("blue", vm("b", ip="10.0.0.1", network="blue")), scope("red", vm("r", ip="10.0.0.1", network="red"))
    )
    found = replica.find_by_address("red", "10.0.0.1")
    assert found is not None
    assert found[1].name == "r"
    assert replica.find_by_address("red", "10.0.0.2") is None
    assert replica.find_by_address("green", "10.0.0.1") is None


def test_address_claimed_by_two_vms_belongs_to_neither() -> None:
    """As soon as one of them lets go, the other is served."""
    replica = replica_of(scope("one", vm("a", ip="10.0.0.1")), scope("two", vm("b", ip="10.0.0.1")))
    assert replica.find_by_address("default", "10.0.0.1") is None
    assert [found.name for _, found in replica.claims("default", "10.0.0.1")] == ["a", "b"]
    replica.update("one", scope("one", vm("a", ip="10.0.0.9")), 7)
    found = replica.find_by_address("default", "10.0.0.1")
    assert found is not None
    assert found[1].name == "b"


def test_older_revision_is_ignored() -> None:
    """Own saves and the watch may bring the same value twice, or an old one late."""
    replica = replica_of(web_scope())
    newer = msgspec.structs.replace(web_scope(), incarnation=5)
    replica.update("web", newer, 9)
    replica.update("web", web_scope(), 9)
    replica.update("web", web_scope(), 8)
    assert replica.newest("web") == (newer, 9)


def test_removed_scope_leaves_no_name_and_no_address_behind() -> None:
    """The indexes follow."""
    replica = replica_of(web_scope())
    assert replica.vms == 6
    replica.update("web", None, 2)
    assert replica.vms == 0
    assert replica.find_by_address("default", "10.0.0.1") is None
    assert replica.newest("web") == (None, None)
    with pytest.raises(VmNotFound):
        replica.find("web-0")


def test_nothing_is_kept_of_removed_scopes() -> None:
    """In a fleet with many short-lived scopes, memory would grow without limit."""
    replica = replica_of(web_scope())
    gone = weakref.ref(replica.view("web"))
    replica.update("web", None, 2)
    replica.forget("web", 1)
    replica.update("web", web_scope(), 1)
    assert replica.newest("web") == (None, None), "an older value may yet come"
    replica.forget("web", 2)
    gc.collect()
    assert (gone(), replica._views, dict(replica._gone)) == (None, {}, {})


def test_view_of_a_removed_scope_shows_it_when_it_is_created_again() -> None:
    replica = replica_of(web_scope())
    view = replica.view("web")
    replica.update("web", None, 2)
    replica.forget("web", 2)
    assert replica.get_or_create_view("web") is view
    replica.update("web", web_scope(), 3)
    assert replica.view("web") is view
    replica.forget("web", 2)
    assert replica.view("web") is view


def test_index_follows_added_changed_and_removed_vms() -> None:
    """Only changed VMs are indexed again."""
    replica = replica_of(web_scope())
    first, *rest = web_scope().roster.vms
    moved = msgspec.structs.replace(first, addresses=vm("x", ip="10.0.9.9").addresses)
    changed = msgspec.structs.replace(web_scope(), roster=Roster((moved, *rest[:-1], vm("web-9", ip="10.0.0.99"))))
    replica.update("web", changed, 2)
    names = [(ip, found[1].name if (found := replica.find_by_address("default", ip)) else None) for ip in ADDRESSES]
    assert names == [("10.0.0.1", None), ("10.0.9.9", "web-0"), ("10.0.0.6", None), ("10.0.0.99", "web-9")]


ADDRESSES = ("10.0.0.1", "10.0.9.9", "10.0.0.6", "10.0.0.99")


def test_change_of_a_host_leaves_the_addresses_untouched() -> None:
    """Guests compare the number of changes, and an import changes the hosts of many VMs."""
    replica = replica_of(web_scope())
    changes = replica.address_index("default").changes
    moved = Roster(tuple(msgspec.structs.replace(vm, host="hv-new") for vm in web_scope().roster))
    replica.update("web", msgspec.structs.replace(web_scope(), roster=moved), 2)
    assert [vm.name for _, vm in replica.hosts()["hv-new"]] == [vm.name for vm in web_scope().roster]
    assert replica.address_index("default").changes == changes


IPS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
HOSTS = (None, "hv-0", "hv-1")
IDS = tuple(f"{n}" * 8 + "-0000-0000-0000-000000000000" for n in "abA")

rosters = st.dictionaries(
    st.sampled_from(["v0", "v1", "v2"]),
    st.tuples(st.sampled_from(HOSTS), st.sampled_from(IDS), st.sets(st.sampled_from(IPS), max_size=2)),
).map(
    lambda vms: Roster(
        tuple(
            Vm(name=name, vm_id=id_, host=host, addresses=tuple(Address(ip=ip) for ip in sorted(ips)))
            for name, (host, id_, ips) in vms.items()
        )
    )
)


def index_of(replica: Replica) -> object:
    """Return everything that can be looked up."""
    networks = {"default": IPS, VM_ID: [id_.lower() for id_ in IDS]}
    return (
        {
            key: sorted((view.id, vm.name) for view, vm in replica.claims(network, key))
            for network, keys in networks.items()
            for key in keys
        },
        {host: sorted((view.id, vm.name) for view, vm in vms) for host, vms in replica.hosts().items()},
        {key for network, keys in networks.items() for key in keys if key in replica.address_index(network)},
        replica.vms,
    )


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | rosters), max_size=12))
def test_index_after_any_changes_is_that_of_the_last_values(
    updates: list[tuple[str, Roster | None]],
) -> None:
    replica = Replica()
    last: dict[str, Scope | None] = {}
    for revision, (id_, roster) in enumerate(updates, start=1):
        last[id_] = None if roster is None else msgspec.structs.replace(scope(id_), roster=roster)
        replica.update(id_, last[id_], revision)
    assert index_of(replica) == index_of(replica_of(*filter(None, last.values())))


def take(replica: Replica, scope: Scope | None, revision: int) -> None:
    """Take a value of the scope web, as the main loop does."""
    before, _ = replica.newest("web")
    replica.update("web", scope, revision)
    LongPollObserver(replica).observe(RecordChange("web", before, scope))


def test_waiters_are_called_once_when_the_document_changes_and_not_before() -> None:
    """What changes neither epoch nor incarnation changes no document."""
    replica, called = Replica(), list[str]()
    take(replica, web_scope(), 1)
    view = replica.view("web")
    view.wait_for_change(lambda: called.append("waited"))
    dropped = lambda: called.append("dropped")  # noqa: E731 - the same object is forgotten again
    view.wait_for_change(dropped)
    view.cancel_wait(dropped)
    view.prepared["2020-07-01"] = b"..."
    take(replica, msgspec.structs.replace(web_scope(), entries=3), 2)
    assert (called, view.prepared) == ([], {"2020-07-01": b"..."})
    take(replica, msgspec.structs.replace(web_scope(), incarnation=2), 3)
    take(replica, msgspec.structs.replace(web_scope(), incarnation=3), 4)
    assert (called, view.prepared) == (["waited"], {})


def test_waiters_are_called_when_the_scope_is_removed() -> None:
    """No long poll waits for a removed scope."""
    replica, called = Replica(), list[str]()
    take(replica, web_scope(), 1)
    replica.view("web").wait_for_change(lambda: called.append("gone"))
    take(replica, None, 2)
    assert called == ["gone"]


def test_last_polls_of_removed_vms_are_forgotten() -> None:
    replica = Replica()
    replica.update("web", scope("web", vm("web-0"), vm("web-1")), 1)
    view = replica.view("web")
    view.polled_at |= {"web-0": TEN, "web-1": TEN}
    replica.update("web", scope("web", vm("web-1")), 2)
    assert view.polled_at == {"web-1": TEN}
