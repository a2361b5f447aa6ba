"""Which VMs a selection matches: the union of its keys, minus the exclusions."""

from typing import Any

import pytest

from forewarn.core.campaign.selection import Selector, is_selected
from forewarn.core.campaign.spec import Selection
from forewarn.core.scope import Scope
from forewarn.core.vm import Traits
from tests.core.builders import a_scope, a_vm

WEB = a_scope(
    [
        a_vm("web_0", host="hv-0", traits=Traits(tags={"tier": "front", "env": "prod"})),
        a_vm("web_1", host="hv-1", traits=Traits(tags={"env": "test"})),
        a_vm("web_2"),
    ],
    id="web-1",
    traits=Traits(tags={"tier": "back", "team": "a"}),
)
DB = a_scope([a_vm("db_0", host="hv-1"), a_vm("DB_1", host="hv-2")], id="db", traits=Traits(tags={"env": "prod"}))
FLEET = (WEB, DB)


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ({"all": True}, "web_0 web_1 web_2 db_0 DB_1"),
        ({"scopes": ("web-1",)}, "web_0 web_1 web_2"),
        ({"scopes": ("web-*", "nowhere")}, "web_0 web_1 web_2"),
        ({"scopes": ("web",)}, ""),
        ({"scopes": ("WEB-1",)}, ""),
        ({"hosts": ("hv-1",)}, "web_1 db_0"),
        ({"hosts": ("hv-[12]",)}, "web_1 db_0 DB_1"),
        ({"tags": {"env": "prod"}}, "web_0 db_0 DB_1"),
        ({"tags": {"tier": "back"}}, "web_1 web_2"),
        ({"tags": {"env": "prod", "team": "a"}}, "web_0"),
        ({"scopes": ("db",), "hosts": ("hv-0",)}, "web_0 db_0 DB_1"),
        ({"hosts": ("hv-2",), "tags": {"env": "test"}}, "web_1 DB_1"),
        ({"all": True, "exclude_scopes": ("w*",)}, "db_0 DB_1"),
        ({"all": True, "exclude_hosts": ("hv-1", "hv-2")}, "web_0 web_2"),
        ({"all": True, "exclude_vms": ("web-1/web_0", "db_1")}, "web_1 web_2 db_0"),
        ({"all": True, "exclude_vms": ("*/*_0",)}, "web_1 web_2 DB_1"),
        ({"all": True, "exclude_vms": ("db/web_0",)}, "web_0 web_1 web_2 db_0 DB_1"),
        ({"all": True, "exclude_tags": {"env": "test", "tier": "front"}}, "web_2 db_0 DB_1"),
        ({"scopes": ("web-1",), "exclude_tags": {"team": "a"}}, ""),
        ({"hosts": ("hv-1",), "exclude_scopes": ("db",)}, "web_1"),
    ],
)
def test_selection_matches(fields: dict[str, Any], chosen: str) -> None:
    selection = Selection(**fields)
    assert [vm.name for scope in FLEET for vm in Selector(selection).select(scope)] == chosen.split()
    assert [vm.name for scope in FLEET for vm in scope.roster if is_selected(selection, scope, vm)] == chosen.split()


@pytest.mark.parametrize("scope", FLEET, ids=lambda scope: scope.id)
def test_tags_are_the_effective_ones_of_the_vm(scope: Scope) -> None:
    for vm in scope.roster:
        tags = scope.traits_of(vm).tags or {}
        assert all(is_selected(Selection(tags={name: value}), scope, vm) for name, value in tags.items())
        assert not is_selected(Selection(tags=tags | {"no": "such tag"}), scope, vm)
