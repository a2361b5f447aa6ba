"""Reconciling a scope with a fleet file: no address is assigned twice, and refused VMs stay unchanged."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import reconcile as reshaping
from forewarn.core.errors import Invalid
from forewarn.core.impact_lifecycle import Worker, begin
from forewarn.core.policy import EMULATOR, PRODUCTION, RuleContext
from forewarn.core.reconcile import plan_changes, reconcile
from forewarn.core.schedule import schedule
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster, Traits, UniqueKey, Vm, unique_keys
from tests.core.builders import a_request
from tests.core.sample_scopes import TEN, scope, vm

CHAIN = 200


def group(addresses: dict[str, int | None]) -> Scope:
    """Return a scope of VMs with these addresses."""
    return scope(
        "web", *(vm(name, ip=None if n is None else f"10.0.{n // 250}.{n % 250 + 1}") for name, n in addresses.items())
    )


def test_address_that_its_owner_keeps_is_refused_to_another_vm() -> None:
    found = plan_changes(group({"a": 1, "b": 2}), group({"a": 2, "c": 3}), prune=False)
    assert found.refused == {"a": "address 10.0.0.3 in network default belongs to b"}
    assert plan_changes(group({"a": 1, "b": 2}), group({"a": 2, "c": 3}), prune=True).refused == {}


def test_addresses_can_be_exchanged() -> None:
    wanted = group({"a": 2, "b": 1})
    change = reconcile(group({"a": 1, "b": 2}), wanted, RuleContext(policy=PRODUCTION), by="ann", now=TEN, prune=False)
    assert change.scope is not None
    assert change.scope.roster == wanted.roster


def test_cascade_of_refusals_checks_each_vm_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each VM should get the address of the next one, and the last VM must keep its own."""
    looked = 0

    def places(one: Vm) -> set[UniqueKey]:
        nonlocal looked
        looked += 1
        return unique_keys(one)

    monkeypatch.setattr(reshaping, "unique_keys", places)
    present = group({f"v{n}": n for n in range(CHAIN)})
    wanted = group({f"v{n}": n + 1 for n in range(CHAIN)})
    found = plan_changes(present, wanted, prune=False, refused={f"v{CHAIN - 1}": "it is busy"})
    assert len(found.refused) == CHAIN
    assert looked < 10 * CHAIN


ADDRESSES = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(1, 8))


def unique(addresses: dict[str, int | None]) -> dict[str, int | None]:
    """Remove addresses that another VM already has."""
    first = {n: name for name, n in reversed(addresses.items()) if n is not None}
    return {name: n if n is not None and first[n] == name else None for name, n in addresses.items()}


@given(
    before=ADDRESSES.map(unique),
    after=ADDRESSES.map(unique),
    refused=st.sets(st.sampled_from("abcdef")),
    prune=st.booleans(),
)
def test_no_address_has_two_owners_and_refused_vms_stay_unchanged(
    before: dict[str, int | None], after: dict[str, int | None], refused: set[str], prune: bool
) -> None:
    present, wanted = group(before), group(after)
    why = dict.fromkeys(refused & after.keys(), "it is busy")
    change = reconcile(present, wanted, RuleContext(policy=PRODUCTION), by="ann", now=TEN, prune=prune, refused=why)
    assert change.scope is not None
    owned = [(address.network, address.ip) for each in change.scope.roster for address in each.addresses]
    assert len(owned) == len(set(owned))
    for name in before.keys() | after.keys():
        old, new, target = present.roster.find(name), change.scope.roster.find(name), wanted.roster.find(name)
        if name in change.result.refused:
            assert new == old
        elif name in after or prune:
            assert new == target
        else:
            assert new == old


@pytest.mark.parametrize("name", ["a", "b"], ids=["changed", "added"])
def test_tags_that_exceed_the_limit_together_with_those_of_the_scope_are_refused(name: str) -> None:
    half = {f"tag-{n}": "x" for n in range(26)}
    other = {f"other-{n}": "x" for n in range(26)}
    present = msgspec.structs.replace(group({"a": 1}), traits=Traits(tags=half))
    vms = {each: vm(each, ip=f"10.0.0.{n}") for n, each in enumerate("ab", start=2)}
    vms[name] = msgspec.structs.replace(vms[name], traits=Traits(tags=other))
    wanted = msgspec.structs.replace(present, roster=Roster(tuple(vms.values())))
    with pytest.raises(Invalid, match="tags"):
        reconcile(present, wanted, RuleContext(policy=PRODUCTION), by="ann", now=TEN, prune=False)


def test_vm_on_which_its_host_works_is_not_moved() -> None:
    before = scope("web", vm("a", host="hv-0"), vm("b", host="hv-0"))
    started = schedule(before, a_request("a", failure=True), RuleContext(policy=EMULATOR), now=TEN)
    assert started.scope is not None
    begun = begin(started.scope, started.result[0], "a", now=TEN, worker=Worker("hv-0", 1)).scope
    assert begun is not None
    found = plan_changes(begun, scope("web", vm("a", host="hv-1"), vm("b", host="hv-1")), prune=False)
    assert list(found.refused) == ["a"]
