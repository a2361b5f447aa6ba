"""Fleets for tests: the demonstration, a file, its text or content, or names of VMs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.api.fleet_file import CreationContext, demonstration_fleet
from forewarn.core.scope import ScopeKind
from forewarn.settings.file_reader import FileError
from forewarn.testing.fleet_loader import FleetLike, fleet_reader

CONTEXT = CreationContext(datetime(2026, 3, 2, 10, tzinfo=UTC), lambda: "e1")
TEXT = '[[scopes]]\nname = "db"\nkind = "standalone"\n'


def vms(fleet: FleetLike) -> list[str]:
    return [f"{scope.id}/{vm.name}" for scope in fleet_reader(fleet)(CONTEXT) for vm in scope.roster]


def test_no_fleet_is_the_demonstration() -> None:
    assert fleet_reader(None)(CONTEXT) == demonstration_fleet(CONTEXT)


def test_fleet_is_read_from_text_content_or_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(TEXT)
    fleets: list[FleetLike] = [TEXT, {"scopes": [{"name": "db", "kind": "standalone"}]}, tmp_path / "fleet.toml"]
    assert [vms(fleet) for fleet in fleets] == [["db/db"]] * 3


def test_missing_file_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        fleet_reader(tmp_path / "none.toml")


def test_names_make_standalone_vms_and_availability_sets() -> None:
    scopes = fleet_reader(["web/web-0", "db-0", "web/web-1"])(CONTEXT)
    assert {scope.id: (scope.kind, [(vm.name, vm.update_domain) for vm in scope.roster]) for scope in scopes} == {
        "web": (ScopeKind.AVAILABILITY_SET, [("web-0", 0), ("web-1", 1)]),
        "db-0": (ScopeKind.STANDALONE, [("db-0", 0)]),
    }


def test_wrong_fleet_is_refused_by_its_key() -> None:
    with pytest.raises(FileError, match=r"^fleet: scopes\[0\]"):
        vms({"scopes": [{"name": "db", "kind": "pool"}]})
