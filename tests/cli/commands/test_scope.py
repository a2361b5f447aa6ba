"""Scopes from the command line."""

from tests.cli.in_process import run, run_details, run_json
from tests.cli.service_machine import ServiceMachine


def test_scope_is_added_changed_and_removed(inventory_machine: ServiceMachine) -> None:
    added = run_json(
        inventory_machine, "scope", "add", "new", "--kind", "availability-set", "--approval", "all", "--priority", "low"
    )
    assert (added["id"], added["approval"], added["priority"]) == ("new", "all", "low")
    changed = run_details(
        inventory_machine, "scope", "change", "new", "--auto-approve", "reboot", "--clear", "priority"
    )
    assert (changed["starts at once"], "priority" in changed) == ("Reboot", False)
    assert run_json(inventory_machine, "scope", "change", "new", "--clear", "auto-approve")["auto_approve"] == []
    removed = run(inventory_machine, "scope", "remove", "new", "--reason", "a trial")
    assert (removed.code, removed.stderr) == (0, "Scope new and its VMs are removed.\n")
    assert run(inventory_machine, "scope", "show", "new").code == 4
