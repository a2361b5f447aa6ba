"""A property of VMs is declared once, in the core; the API, the fleet file and the command line have it from there."""

from pathlib import Path

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.v1 import traits
from tests.api.v1.extended_package import extended_package, schemas_with_property
from tests.api.v1.stubs import check_stub
from tests.support.program import Machine

HEAD = """\
# Generated from the derived types: pytest tests/api/v1/test_traits.py --rewrite
from msgspec import UnsetType

from forewarn.api.v1.common import Request
from forewarn.api.v1.derived_types import DerivedTypes
from forewarn.core.vm import Os, Priority

REQUESTS: DerivedTypes
CHANGES: DerivedTypes
RESPONSES: DerivedTypes
"""
RACK = '    rack: Annotated[Text | None, Meta(description="The rack.")] = None\n'
FLEET = """
[defaults]
rack = "r0"

[[scopes]]
name = "web"
kind = "availability-set"
vms = [{ name = "web-0" }, { name = "web-1", rack = "r1" }]
"""


def test_type_checkers_see_the_fields_of_derived_types(rewrite: bool) -> None:
    check_stub(traits, HEAD, "", rewrite=rewrite)


@pytest.mark.parametrize("request_", [v1.AddScope, v1.AddVm, v1.ChangeScope, v1.ChangeVm])
def test_schema_of_a_request_has_the_bounds_of_the_terminate_notice(request_: type[msgspec.Struct]) -> None:
    _, schemas = msgspec.json.schema_components((request_,))
    assert schemas[request_.__name__]["properties"]["terminate_notice"]["description"] == "Allowed: 5m to 15m."


@pytest.mark.process
def test_new_property_of_vms_needs_one_line(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    (file := home / "fleet.toml").write_text(FLEET)
    machine = Machine(home)
    machine.environment["PYTHONPATH"] = str(
        extended_package(tmp_path / "package", "core/vm.py", RACK, before="    os: Annotated[")
    )
    with machine.up("--ephemeral", "--fleet", str(file)) as service:
        assert [vm["rack"] for vm in machine.run_json("vm", "list")] == ["r0", "r1"]
        assert machine.run_json("vm", "add", "web/web-2", "--rack", "r2")["rack"] == "r2"
        assert machine.run_json("vm", "change", "web/web-2", "--clear", "rack")["rack"] == "r0"
        assert machine.run_json("scope", "change", "web", "--rack", "r3")["rack"] == "r3"
        assert "rack           r3\n" in machine.run("vm", "show", "web/web-2").stdout
        exported = machine.run("fleet", "export").stdout
        assert 'rack = "r3"' in exported
        file.write_text(exported)
        assert machine.run_json("fleet", "import", str(file), "--dry-run")["differences"] == []
        file.write_text(exported.replace("r3", "r4"))
        (difference,) = machine.run_json("fleet", "import", str(file), "--dry-run")["differences"]
        assert difference["fields"] == {"rack": ["r3", "r4"]}
        shapes = ("AddScope", "AddVm", "ChangeScope", "ChangeVm", "Scope", "Vm")
        assert schemas_with_property(service, "rack") == sorted(shapes)
