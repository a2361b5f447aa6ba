"""Scopes, VMs, hosts and the fleet file from the command line, and what ails a VM."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from forewarn.api import v1
from forewarn.cli.commands.doctor import endpoint_checks
from tests.cli.in_process import run, run_details, run_json, run_live, run_on_terminal, run_table
from tests.cli.service_machine import run_service_machine
from tests.support.program import Machine

FLEET = """
[[scopes]]
name = "db"
kind = "standalone"

[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 2, first_address = "10.0.0.1" }]
"""


@pytest.fixture
def service_machine(tmp_path: Path) -> Iterator[Machine]:
    with run_service_machine(tmp_path, FLEET) as machine:
        yield machine


def test_inventory_is_listed_and_shown(service_machine: Machine) -> None:
    scopes = run_table(service_machine, "scope", "list")
    assert scopes[0] == ["SCOPE", "KIND", "VMS", "OPEN EVENTS", "ENABLED", "LAST SEEN"]
    assert [row[:5] for row in scopes[1:]] == [
        ["db", "standalone", "1", "0", "no"],
        ["web", "availability-set", "2", "0", "no"],
    ]
    assert [scope["id"] for scope in run_json(service_machine, "scope", "list", "--kind", "standalone")] == ["db"]
    assert run_table(service_machine, "host", "list") == [
        ["HOST", "VMS", "OPEN EVENTS", "SCOPES"],
        ["hv-0", "1", "0", "web"],
        ["hv-1", "1", "0", "web"],
    ]
    assert run_details(service_machine, "host", "show", "hv-0") == {"host": "hv-0", "scopes": "web", "VMs": "web/web-0"}
    assert run_json(service_machine, "host", "show", "hv-0")["vms"] == ["web/web-0"]
    shown = run_details(service_machine, "vm", "show", "web-0")
    assert (shown["VM"], shown["host"], shown["addresses"]) == ("web/web-0", "hv-0", "10.0.0.1")
    assert run_details(service_machine, "scope", "show", "web")["update domains"] == "0, 1"
    assert run_json(service_machine, "scope", "show", "web")["vm_count"] == 2


def test_vm_comes_is_changed_and_goes(service_machine: Machine) -> None:
    place = ("--scope", "web", "--host", "hv-1", "--update-domain", "1")
    traits = ("--tag", "a=b", "--terminate-notice", "5m", "--os", "linux")
    addresses = ("--address", "10.0.0.9", "--address", "fd00::9@blue")
    added = run_json(service_machine, "vm", "add", "web-2", *place, *traits, *addresses)
    assert (added["scope"], added["host"], added["update_domain"], added["tags"]) == ("web", "hv-1", 1, {"a": "b"})
    assert [(each["ip"], each["network"]) for each in added["addresses"]] == [
        ("10.0.0.9", "default"),
        ("fd00::9", "blue"),
    ]
    changed = run_details(service_machine, "vm", "change", "web-2", "--host", "hv-0", "--zone", "2", "--clear", "tags")
    assert (changed["host"], changed["zone"], "tags" in changed) == ("hv-0", "2", False)
    assert changed["addresses"] == "10.0.0.9, fd00::9@blue"
    assert (
        run_json(service_machine, "vm", "change", "web-2", "--clear", "addresses", "--clear", "host")["addresses"] == []
    )
    removed = run(service_machine, "vm", "remove", "web-2")
    assert (removed.code, removed.stdout, removed.stderr) == (0, "", "VM web-2 is removed.\n")
    assert run(service_machine, "vm", "show", "web-2").code == 4


def test_scope_comes_is_changed_and_goes(service_machine: Machine) -> None:
    added = run_json(
        service_machine, "scope", "add", "new", "--kind", "availability-set", "--approval", "all", "--priority", "low"
    )
    assert (added["id"], added["approval"], added["priority"]) == ("new", "all", "low")
    changed = run_details(service_machine, "scope", "change", "new", "--auto-approve", "reboot", "--clear", "priority")
    assert (changed["starts at once"], "priority" in changed) == ("Reboot", False)
    assert run_json(service_machine, "scope", "change", "new", "--clear", "auto-approve")["auto_approve"] == []
    removed = run(service_machine, "scope", "remove", "new", "--reason", "a trial")
    assert (removed.code, removed.stderr) == (0, "Scope new is removed, with its VMs.\n")
    assert run(service_machine, "scope", "show", "new").code == 4


def test_vms_are_filtered(service_machine: Machine) -> None:
    assert [vm["name"] for vm in run_json(service_machine, "vm", "list", "--name", "*-1")] == ["web-1"]
    assert [vm["name"] for vm in run_json(service_machine, "vm", "list", "--host", "hv-0")] == ["web-0"]
    nothing = run(service_machine, "vm", "list", "--name", "x*")
    assert (nothing.code, nothing.stdout, nothing.stderr) == (0, "", "No such VMs.\n")


def test_hold_is_shown_by_every_listing(service_machine: Machine) -> None:
    run(service_machine, "hold", "rack 4 burns", "--scope", "web")
    assert [row[-1] for row in run_table(service_machine, "vm", "list")] == [
        "HELD",
        "",
        *["held by admin: rack 4 burns"] * 2,
    ]
    assert [row[-1] for row in run_table(service_machine, "scope", "list")] == [
        "HELD",
        "",
        "held by admin: rack 4 burns",
    ]
    assert [scope["id"] for scope in run_json(service_machine, "scope", "list", "--held")] == ["web"]
    assert "rack 4 burns" in run_details(service_machine, "vm", "show", "web-0")["held"]
    assert (
        "the scope is held by admin: rack 4 burns"
        in run(service_machine, "event", "schedule", "Reboot", "web-0").stdout
    )
    run(service_machine, "hold", "everything burns")
    for listing in (
        ("vm", "list"),
        ("scope", "list"),
        ("host", "list"),
        ("event", "list"),
        ("vm", "list", "-o", "json"),
    ):
        assert "All planned maintenance is held by admin since" in run(service_machine, *listing).stderr


def test_fleet_is_exported_and_imported_unchanged(service_machine: Machine) -> None:
    assert run(service_machine, "fleet", "export", "all.toml").stderr == "The fleet is in all.toml.\n"
    exported = (service_machine.home / "all.toml").read_text()
    assert run(service_machine, "fleet", "export").stdout == exported
    again = run(service_machine, "fleet", "import", "all.toml", "--prune")
    assert (again.code, again.stdout) == (0, "")
    assert again.stderr.startswith("0 added, 0 changed, 0 removed, ")
    run(service_machine, "fleet", "export", "all.json")
    as_json = (service_machine.home / "all.json").read_text()
    assert {scope["name"] for scope in json.loads(as_json)["scopes"]} == {"db", "web"}
    assert run(service_machine, "fleet", "export", "-o", "json").stdout == as_json
    assert run_json(service_machine, "fleet", "import", "all.json")["differences"] == []
    assert [path.name for path in service_machine.home.iterdir() if path.name.startswith(".all")] == []


def test_import_shows_the_differences_and_makes_them(service_machine: Machine) -> None:
    (service_machine.home / "wanted.toml").write_text(
        FLEET.replace("count = 2", "count = 3").replace('"hv-1"', '"hv-9"')
    )
    tried = run(service_machine, "fleet", "import", "wanted.toml", "--dry-run")
    assert tried.code == 0
    assert tried.stdout.splitlines()[:2] == ["~ web/web-1", "    host: hv-1 → hv-9"]
    assert "+ web/web-2" in tried.stdout.splitlines()
    assert tried.stderr.startswith("Nothing has changed. It would be: 1 VM added, 1 VM changed, 0 removed")
    assert run(service_machine, "vm", "show", "web-2").code == 4
    done = run(service_machine, "fleet", "import", "wanted.toml")
    assert (done.code, done.stdout) == (0, tried.stdout)
    assert run_json(service_machine, "vm", "show", "web-1")["host"] == "hv-9"
    assert run_json(service_machine, "vm", "show", "web-2")["scope"] == "web"


def test_import_can_come_from_stdin(service_machine: Machine) -> None:
    assert run(service_machine, "fleet", "import", "-", "--dry-run", stdin=FLEET).code == 0


def test_nothing_is_pruned_unless_somebody_says_yes(service_machine: Machine) -> None:
    (service_machine.home / "less.toml").write_text(FLEET.replace("count = 2", "count = 1"))
    asked = run(service_machine, "fleet", "import", "less.toml", "--prune")
    assert (asked.code, asked.stdout) == (2, "")
    assert asked.stderr.splitlines()[0] == "- web/web-1"
    assert "1 VM would be removed: say --yes if that is wanted" in asked.stderr
    assert run_json(service_machine, "vm", "show", "web-1")["scope"] == "web"
    done = run(service_machine, "fleet", "import", "less.toml", "--prune", "--yes")
    assert (done.code, done.stdout) == (0, "- web/web-1\n")
    assert run(service_machine, "vm", "show", "web-1").code == 4


@pytest.mark.parametrize(("answer", "code", "is_there"), [("n", 1, True), ("y", 0, False)])
def test_person_is_shown_what_would_be_pruned_and_asked(
    service_machine: Machine, answer: str, code: int, is_there: bool
) -> None:
    (service_machine.home / "less.toml").write_text(FLEET.replace("count = 2", "count = 1"))
    ended = run_live(service_machine, "fleet", "import", "less.toml", "--prune", columns=100, stdin=f"{answer}\n")
    shown, question, _ = ended.stdout.partition("Remove 1 VM? [y/N]")
    assert (ended.code, bool(question), "- web/web-1" in shown) == (code, True, True), ended.stdout
    assert ("web-1" in [vm["name"] for vm in run_json(service_machine, "vm", "list")]) is is_there


def test_import_of_many_shows_how_far_it_is(service_machine: Machine) -> None:
    (service_machine.home / "more.toml").write_text(
        FLEET + "".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(200))
    )
    shown = "\n".join(run_on_terminal(service_machine, "fleet", "import", "more.toml", columns=100))
    assert "Importing" in shown
    assert "more lines: into a file, or with -o json, all are shown." in shown


@pytest.mark.parametrize("columns", [80, 200])
def test_listings_fit_the_terminal_and_keep_the_reason_of_a_hold(service_machine: Machine, columns: int) -> None:
    reason = "the switch in rack 4 is being replaced, and nobody knows for how long"
    run(service_machine, "hold", reason, "--scope", "web")
    for listing in ("scope list", "vm list", "journal", "vm show web-0", "scope show web"):
        shown = [
            re.sub("\x1b\\[[0-9;]*m", "", line)
            for line in run_on_terminal(service_machine, *listing.split(), columns=columns)
        ]
        assert max(map(len, shown)) <= columns, listing
        assert reason in " ".join(" ".join(shown).split()), listing


def test_import_that_is_partly_refused_says_so(service_machine: Machine) -> None:
    run(service_machine, "event", "schedule", "Reboot", "web-1")
    (service_machine.home / "less.toml").write_text(FLEET.replace("count = 2", "count = 1"))
    ended = run(service_machine, "fleet", "import", "less.toml", "--prune", "--yes")
    assert (ended.code, "refused: " in ended.stdout, "1 refused" in ended.stderr) == (3, True, True)
    assert run_json(service_machine, "vm", "show", "web-1")["scope"] == "web"


def test_wrong_fleet_file_is_refused_with_the_reason(service_machine: Machine) -> None:
    (service_machine.home / "wrong.toml").write_text('[[scopes]]\nname = "x"\nkind = "pile"\n')
    ended = run(service_machine, "fleet", "import", "wrong.toml")
    assert (ended.code, ended.stderr.startswith('forewarn: wrong.toml: scopes[0].kind: "pile" is not allowed')) == (
        2,
        True,
    )
    (service_machine.home / "wrong.toml").write_text("scopes = [\n  7 8\n")
    ended = run(service_machine, "fleet", "import", "wrong.toml")
    assert (ended.code, ended.stderr.startswith("forewarn: wrong.toml: this is not TOML: ")) == (2, True)
    assert "line 2, column" in ended.stderr


def test_export_that_cannot_be_written_says_so(service_machine: Machine) -> None:
    ended = run(service_machine, "fleet", "export", "/nowhere/fleet.toml")
    assert (ended.code, ended.stderr) == (
        1,
        "forewarn: cannot write /nowhere/fleet.toml: No such file or directory\n",
    )


def test_export_leaves_a_file_alone_that_it_cannot_replace_in_full(service_machine: Machine, tmp_path: Path) -> None:
    file = service_machine.home / "fleet.json"
    file.write_text("mine")
    ended = run(service_machine, "fleet", "export", "fleet.json", FOREWARN_TOKEN="wrong")
    assert (ended.code, file.read_text()) == (3, "mine")


def test_doctor_finds_nothing_wrong_with_a_vm_that_asks(service_machine: Machine) -> None:
    url = run_json(service_machine, "vm", "show", "web-0")["guest_url"]
    request = Request(f"{url}/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"})
    urlopen(request, timeout=30).close()
    well = run(service_machine, "doctor", "web-0")
    assert (well.code, well.stderr) == (0, "All is well with web/web-0.\n"), well
    assert all(line.startswith("✓ ") for line in well.stdout.splitlines())
    assert f"✓ Does its endpoint answer? Yes, at {url}." in well.stdout
    assert all(check["passed"] for check in run_json(service_machine, "doctor", "web-0")["checks"])


def test_doctor_says_what_is_wrong_and_what_to_do(service_machine: Machine) -> None:
    ill = run(service_machine, "doctor", "nothing")
    assert (ill.code, ill.stderr) == (1, "Not all is well with nothing: 1 of 1 answers are bad.\n")
    assert ill.stdout == "✗ Is it known? No: there is no VM nothing.\n    Add it with `forewarn vm add`.\n"


@pytest.mark.parametrize("port", ["closed", "another VM's"])
def test_doctor_tries_the_endpoint_itself(service_machine: Machine, port: str) -> None:
    url = run_json(service_machine, "vm", "show", "web-1")["guest_url"]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        if port == "closed":
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (check,) = endpoint_checks(v1.Diagnosis(vm="web/web-0", guest_url=url, checks=()), "http://127.0.0.1:1")
    found = f"Not from here: {url}: Connection refused." if port == "closed" else "answers with status 200: web-1"
    assert (check.passed, found in check.message, bool(check.hint)) == (False, True, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://169.254.169.254"])
def test_doctor_does_not_try_what_only_the_machine_of_the_service_can_reach(url: str) -> None:
    diagnosis = v1.Diagnosis(vm="web/web-0", guest_url=url, checks=())
    assert list(endpoint_checks(diagnosis, "https://forewarn.example:8170")) == []


def test_doctor_enables_nothing(service_machine: Machine) -> None:
    run(service_machine, "doctor", "web-0")
    assert run_json(service_machine, "vm", "show", "web-0")["enabled"] is False


def test_colours_are_for_terminals_and_only_if_wanted(service_machine: Machine) -> None:
    run(service_machine, "event", "schedule", "Reboot", "web-0", "--failure")
    coloured = "\n".join(run_on_terminal(service_machine, "event", "list", columns=120))
    assert "\x1b[33mStarted" in coloured
    service_machine.environment["NO_COLOR"] = "1"
    assert "\x1b[" not in "\n".join(run_on_terminal(service_machine, "event", "list", columns=120))
    del service_machine.environment["NO_COLOR"]
    assert "\x1b[" not in run(service_machine, "event", "list").stdout
