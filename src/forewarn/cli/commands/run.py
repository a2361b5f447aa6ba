"""`forewarn run`: run any program as a VM in a sandbox, without root."""

import os
import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import with_options
from forewarn.cli.options.completion import complete_vms
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.cli.output import write_message
from forewarn.testing import sandbox
from forewarn.testing.sandbox.errors import SANDBOX_EXIT_CODE, NamespacesUnavailable

VmOption = Annotated[
    str, typer.Option("--vm", metavar="VM", help="The VM that it is taken for.", autocompletion=complete_vms)
]
NetworkOption = Annotated[
    bool,
    typer.Option(
        "--net",
        envvar="FOREWARN_NET",
        help="Let it reach other machines too, by slirp4netns or pasta; never this one's loopback.",
    ),
]
ProgramArgument = Annotated[list[str], typer.Argument(metavar="COMMAND", hidden=True)]


def _run(command: ProgramArgument, vm: VmOption, net: NetworkOption = False, **where: Any) -> None:
    """Run a program as a VM, without root. For it, 169.254.169.254 is the VM's endpoint, and the host name the VM's.

    Signals go to the program, and the exit code is the program's: 128 and the signal's number if a signal ended it,
    125 if it could not be given such a place, 126 and 127 if it cannot be run or is not found.

    Example: forewarn run --vm web-0 -- ./my-handler --verbose
    """
    if sys.platform != "linux":
        write_message(f"forewarn: {NamespacesUnavailable(sys.platform)}")
        raise typer.Exit(SANDBOX_EXIT_CODE)
    opened = connect(**where).open_socket(vm)
    _exec_sandbox(command, socket=_local_socket(Path(opened.path)), hostname=opened.vm, net=net)


run = with_options(_run, (*list(signature(_run).parameters.values())[:-1], *SERVICE_OPTIONS))


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
