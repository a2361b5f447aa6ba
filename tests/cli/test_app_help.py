"""Help texts, the reference of commands, and suggestions."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from forewarn.cli.app import COMMAND_SECTIONS, command_entries, load_command
from forewarn.cli.errors import ExitCode
from tests.cli.in_process import run
from tests.support.program import Machine

REFERENCE = Path(__file__).parents[2] / "docs/reference"
OVERVIEW = (REFERENCE / "cli.md").read_text()
PAGES = {page.stem: page.read_text() for page in (REFERENCE / "cli").glob("*.md")}


def _commands() -> Iterator[tuple[str, click.Command]]:
    for entry in command_entries():
        found = load_command(entry)
        if isinstance(found, click.Group):
            for name, command in found.commands.items():
                yield f"{entry.name} {name}", command
        else:
            yield entry.name, found


COMMANDS = dict(_commands())

OF_ONE_REQUEST = {
    "--address", "--all", "--amount", "--approval", "--approve", "--at", "--auto-approve", "--blackout", "--burst",
    "--cell", "--cells", "--from", "--hours", "--restart", "--to", "--vms",
    "--actor", "--campaign", "--clear", "--closed-gate", "--core", "--description", "--action", "--done",
    "--dry-run", "--duration", "--instance",
    "--event", "--exclude-host", "--exclude-scope", "--exclude-tag", "--exclude-vm", "--expected", "--expires",
    "--explain", "--failed", "--failure", "--fault-domain", "--for", "--for-others", "--force", "--gap", "--gate",
    "--gate-patience", "--give-up", "--halt-after", "--held", "--host", "--hosts-at-once", "--in", "--key",
    "--kind", "--like", "--location", "--mine", "--must-end-inside", "--name", "--newest", "--advance", "--notice",
    "--only", "--os", "--placement-group", "--predicted", "--priority", "--private", "--problems", "--prune",
    "--replace", "--resource-group", "--role", "--role-instance", "--save", "--scale-set", "--scenario", "--scope",
    "--scopes-at-once", "--since", "--skip", "--source", "--speed", "--start-at", "--state", "--subscription", "--tag",
    "--terminate-notice", "--times", "--to-next", "--type", "--until", "--update-domain", "--user", "--vm",
    "--vm-id", "--vms-at-once", "--unannounced", "--now", "--wait", "--waves", "--reason", "--window", "-y", "--yes",
    "--zone",
}  # fmt: skip
"""Options without a variable: a forgotten variable would change or hide events."""

SETTINGS = {"up", "serve", "config"}
"""Commands whose options are settings."""


def _help(machine: Machine, command: str) -> str:
    ended = run(machine, *command.split(), "--help")
    assert ended.code == 0
    return ended.stdout


def _options(page: str) -> list[str]:
    return re.split(r"\n  (?=-)", page.partition("\nOptions:")[2])[1:]


GROUPS = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})

VERBS = {
    "Abandon", "Abort", "Add", "Advance", "Approve", "Back", "Begin", "Cancel", "Change", "Check", "Clear", "Copy",
    "Create", "Delete", "End",
    "Evict", "Export", "Find", "Follow", "Import", "Inject", "List", "Manage", "Pause", "Plan", "Prepare", "Redeploy",
    "Remove", "Replace", "Resolve", "Restart", "Resume", "Retry", "Revoke", "Roll", "Run", "Schedule", "Set", "Show",
    "Simulate", "Skip", "Start", "Stop", "Upgrade",
}  # fmt: skip


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_every_command_has_one_complete_line_in_the_list(machine: Machine, group: str) -> None:
    page = _help(machine, group).partition("--help")[2].partition("\n")[2]
    lines = [line for line in page.splitlines() if line.startswith(" ")]
    assert lines
    assert [line for line in lines if not re.match(r"  [a-z]+ +[A-Z].*[^.]\.$", line)] == []


def test_every_help_starts_with_a_verb() -> None:
    helps = [entry.help for entry in command_entries()] + [command.help or "" for command in COMMANDS.values()]
    assert {text for text in helps if text.split()[0].rstrip(":,") not in VERBS} == set()


def test_all_commands_exist() -> None:
    assert set(COMMANDS) >= {
        *(f"vm {name}" for name in ("list", "show", "add", "remove", "restart", "redeploy", "delete", "evict", "fail")),
        *(f"event {name}" for name in ("schedule", "list", "show", "cancel", "approve", "retry", "resolve", "watch")),
        *(f"campaign {name}" for name in ("plan", "start", "list", "show", "watch", "pause", "resume", "abort")),
        *("scope list", "scope show", "host list", "host show", "fleet import", "fleet export"),
        *("token create", "token list", "token revoke", "hold", "release", "journal", "watch", "doctor", "config"),
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_general_option_has_a_variable(machine: Machine, command: str) -> None:
    options = _options(_help(machine, command))
    without = [text for text in options if not re.search(r"\[env\s+var:\s+FOREWARN_", text)]
    names = {text.split()[0].rstrip(",") for text in without}
    assert names - OF_ONE_REQUEST == {"--help"}
    if command not in SETTINGS:
        of_one = {text.split()[0].rstrip(",") for text in options} & OF_ONE_REQUEST
        assert of_one - names <= {"--cell", "--cells", "--name", "--state"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_internal_words(machine: Machine, command: str) -> None:
    page = _help(machine, command)
    assert page.startswith(f"Usage: forewarn {command} [OPTIONS]")
    assert [line for line in page.splitlines() if re.search(r"<\w+|list\[|\{", line)] == []
    assert max(map(len, page.splitlines())) <= 80
    if command.split(maxsplit=1)[0] not in {*SETTINGS, "clock", "guest"}:
        assert re.search(r"^  Examples?: ", page, re.MULTILINE)


def test_commands_are_listed_by_section(machine: Machine) -> None:
    page = run(machine, "--help").stdout
    assert [line[:-1] for line in page.splitlines() if re.fullmatch(r"\S.*:", line)] == ["Options", *COMMAND_SECTIONS]
    listed = re.findall(r"^  ([a-z]+) ", page.partition("--help")[2], re.MULTILINE)
    assert listed == [entry.name for entry in command_entries()]


def test_program_without_a_command_shows_its_help(machine: Machine) -> None:
    page = run(machine)
    said = page.stdout + page.stderr
    assert all(command.split()[0] in said for command in COMMANDS)


@pytest.mark.process
def test_help_imports_no_command_and_no_client() -> None:
    """The help must be fast."""
    script = (
        "import sys, forewarn.cli.app as a\ntry:\n a.app(['--help'])\nfinally:\n print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    modules = set(ended.stderr.split())
    assert "forewarn.cli.app" in modules
    assert (
        modules & {"forewarn.cli.commands.vm", "forewarn.api.client", "rich.console", "ssl", "litestar", "uvloop"}
        == set()
    )


@pytest.mark.parametrize(
    ("typed", "meant"), [(("jounral",), "journal"), (("vm", "lst"), "list")], ids=["command", "below a command"]
)
def test_mistyped_command_suggests_the_closest(machine: Machine, typed: tuple[str, ...], meant: str) -> None:
    ended = run(machine, *typed)
    assert (ended.code, f"Did you mean '{meant}'?" in ended.stderr) == (2, True)


def test_overview_lists_every_command_with_its_page() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(cli/(\w+)\.md\) \| (.+) \|$", OVERVIEW, re.MULTILINE)
    assert [(title, page) for title, page, _ in rows if title != page] == []
    assert sorted(page for _, page, _ in rows) == sorted(PAGES)
    listed: list[str] = []
    for _, page, cell in rows:
        for part in cell.split("; "):
            first, *others = re.findall(r"`([^`]+)`", part)
            group = first.removeprefix("forewarn ").partition(" ")[0]
            names = [first, *(f"forewarn {group} {name}" for name in others if not name.startswith("forewarn"))]
            names += [name for name in others if name.startswith("forewarn")]
            listed += [name.removeprefix("forewarn ") for name in names]
            assert [name for name in names if name not in PAGES[page]] == []
    assert sorted(listed) == sorted(COMMANDS)


def test_reference_explains_every_exit_code() -> None:
    assert [code for code in ExitCode if f"| {code.value} |" not in OVERVIEW] == []


def test_reference_names_only_options_that_exist() -> None:
    """Options are described by `--help` alone; the pages name some of them."""
    exist = {name for command in COMMANDS.values() for parameter in command.params for name in _spellings(parameter)}
    exist |= {"--help", "--version", "--install-completion", "--show-completion"}
    named = {option for page in (OVERVIEW, *PAGES.values()) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)}
    assert named - exist - EXAMPLE_OPTIONS == set()


EXAMPLE_OPTIONS = {"--verbose"}
"""Options of the programs in examples."""


def _spellings(parameter: click.Parameter) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]
