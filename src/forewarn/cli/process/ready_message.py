"""The message of `forewarn up` when the service is ready: the VMs with their URLs, and commands to try.

A separate module, because it imports the API's types and views, for which the first response to a VM must not wait.
Needs the extra `[server]`."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from forewarn.api.local_service import TOKEN_FILE
from forewarn.api.v1 import Vm
from forewarn.cli.output import Output, write, write_message
from forewarn.cli.views.event import hold_text
from forewarn.cli.views.tables import Column, write_table
from forewarn.compose import RunningService
from forewarn.core.scope import ScopeKind
from forewarn.core.text import count_text
from forewarn.fleet.errors import AmbiguousVm
from forewarn.operator.views.inventory import first_vms, show_hold
from forewarn.settings.load import FILE_NAME
from forewarn.settings.paths import user_data_directory
from forewarn.wire.protocol import NEWEST_VERSION

MAX_ROWS = 40
MAX_HOLDS = 10


class ReadyMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The line of JSON that is written when the service is ready."""

    pid: int
    operator_url: str
    dashboard_url: str
    link_local_url: str | None
    data: str
    token_file: str
    ephemeral: bool
    settings_file: str | None
    guest_urls: dict[str, str]
    examples: tuple[str, ...]


def show_ready(running: RunningService, output: Output, settings_file: Path | None) -> None:
    """Write that the service is ready, what it continues with, and commands to try."""
    vms = first_vms(running.fleet, running.guest_url, MAX_ROWS)
    commands = tuple(example_commands(running, vms))
    count = running.fleet.replica.vms
    if output is Output.JSON:
        write(msgspec.json.encode(_ready_message(running, commands, settings_file)).decode())
    else:
        _write_vms(vms, count)
        _write_commands(commands)
    kept = "in memory only" if running.is_ephemeral else f"in {running.directory}"
    if not count:
        write_message("The fleet has no VMs: the fleet file has none.")
    if open_events := sum(len(view.scope.events) for view in running.fleet.replica.views() if view.scope is not None):
        write_message(
            f"Continuing with {open_events} open {'event' if open_events == 1 else 'events'} (`forewarn event list`)."
        )
    _write_holds(running)
    write_message(_settings_text(settings_file))
    write_message(
        f"Forewarn serves {count_text(count, 'VM')}{_link_local_text(running)}; "
        f"the operator API is at {running.operator_url}; data is {kept}. Press Ctrl-C to stop."
    )
    if output is not Output.JSON:
        write_message(
            f"Dashboard: {running.sign_in_url()} (this link signs in once, within a minute; "
            "`forewarn token create NAME --role admin` prints a token to sign in with later)"
        )


def _write_holds(running: RunningService) -> None:
    """Write what keeps planned maintenance from starting: a user may have forgotten a hold of an earlier run."""
    holds = tuple(running.fleet.holds.all())
    for scope, hold in holds[:MAX_HOLDS]:
        release = "forewarn release" if scope is None else shlex.join(("forewarn", "release", "--scope", scope))
        write_message(f"{hold_text(show_hold(hold, scope))} (`{release}` ends it)")
    if len(holds) > MAX_HOLDS:
        write_message(f"… and {len(holds) - MAX_HOLDS} more holds: forewarn hold")


def _settings_text(settings_file: Path | None) -> str:
    if settings_file is not None:
        return f"Settings are from {settings_file.absolute()}."
    return (
        f"Default settings: {Path.cwd() / FILE_NAME} does not exist, and neither --config nor FOREWARN_CONFIG is set."
    )


def _link_local_text(running: RunningService) -> str:
    if running.link_local_url is None:
        return ""
    return f", also at {running.link_local_url} on {running.link_local_interface}"


def _ready_message(running: RunningService, commands: tuple[str, ...], settings_file: Path | None) -> ReadyMessage:
    found = (
        (f"{view.id}/{vm.name}", running.guest_url(view.id, vm))
        for view in running.fleet.replica.views()
        for vm in view.roster or ()
    )
    return ReadyMessage(
        pid=os.getpid(),
        operator_url=running.operator_url,
        dashboard_url=running.sign_in_url(),
        link_local_url=running.link_local_url,
        data=str(running.directory),
        token_file=str(running.directory / TOKEN_FILE),
        ephemeral=running.is_ephemeral,
        settings_file=None if settings_file is None else str(settings_file.absolute()),
        guest_urls={vm: url for vm, url in found if url is not None},
        examples=commands,
    )


def _write_vms(vms: Sequence[Vm], count: int) -> None:
    write_table(
        (
            Column("VM"),
            Column("SCOPE"),
            Column("KIND", drop_order=3),
            Column("HOST", drop_order=1),
            Column("UPDATE DOMAIN", drop_order=2),
            Column("GUEST URL"),
        ),
        (
            (vm.name, vm.scope, vm.scope_kind.value, vm.host or "", str(vm.update_domain), vm.guest_url or "")
            for vm in vms
        ),
    )
    if count > len(vms):
        write(f"… and {count - len(vms)} more: forewarn vm list")


def _write_commands(commands: Sequence[str]) -> None:
    if not commands:
        return
    write("")
    write("Paste into another terminal to schedule an event, see what the VM sees, and approve it:")
    write("")
    for line in commands:
        write(line)
    write("")


def example_commands(running: RunningService, vms: Sequence[Vm]) -> Iterator[str]:
    """Yield commands that show what Forewarn does: schedule, poll, approve. They work unchanged in any shell."""
    if not vms:
        return
    vm = min(vms, key=lambda vm: vm.scope_kind is not ScopeKind.AVAILABILITY_SET)
    where = () if running.directory == user_data_directory(os.environ) else ("--data", str(running.directory))
    policy = running.fleet.scopes.rule_context.policy
    needs_consent = policy.enforce_notice and not policy.announces(enabled=False)  # as in a rehearsal
    options = ("--in", "15m", *(("--unannounced",) if needs_consent else ()), *where)
    yield shlex.join((*program_command(), "event", "schedule", "Reboot", _shortest_name(running, vm), *options))
    if vm.guest_url is not None:
        url = f"'{vm.guest_url}/metadata/scheduledevents?api-version={NEWEST_VERSION}'"
        yield rf"curl -s -H Metadata:true {url} -w '\n'"
        # Take the id of the first event out of the response and send it back as an approval.
        approval = r"""sed 's/^[^[]*\[{"EventId":"\([^"]*\)".*/{"StartRequests":[{"EventId":"\1"}]}/'"""
        yield f"curl -s -H Metadata:true {url} | {approval} | curl -s -i -H Metadata:true -d @- {url}"


def program_command() -> tuple[str, ...]:
    """Return the command that starts this program from any directory and environment."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return (sys.executable, "-m", "forewarn.cli")
    return (str(started.absolute()),)


def _shortest_name(running: RunningService, vm: Vm) -> str:
    try:
        running.fleet.replica.find(vm.name)
    except AmbiguousVm:
        return f"{vm.scope}/{vm.name}"
    return vm.name
