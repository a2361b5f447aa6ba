"""`forewarn run`: run any program as a VM in a sandbox, without root."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import option, with_options
from forewarn.cli.options.completion import complete_vms
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.cli.output import write_message
from forewarn.testing import sandbox
from forewarn.testing.sandbox.errors import SANDBOX_EXIT_CODE, NamespacesUnavailable


# Without interspersed arguments, options after the program's name are the program's, with or without `--`.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True)
@click.option("--vm", metavar="VM", required=True, help="Run as this VM.", shell_complete=complete_vms)
@option(
    "--net",
    is_flag=True,
    envvar="FOREWARN_NET",
    help="Let it reach other machines too, with slirp4netns or pasta; never this machine's loopback.",
)
@with_options(SERVICE_OPTIONS.values())
def run(command: Sequence[str], vm: str, net: bool, **service_options: Any) -> None:
    """Run a program as a VM, without root. For it, 169.254.169.254 is the VM's endpoint, and the host name the VM's.

    Signals go to the program, and the exit code is the program's: 128 and the signal's number if a signal ended it,
    125 if the sandbox could not be made, 126 and 127 if the program cannot be run or is not found.

    Example: forewarn run --vm web-0 -- ./my-handler --verbose
    """
    if sys.platform != "linux":
        write_message(f"forewarn: {NamespacesUnavailable(sys.platform)}")
        raise click.exceptions.Exit(SANDBOX_EXIT_CODE)
    opened = connect(**service_options).open_socket(vm)
    _exec_sandbox(command, socket=_local_socket(Path(opened.path)), hostname=opened.vm, net=net)


def _local_socket(path: Path) -> Path:
    """Return a socket's path if there is such a socket on this machine."""
    if not path.is_socket():
        raise CliError(
            ExitCode.USAGE,
            f"the service runs on another machine: only there can programs be taken for its VMs ({path})",
        )
    return path


def _exec_sandbox(command: Sequence[str], *, socket: Path, hostname: str, net: bool) -> None:
    """Go on as the supervisor of the command, in this same process: so whoever started us has the command itself."""
    program, *arguments = sandbox.supervisor_command(command, socket=socket, hostname=hostname, net=net)
    os.execv(program, [program, *arguments])  # noqa: S606 - this is what it is for
