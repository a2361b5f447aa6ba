"""The layout of a simulated cell: every VM is in one scope and on one host, and the same in both directions."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from forewarn.core.scope import ScopeKind
from forewarn.testing.simulation.layout import (
    VMS_PER_HOST,
    FleetLayout,
    host_name,
    host_number,
    scope_name,
    scope_number,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("vms", [1, 2, 7, 49, 50, 51, 110, 1_000, 5_003])
def test_every_vm_has_one_scope_and_one_host(vms: int) -> None:
    layout = FleetLayout(vms=vms, cell=0, seed=1)
    by_scope = [vm for scope in range(layout.scopes) for vm in layout.vms_of(scope)]
    assert by_scope == list(range(vms))
    assert all(vm in layout.vms_of(layout.scope_of(vm)) for vm in range(vms))
    by_host = {vm: host for host in range(layout.hosts) for vm in layout.vms_on(host)}
    assert by_host == {vm: layout.host_of(vm) for vm in range(vms)}
    assert max(Counter(by_host.values()).values()) <= VMS_PER_HOST


def test_scope_is_valid_and_spread_over_hosts_and_update_domains() -> None:
    layout = FleetLayout(vms=5_000, cell=3, seed=1)
    large = next(number for number in range(layout.scopes) if len(layout.vms_of(number)) == 50)
    scope = layout.create_scope(large, NOON)
    assert (scope.id, scope.kind, len(scope.roster)) == (scope_name(large), ScopeKind.AVAILABILITY_SET, 50)
    assert len({vm.host for vm in scope.roster}) == 50
    assert {vm.update_domain for vm in scope.roster} == {0, 1, 2, 3, 4}
    numbers = [layout.vm_number(large, vm.name) for vm in scope.roster]
    assert numbers == list(layout.vms_of(large))
    assert [host_number(vm.host or "") for vm in scope.roster] == [layout.host_of(vm) for vm in numbers]
    assert layout.create_scope(0, NOON).kind is ScopeKind.STANDALONE


def test_behaviour_depends_on_seed_and_cell_and_has_the_stated_shares() -> None:
    layout = FleetLayout(vms=100_000, cell=0, seed=1)
    found = [layout.profile(scope) for scope in range(10_000)]
    assert found == [FleetLayout(vms=100_000, cell=0, seed=1).profile(scope) for scope in range(10_000)]
    for other in (FleetLayout(vms=100_000, cell=1, seed=1), FleetLayout(vms=100_000, cell=0, seed=2)):
        assert found != [other.profile(scope) for scope in range(10_000)]
    shares = Counter(profile.poll_interval for profile in found)
    expected = {1: 6_000, 5: 2_500, 30: 500, None: 1_000}
    assert all(abs(shares[interval] - count) < 200 for interval, count in expected.items())
    assert all(profile.approval_delay is None for profile in found if profile.poll_interval is None)


def test_names_and_numbers_match() -> None:
    assert (scope_number(scope_name(42)), host_number(host_name(7))) == (42, 7)
