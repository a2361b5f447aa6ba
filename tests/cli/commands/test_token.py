"""Tokens from the command line: their permissions, and that their secrets do not leak."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import run, run_json, run_table
from tests.cli.service_machine import run_service_machine
from tests.support.program import Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
vms = [{ name = "web-0" }]

[[scopes]]
name = "db"
kind = "availability-set"
vms = [{ name = "db-0" }]
"""


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with run_service_machine(tmp_path_factory.mktemp("tokens"), FLEET) as machine:
        yield machine


def test_only_the_secret_goes_to_stdout(service_machine: Machine) -> None:
    made = run(service_machine, "token", "create", "pipe", "--role", "operator", "--expires", "90d")
    assert (made.code, made.stdout.count("\n"), " " in made.stdout) == (0, 1, False)
    assert "pipe: operator, until " in made.stderr
    assert made.stdout.strip() not in made.stderr
    assert run(service_machine, "vm", "list", FOREWARN_TOKEN=made.stdout.strip()).code == 0


def test_secret_can_be_saved_to_a_private_file(service_machine: Machine) -> None:
    made = run(service_machine, "token", "create", "kept", "--save", "kept.token")
    file = service_machine.home / "kept.token"
    assert (made.code, made.stdout, stat.S_IMODE(file.stat().st_mode)) == (0, "", 0o600)
    assert run_json(service_machine, "clock", "show", "--token-file", str(file))["manual"]
    shown = run_json(service_machine, "token", "create", "shown", "--save", "shown.token")
    assert (shown["token"]["name"], shown["secret"]) == ("shown", None)


def test_save_does_not_overwrite_a_file(service_machine: Machine) -> None:
    file = service_machine.home / "ann.token"
    file.write_text("the only copy\n")
    before = run_json(service_machine, "token", "list")
    ended = run(service_machine, "token", "create", "bob", "--save", "ann.token")
    assert (ended.code, "ann.token already exists" in ended.stderr) == (1, True)
    assert (file.read_text(), run_json(service_machine, "token", "list")) == ("the only copy\n", before)


def test_no_token_is_created_if_its_secret_cannot_be_written(service_machine: Machine) -> None:
    before = run_json(service_machine, "token", "list")
    ended = run(service_machine, "token", "create", "lost", "--save", "/nowhere/lost.token")
    assert (ended.code, "cannot write /nowhere/lost.token" in ended.stderr) == (1, True)
    assert run_json(service_machine, "token", "list") == before


def test_tokens_are_listed_without_their_secrets_and_revoked(service_machine: Machine) -> None:
    made = run_json(service_machine, "token", "create", "visitor", "--role", "viewer", "--scope", "web*")
    secret, id_ = made["secret"], made["token"]["id"]
    listed = run(service_machine, "token", "list").stdout
    assert (id_ in listed, secret in listed) == (True, False)
    (row,) = (row for row in run_table(service_machine, "token", "list") if row[0] == id_)
    assert (row[1:4], row[-1]) == (["visitor", "viewer", "web*"], "good")
    assert run(service_machine, "token", "revoke", id_, "--reason", "left").stderr == f"Token {id_} is revoked.\n"
    (row,) = (row for row in run_table(service_machine, "token", "list") if row[0] == id_)
    assert row[-1] == "revoked"
    refused = run(service_machine, "vm", "list", FOREWARN_TOKEN=secret)
    assert (refused.code, "FOREWARN_TOKEN or --token-file" in refused.stderr) == (3, True)


@pytest.mark.parametrize(
    ("role", "scope", "command", "code", "said"),
    [
        ("viewer", None, ("event", "list"), 0, ""),
        (
            "viewer",
            None,
            ("event", "schedule", "Freeze", "web-0"),
            3,
            "has the role viewer, but this request requires operator",
        ),
        ("operator", None, ("token", "list"), 3, "requires admin"),
        ("operator", "web", ("event", "schedule", "Freeze", "web-0"), 0, ""),
        ("operator", "web", ("event", "list", "--scope", "db-0"), 3, "is limited to web"),
        ("operator", "web", ("event", "schedule", "Freeze", "db-0"), 4, "there is no VM db-0 in web"),
        ("operator", "web", ("hold", "everything"), 3, "limited to some scopes"),
    ],
    ids=[
        "viewer reads",
        "viewer changes",
        "operator creates tokens",
        "in its scope",
        "another scope",
        "VM of another scope",
        "fleet-wide",
    ],
)
def test_token_is_limited_to_its_role_and_scopes(
    service_machine: Machine, role: str, scope: str | None, command: tuple[str, ...], code: int, said: str
) -> None:
    limits = () if scope is None else ("--scope", scope)
    name = "-".join((role, *command))
    secret = run_json(service_machine, "token", "create", name, "--role", role, *limits)["secret"]
    ended = run(service_machine, *command, FOREWARN_TOKEN=secret)
    assert (ended.code, said in ended.stderr) == (code, True), ended.stderr
    assert secret not in ended.stderr + ended.stdout


def test_journal_records_who_created_and_revoked_tokens(service_machine: Machine) -> None:
    made = run_json(service_machine, "token", "create", "noted")
    lines = run(service_machine, "journal", "--action", "token-created", "-o", "json").stdout
    assert "noted" in [line["facts"]["name"] for line in json.loads(lines)]
    assert made["secret"] not in lines


def test_last_admin_token_is_revoked_only_with_force(tmp_path: Path) -> None:
    with run_service_machine(tmp_path, FLEET) as machine:
        (admin,) = (token["id"] for token in run_json(machine, "token", "list"))
        refused = run(machine, "token", "revoke", admin)
        assert (refused.code, "last valid admin token" in refused.stderr) == (3, True), refused.stderr
        assert run(machine, "token", "revoke", admin, "--force").stderr == f"Token {admin} is revoked.\n"
        assert run(machine, "token", "list").code == 3
