"""The fleet file from the command line, and the lists of scopes, VMs and hosts."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.fleet.importer import apply_import, compare_fleet
from forewarn.operator import import_job
from forewarn.operator.import_job import ImportJob
from tests.cli.in_process import run, run_details, run_json, run_live, run_on_terminal, run_table
from tests.cli.service_machine import INVENTORY, ServiceMachine, run_service_machine


def test_inventory_is_listed_and_shown(inventory_machine: ServiceMachine) -> None:
    scopes = run_table(inventory_machine, "scope", "list")
    assert scopes[0] == ["SCOPE", "KIND", "VMS", "OPEN EVENTS", "ENABLED", "LAST SEEN"]
    assert [row[:5] for row in scopes[1:]] == [
        ["db", "standalone", "1", "0", "no"],
        ["web", "availability-set", "2", "0", "no"],
    ]
    assert [scope["id"] for scope in run_json(inventory_machine, "scope", "list", "--kind", "standalone")] == ["db"]
    assert run_table(inventory_machine, "host", "list") == [
        ["HOST", "VMS", "OPEN EVENTS", "SCOPES"],
        ["hv-0", "1", "0", "web"],
        ["hv-1", "1", "0", "web"],
    ]
    assert run_details(inventory_machine, "host", "show", "hv-0") == {
        "host": "hv-0",
        "scopes": "web",
        "VMs": "web/web-0",
    }
    assert run_json(inventory_machine, "host", "show", "hv-0")["vms"] == ["web/web-0"]
    shown = run_details(inventory_machine, "vm", "show", "web-0")
    assert (shown["VM"], shown["host"], shown["addresses"]) == ("web/web-0", "hv-0", "10.0.0.1")
    assert run_details(inventory_machine, "scope", "show", "web")["update domains"] == "0, 1"
    assert run_json(inventory_machine, "scope", "show", "web")["vm_count"] == 2


def test_hold_is_shown_by_every_listing(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "hold", "rack 4 burns", "--scope", "web")
    assert [row[-1] for row in run_table(inventory_machine, "vm", "list")] == [
        "HELD",
        "",
        *["held by admin: rack 4 burns"] * 2,
    ]
    assert [row[-1] for row in run_table(inventory_machine, "scope", "list")] == [
        "HELD",
        "",
        "held by admin: rack 4 burns",
    ]
    assert [scope["id"] for scope in run_json(inventory_machine, "scope", "list", "--held")] == ["web"]
    assert "rack 4 burns" in run_details(inventory_machine, "vm", "show", "web-0")["held"]
    assert (
        "the scope is held by admin: rack 4 burns"
        in run(inventory_machine, "event", "schedule", "Reboot", "web-0").stdout
    )
    run(inventory_machine, "hold", "everything burns")
    for listing in (
        ("vm", "list"),
        ("scope", "list"),
        ("host", "list"),
        ("event", "list"),
        ("vm", "list", "-o", "json"),
    ):
        assert "All planned maintenance is held by admin since" in run(inventory_machine, *listing).stderr


def test_fleet_is_exported_and_imported_unchanged(inventory_machine: ServiceMachine) -> None:
    assert run(inventory_machine, "fleet", "export", "all.toml").stderr == "Exported the fleet to all.toml.\n"
    exported = (inventory_machine.home / "all.toml").read_text()
    assert run(inventory_machine, "fleet", "export").stdout == exported
    again = run(inventory_machine, "fleet", "import", "all.toml", "--prune")
    assert (again.code, again.stdout) == (0, "")
    assert again.stderr.startswith("0 added, 0 changed, 0 removed, ")
    run(inventory_machine, "fleet", "export", "all.json")
    as_json = (inventory_machine.home / "all.json").read_text()
    assert {scope["name"] for scope in json.loads(as_json)["scopes"]} == {"db", "web"}
    assert run(inventory_machine, "fleet", "export", "-o", "json").stdout == as_json
    assert run_json(inventory_machine, "fleet", "import", "all.json")["differences"] == []
    assert [path.name for path in inventory_machine.home.iterdir() if path.name.startswith(".all")] == []


def test_import_shows_and_applies_the_differences(inventory_machine: ServiceMachine) -> None:
    (inventory_machine.home / "wanted.toml").write_text(
        INVENTORY.replace("count = 2", "count = 3").replace('"hv-1"', '"hv-9"')
    )
    tried = run(inventory_machine, "fleet", "import", "wanted.toml", "--dry-run")
    assert tried.code == 0
    assert tried.stdout.splitlines()[:2] == ["~ web/web-1", "    host: hv-1 → hv-9"]
    assert "+ web/web-2" in tried.stdout.splitlines()
    assert tried.stderr.startswith("Dry run, nothing was changed: 1 VM added, 1 VM changed, 0 removed")
    assert run(inventory_machine, "vm", "show", "web-2").code == 4
    done = run(inventory_machine, "fleet", "import", "wanted.toml")
    assert (done.code, done.stdout) == (0, tried.stdout)
    assert run_json(inventory_machine, "vm", "show", "web-1")["host"] == "hv-9"
    assert run_json(inventory_machine, "vm", "show", "web-2")["scope"] == "web"


def test_import_can_come_from_stdin(inventory_machine: ServiceMachine) -> None:
    assert run(inventory_machine, "fleet", "import", "-", "--dry-run", stdin=INVENTORY).code == 0


def test_prune_requires_confirmation(inventory_machine: ServiceMachine) -> None:
    (inventory_machine.home / "less.toml").write_text(INVENTORY.replace("count = 2", "count = 1"))
    asked = run(inventory_machine, "fleet", "import", "less.toml", "--prune")
    assert (asked.code, asked.stdout) == (2, "")
    assert asked.stderr.splitlines()[0] == "- web/web-1"
    assert "1 VM would be removed; to confirm, add --yes" in asked.stderr
    assert run_json(inventory_machine, "vm", "show", "web-1")["scope"] == "web"
    done = run(inventory_machine, "fleet", "import", "less.toml", "--prune", "--yes")
    assert (done.code, done.stdout) == (0, "- web/web-1\n")
    assert run(inventory_machine, "vm", "show", "web-1").code == 4


@pytest.mark.parametrize(("answer", "code", "is_there"), [("n", 1, True), ("y", 0, False)])
def test_prune_shows_what_it_would_remove_and_asks(
    inventory_machine: ServiceMachine, answer: str, code: int, is_there: bool
) -> None:
    (inventory_machine.home / "less.toml").write_text(INVENTORY.replace("count = 2", "count = 1"))
    ended = run_live(inventory_machine, "fleet", "import", "less.toml", "--prune", columns=100, stdin=f"{answer}\n")
    shown, question, _ = ended.stdout.partition("Remove 1 VM? [y/N]")
    assert (ended.code, bool(question), "- web/web-1" in shown) == (code, True, True), ended.stdout
    assert ("web-1" in [vm["name"] for vm in run_json(inventory_machine, "vm", "list")]) is is_there


def test_large_import_shows_progress(inventory_machine: ServiceMachine) -> None:
    (inventory_machine.home / "more.toml").write_text(
        INVENTORY + "".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(200))
    )
    shown = "\n".join(run_on_terminal(inventory_machine, "fleet", "import", "more.toml", columns=100))
    assert "Importing" in shown
    assert "more lines; to see all, redirect the output to a file or use -o json." in shown


@pytest.mark.parametrize("columns", [80, 200])
def test_listings_fit_the_terminal_and_keep_the_reason_of_a_hold(
    inventory_machine: ServiceMachine, columns: int
) -> None:
    reason = "the switch in rack 4 is being replaced, and nobody knows for how long"
    run(inventory_machine, "hold", reason, "--scope", "web")
    for listing in ("scope list", "vm list", "journal", "vm show web-0", "scope show web"):
        shown = [
            re.sub("\x1b\\[[0-9;]*m", "", line)
            for line in run_on_terminal(inventory_machine, *listing.split(), columns=columns)
        ]
        assert max(map(len, shown)) <= columns, listing
        assert reason in " ".join(" ".join(shown).split()), listing


def test_partly_refused_import_is_reported(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "event", "schedule", "Reboot", "web-1")
    (inventory_machine.home / "less.toml").write_text(INVENTORY.replace("count = 2", "count = 1"))
    ended = run(inventory_machine, "fleet", "import", "less.toml", "--prune", "--yes")
    assert (ended.code, "refused: " in ended.stdout, "1 refused" in ended.stderr) == (3, True, True)
    assert run_json(inventory_machine, "vm", "show", "web-1")["scope"] == "web"


def test_wrong_fleet_file_is_refused_with_the_reason(inventory_machine: ServiceMachine) -> None:
    (inventory_machine.home / "wrong.toml").write_text('[[scopes]]\nname = "x"\nkind = "pile"\n')
    ended = run(inventory_machine, "fleet", "import", "wrong.toml")
    assert (ended.code, ended.stderr.startswith('forewarn: wrong.toml:3: scopes[0].kind: "pile" is not allowed')) == (
        2,
        True,
    )
    (inventory_machine.home / "wrong.toml").write_text("scopes = [\n  7 8\n")
    ended = run(inventory_machine, "fleet", "import", "wrong.toml")
    assert (ended.code, ended.stderr.startswith("forewarn: wrong.toml: invalid TOML: ")) == (2, True)
    assert "line 2, column" in ended.stderr


def test_export_to_an_unwritable_file_is_reported(inventory_machine: ServiceMachine) -> None:
    ended = run(inventory_machine, "fleet", "export", "/nowhere/fleet.toml")
    assert (ended.code, ended.stderr) == (
        1,
        "forewarn: cannot write /nowhere/fleet.toml: No such file or directory\n",
    )


def test_failed_export_keeps_the_old_file(inventory_machine: ServiceMachine, tmp_path: Path) -> None:
    file = inventory_machine.home / "fleet.json"
    file.write_text("mine")
    ended = run(inventory_machine, "fleet", "export", "fleet.json", FOREWARN_TOKEN="wrong")
    assert (ended.code, file.read_text()) == (3, "mine")


def test_colours_only_on_terminals_without_no_color(inventory_machine: ServiceMachine) -> None:
    run(inventory_machine, "event", "schedule", "Reboot", "web-0", "--failure")
    coloured = "\n".join(run_on_terminal(inventory_machine, "event", "list", columns=120))
    assert "\x1b[33mStarted" in coloured
    inventory_machine.environment["NO_COLOR"] = "1"
    assert "\x1b[" not in "\n".join(run_on_terminal(inventory_machine, "event", "list", columns=120))
    del inventory_machine.environment["NO_COLOR"]
    assert "\x1b[" not in run(inventory_machine, "event", "list").stdout


@pytest.mark.parametrize(
    ("options", "said", "added"),
    [
        ((), "Canceled: 4 of 12 scopes are done and stay changed, the others are as before. Run the command again", 4),
        (("--dry-run",), "Canceled; nothing was changed.", 0),
    ],
    ids=["import", "dry run"],
)
def test_interrupted_import_is_canceled_on_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str, added: int
) -> None:
    many = "".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(12))
    is_reached, is_canceled = threading.Event(), threading.Event()
    cancel = ImportJob.cancel

    def cancel_and_tell(job: ImportJob, by: str) -> None:
        cancel(job, by)
        is_canceled.set()

    async def wait_and_apply(*args: Any, **kwargs: Any) -> None:
        is_reached.set()
        await asyncio.to_thread(is_canceled.wait, 60)
        await apply_import(*args, **kwargs)

    async def wait_and_compare(*args: Any, **kwargs: Any) -> Any:
        if options:
            is_reached.set()
            await asyncio.to_thread(is_canceled.wait, 60)
        return await compare_fleet(*args, **kwargs)

    def interrupted(self: ApiClient, *args: Any, **kwargs: Any) -> Iterator[v1.ImportProgress]:
        yield next(importing(self, *args, **kwargs))
        is_reached.wait(60)
        raise KeyboardInterrupt

    importing = ApiClient.import_fleet
    monkeypatch.setattr(ImportJob, "cancel", cancel_and_tell)
    monkeypatch.setattr(import_job, "apply_import", wait_and_apply)
    monkeypatch.setattr(import_job, "compare_fleet", wait_and_compare)
    monkeypatch.setattr(ApiClient, "import_fleet", interrupted)
    with run_service_machine(tmp_path, INVENTORY) as machine:
        (tmp_path / "many.toml").write_text(many)
        ended = run(machine, "fleet", "import", "many.toml", *options)
        scopes = [scope["id"] for scope in run_json(machine, "scope", "list")]
    assert (ended.code, ended.stdout) == (130, "")
    assert said in ended.stderr
    assert len([scope for scope in scopes if scope.startswith("s")]) == added
